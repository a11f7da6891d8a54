"""`python -m ppocli`."""

from __future__ import annotations

from ppocli.cli.app import console_main

console_main()
