"""How a report shows itself in a Python session."""

from __future__ import annotations

from typing import Any


class Shown:
    """What `str`, `repr` and a notebook show of a report; the classes of reports inherit it."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the document of the report."""
        raise NotImplementedError

    def __str__(self) -> str:
        from ppocli.core.notebook import summary_lines

        return "\n".join(summary_lines(self.to_dict()))

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows; every text is escaped."""
        from ppocli.core.notebook import table_html

        return table_html(self.to_dict())
