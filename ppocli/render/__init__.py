"""Reports to text or bytes. The only folder that imports Rich."""

from __future__ import annotations
