"""Which rules a run hits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppocli.core.partials import COLUMNS
from ppocli.core.rules import RULES
from ppocli.engine.data_findings import find_data, plural
from ppocli.engine.objective_findings import find_objective
from ppocli.engine.summary import KINDS, Summary
from ppocli.engine.suspects import MASKED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ppocli.core.report import Finding, InputReport, Severity
    from ppocli.core.spec import LossSpec
    from ppocli.engine.repeats import RepeatedIds
    from ppocli.engine.totals import Totals

RATIO = ("log_probs", "old_log_probs")


def find(
    totals: Totals,
    spec: LossSpec,
    inputs: Sequence[InputReport],
    repeats: RepeatedIds,
    rollout_kl: float | None = None,
) -> tuple[Finding, ...]:
    """Return what the rules find in the totals of a run, errors first; see `find_objective`."""
    s = Summary(totals, spec)
    found = [
        *_missing_values(totals),
        *_overflow(s),
        *_bounds(s),
        *_empty_files(inputs),
        *_masked_sequences(totals),
        *find_data(s, inputs, repeats),
        *find_objective(s, rollout_kl),
    ]
    rank = {"error": 0, "warning": 1, "info": 2}
    return tuple(sorted(found, key=lambda one: (rank[one.severity], one.code)))


def _missing_values(totals: Totals) -> Iterator[Finding]:
    """PPO101, one finding for each column."""
    for c, role in enumerate(COLUMNS):
        counts = totals.column_counts[c]
        if counts.any():
            what = ", ".join(f"{int(n):,} {kind}" for n, kind in zip(counts, KINDS, strict=True) if n)
            message = f"{role} at valid tokens: {what}; metrics that need them are null"
            yield RULES["PPO101"].found(int(counts.sum()), message, totals.first_bad.get(role))


def _overflow(s: Summary) -> Iterator[Finding]:
    """PPO102, for the formats that trainers compute ratios in."""
    if not s.has(RATIO):
        return
    counts = {
        name: int(s.total(f"overflow_{name}")) for name in ("float64", "float32", "bfloat16", "float16")
    }
    if counts["float16"]:
        parts = [f"{n:,} in {name}" for name, n in counts.items() if n]
        message = f"exp(log_ratio) overflows for {', '.join(parts)}"
        severity: Severity = "error" if counts["float64"] else "warning"
        yield RULES["PPO102"].found(counts["float16"], message, s.place("log_ratio", 1), severity)


def _bounds(s: Summary) -> Iterator[Finding]:
    """PPO103 and PPO104."""
    if not s.has(RATIO):
        return
    on_bound, beyond = int(s.total("on_bound")), int(s.total("beyond_20"))
    low, high = s.extreme("log_ratio")
    where = s.place("log_ratio", 0 if -low > high else 1)
    if on_bound:
        message = (
            f"{plural(on_bound, 'log-ratio')} exactly at +-10 or +-20, the bounds at which trainers clamp"
        )
        yield RULES["PPO103"].found(on_bound, message, where if max(-low, high) in (10.0, 20.0) else None)
    if beyond:
        message = f"{plural(beyond, 'log-ratio')} beyond +-20 nats; the largest is {max(-low, high):.6g}"
        yield RULES["PPO104"].found(beyond, message, where)


def _empty_files(inputs: Sequence[InputReport]) -> Iterator[Finding]:
    """PPO401."""
    empty = [one for one in inputs if one.tokens == 0]
    if empty:
        more = f" and {len(empty) - 1:,} more" if len(empty) > 1 else ""
        what = "every token is masked" if empty[0].masked else "empty rows" if empty[0].rows else "no rows"
        yield RULES["PPO401"].found(len(empty), f"no valid token in {empty[0].path}{more} ({what})")


def _masked_sequences(totals: Totals) -> Iterator[Finding]:
    """PPO401, for sequences of files that have a valid token elsewhere."""
    masked = totals.suspects.get(MASKED)
    if masked is not None:
        every = "every token of it is masked" if masked.count == 1 else "every token of them is masked"
        place = f"{masked.where.path} row {masked.where.row}"
        message = f"{plural(masked.count, 'sequence')} without a valid token ({every}); the first in {place}"
        yield RULES["PPO401"].found(masked.count, message, masked.where)
