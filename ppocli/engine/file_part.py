"""What a pass finds in one input: all that a run adds up, in the order of its inputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ppocli.core.report import InputReport
    from ppocli.engine.audit_totals import AuditPart
    from ppocli.engine.measures import MeasureTotals
    from ppocli.engine.pair_totals import PairTotals
    from ppocli.engine.totals import Ints, Totals
    from ppocli.engine.worst import WorstTokens


@dataclass(slots=True, eq=False)
class FilePart:
    """One input, evaluated by itself.

    Attributes
    ----------
    report : InputReport
        With the counts of its columns.
    totals : Totals
    measures : tuple of MeasureTotals
        One for each set of measures of the job; empty where nothing is computed beside the kernels.
    ids : (n,) int64, optional
        Sequence ids met.
    id_rows : (n,) int64, optional
        The first row of each; -1 where that is not known.
    worst : WorstTokens
    texts : mapping of role to texts
        What the codes of text ids stand for, in the order of the codes; empty where they are those of the
        run.
    drift : PairTotals, optional
        The trainer against the sampler, where it was compared in the same visit.
    drift_problem : str, optional
        Why it could not be.
    audit : AuditPart, optional
        Where it was audited elsewhere.
    """

    report: InputReport
    totals: Totals
    measures: tuple[MeasureTotals, ...]
    ids: Ints | None
    id_rows: Ints | None
    worst: WorstTokens
    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    drift: PairTotals | None = None
    drift_problem: str | None = None
    audit: AuditPart | None = None
