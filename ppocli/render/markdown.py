"""The screen as Markdown, for a pull request or a job summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ppocli.core.report import EvalReport
    from ppocli.render.blocks import Block, Screen

_SPECIAL = "\\`*_{}[]<>()#+!|~&"


def eval_markdown(report: EvalReport, *, digits: int = 6, sort: str | None = None, hist: bool = False) -> str:
    """Return the header and the tables of `ppocli eval` as GitHub-flavoured Markdown."""
    from ppocli.render.screen import eval_screen

    return screen_markdown(eval_screen(report, digits, sort, hist=hist))


def screen_markdown(screen: Screen) -> str:
    """Return a screen as GitHub-flavoured Markdown."""
    parts = ["\n".join(f"- {escape(line)}" for line in screen.header)]
    parts += [_block(block) for block in screen.blocks]
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Return `text` so that Markdown and HTML show it as it is."""
    return "".join("\\" + one if one in _SPECIAL else one for one in text).replace("\n", "<br>")


def _block(block: Block) -> str:
    """Return one table, or its text when it has no rows."""
    if not block.rows:
        return escape(block.text)
    head = [escape(column.header.replace("\n", " ")) for column in block.columns]
    rule = ["---:" if column.kind == "number" else "---" for column in block.columns]
    lines = [head, rule, *([escape(cell) for cell in row] for row in block.rows)]
    title = f"**{escape(block.title)}**\n\n" if block.title else ""
    return title + "\n".join(f"| {' | '.join(line)} |" for line in lines)
