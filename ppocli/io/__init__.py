"""Readers: files and arrays to chunks of tokens. The only folder that imports PyArrow."""

from __future__ import annotations
