"""Draw the picture at the top of the README: the tool's own output, as a terminal of 100 columns shows it.

Run from the root of the checkout: `python .github/screenshot.py`.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

COMMAND = ("check", "sample_data/overflow.npz", "--max", "approx_kl_k3=0.05", "--max", "clip_frac=0.3")
TARGET = Path(__file__).with_name("screenshot.svg")
WIDTH = 100


def screenshot() -> str:
    """Return the picture; its fonts are those of the reader's machine, so that it fetches nothing."""
    environment = {**os.environ, "COLUMNS": str(WIDTH), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-m", "ppocli", *COMMAND, "--color", "always"],
        capture_output=True,
        check=False,
        encoding="utf-8",
        env=environment,
    )
    if done.returncode != 1:  # the gate is meant to fail
        raise SystemExit(done.stderr or f"exit code {done.returncode}")
    console = Console(record=True, width=WIDTH, file=io.StringIO(), color_system="truecolor")
    console.print(f"$ ppocli {' '.join(COMMAND)}\n", highlight=False)
    console.print(Text.from_ansi(done.stdout), no_wrap=True, overflow="ignore", crop=False)
    return console.export_svg(title="ppocli check", theme=MONOKAI, code_format=FRAME, unique_id="ppocli")


FRAME = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img"
  aria-label="A terminal with the output of ppocli check">
<style>
.{unique_id}-matrix {{ font-family: Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: arial; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""

if __name__ == "__main__":
    TARGET.write_text(screenshot(), encoding="utf-8")
