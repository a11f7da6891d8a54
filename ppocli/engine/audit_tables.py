"""The tables of an audit: which formats are stored in, which losses are computed, with which bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ppocli.core.precision import PRECISIONS, Precision
from ppocli.kernels import audit_layout, layout
from ppocli.kernels.rounding import round_to

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ppocli.core.audit_spec import AuditOptions
    from ppocli.engine.totals import Floats

IN_FLOAT64, IN_FORMAT, LOSS_ONLY = (
    audit_layout.IN_FLOAT64,
    audit_layout.IN_FORMAT,
    audit_layout.LOSS_ONLY,
)
REFERENCE = 0
"""The variant in which nothing is rounded."""

KINDS = {None: audit_layout.FLOATING, "tensor": audit_layout.SCALED, "sequence": audit_layout.SCALED_EACH}
CHECKED = ("bfloat16", "float16")
"""Formats that the log-prob columns may turn out to hold."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One loss: log-probs stored in a format, steps rounded to one.

    Attributes
    ----------
    storage : str
        A format, or "float64".
    kind : int
        IN_FLOAT64: the storage question. IN_FORMAT: the arithmetic one. LOSS_ONLY: in float32 arithmetic,
        for the recommendation.
    """

    storage: str
    kind: int

    @property
    def steps(self) -> Precision | None:
        """The format that steps are rounded to."""
        if self.kind == IN_FLOAT64:
            return None
        return PRECISIONS["float32" if self.kind == LOSS_ONLY else self.storage]


def variants_of(options: AuditOptions) -> tuple[Variant, ...]:
    """Return the losses to compute, the reference first, ordered by storage format."""
    out = [Variant("float64", IN_FLOAT64)]
    for name in options.formats:
        out.append(Variant(name, IN_FLOAT64))
        if PRECISIONS[name].arithmetic:
            out.append(Variant(name, IN_FORMAT))
        # Float32 arithmetic on float32 is its arithmetic question; nothing is recommended that nobody stores.
        if name != "float32" and PRECISIONS[name].stored:
            out.append(Variant(name, LOSS_ONLY))
    return tuple(out)


def format_table(names: tuple[str, ...], scales: Mapping[str, tuple[float, float, float]]) -> Floats:
    """Return the kernel's table of storage formats.

    Parameters
    ----------
    names : tuple of str
        The formats; "float64" comes first.
    scales : mapping of name to (log_probs, old_log_probs, advantages)
        For formats with one scale for each column.
    """
    table = np.zeros((len(names), len(audit_layout.FORMAT)))
    for row, name in zip(table[1:], names[1:], strict=True):
        one = PRECISIONS[name]
        row[audit_layout.F_KIND] = KINDS[one.scale]
        if one.scale is None:
            row[audit_layout.F_FACTOR : audit_layout.F_BEYOND + 1] = one.rule
        elif name in scales:
            row[audit_layout.F_SCALE_NEW : audit_layout.F_SCALE_ADV + 1] = scales[name]
    return table


def variant_table(variants: tuple[Variant, ...], names: tuple[str, ...], parameters: Floats) -> Floats:
    """Return the kernel's table of variants; rows of terms are given to the reference alone.

    Parameters
    ----------
    names : tuple of str
        The storage formats, as in `format_table`.
    parameters : (N_PARAMETERS,) float64
        The loss. Its bounds are rounded to the format of the steps, as a trainer's constants are.
    """
    clamp = parameters[layout.P_CLAMP]
    bounds = np.array(
        [
            *(parameters[place] for place in (layout.P_CLIP_FLOOR, layout.P_CLIP_CEILING)),
            *(parameters[place] for place in (layout.P_DUAL, layout.P_DELTA)),
            clamp,
            np.exp(-clamp),
            np.exp(clamp),
        ]
    )
    table = np.zeros((len(variants), len(audit_layout.VARIANT)))
    for row, one in zip(table, variants, strict=True):
        row[audit_layout.V_FORMAT] = names.index(one.storage)
        row[audit_layout.V_KIND] = one.kind
        row[audit_layout.V_FLOOR : audit_layout.V_TOP + 1] = bounds
        row[audit_layout.V_TERMS] = -1
        if one.steps is not None:
            row[audit_layout.V_FLOAT32] = one.steps.name == "float32"
            row[audit_layout.V_FACTOR : audit_layout.V_BEYOND + 1] = one.steps.rule
            row[audit_layout.V_FLOOR : audit_layout.V_TOP + 1] = round_to(bounds, one.steps.rule)
    table[REFERENCE, audit_layout.V_TERMS] = 0
    return table
