"""Orchestration: readers and kernels to a report."""

from __future__ import annotations
