"""The tables of a comparison: where the difference is, and what corrections would do."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ppocli.core.drift_causes import Heavy
from ppocli.core.drift_partials import (
    FIRST_BIN,
    HIGHEST_OCTAVE,
    LOWEST_OCTAVE,
    OCTAVE_BINS,
    POSITIONS,
    PROBABILITIES,
)
from ppocli.core.drift_report import Bar, Correction, Part, SequencePart
from ppocli.core.report import Place
from ppocli.engine.pair_metrics import PairSummary, mean_of, sum_of
from ppocli.engine.pair_quantiles import sizes_of
from ppocli.engine.pair_totals import LISTED, class_table
from ppocli.kernels import drift_sequence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ppocli.core.rollout_rules import WeightRule
    from ppocli.engine.pair_totals import Floats, PairTotals, Sums


def _finite(value: float) -> float | None:
    """Return a number, or None where it is not one."""
    return float(value) + 0.0 if math.isfinite(value) else None


def by_position(totals: PairTotals) -> tuple[Part, ...]:
    """Return the classes of positions that hold a token."""
    if not totals.has_sequences or totals.no_sequences:
        return ()
    out = []
    for k, row in enumerate(totals.classes):
        if row[0]:
            high = POSITIONS[k + 1] - 1 if k + 1 < len(POSITIONS) else None
            out.append(_part(row, low=POSITIONS[k], high=high))
    return tuple(out)


def by_step(totals: PairTotals, names: Mapping[int, str]) -> tuple[Part, ...]:
    """Return one part for each step, in order: text after numbers, the tokens without a step last."""
    steps = sorted(totals.steps, key=lambda one: (one in names, names.get(one, ""), one))
    parts = [_part(totals.steps[one], step=names.get(one, one)) for one in steps]
    return tuple([*parts, _part(totals.without_step)] if totals.without_step[0] else parts)


def _part(
    row: Floats, low: int | None = None, high: int | None = None, step: int | str | None = None
) -> Part:
    n = int(row[0])
    mean, size, k3 = (row[1] + row[2]) / n, row[3] / n, row[4] / n
    return Part(n, _finite(mean), _finite(size), low, high, _finite(k3), step)


def by_probability(totals: PairTotals) -> tuple[Part, ...]:
    """Return the classes of tokens by exp(b), from confident to rare."""
    bounds = (None, *PROBABILITIES, 0.0)
    out = []
    for k, (n, diff, size) in enumerate(class_table(totals)):
        if n:
            out.append(Part(int(n), _finite(diff / n), _finite(size / n), bounds[k + 1], bounds[k]))
    return tuple(out)


def histogram(totals: PairTotals) -> tuple[Bar, ...]:
    """Return |diff| by octave, from the first to the last that holds a token; smaller ones together."""
    sizes = sizes_of(totals.bins)
    octaves = sizes[FIRST_BIN:-1].reshape(HIGHEST_OCTAVE - LOWEST_OCTAVE, OCTAVE_BINS).sum(axis=1)
    edges = [math.ldexp(1.0, LOWEST_OCTAVE + k) for k in range(len(octaves) + 1)]
    bars = [Bar(0.0, edges[0], int(sizes[0]))]
    bars += [Bar(edges[k], edges[k + 1], int(n)) for k, n in enumerate(octaves)]
    bars.append(Bar(edges[-1], None, int(sizes[-1])))
    filled = [k for k, bar in enumerate(bars) if bar.n]
    return tuple(bars[filled[0] : filled[-1] + 1]) if filled else ()


def top_sequences(totals: PairTotals) -> tuple[SequencePart, ...]:
    """Return the sequences with the largest sums of |diff|."""
    whole = float(totals.classes[:, 3].sum())
    if totals.no_sequences or not whole > 0.0:
        return ()
    return tuple(
        SequencePart(
            Place(one.path, one.row), one.n, one.diff / one.n, one.diff_abs / one.n, one.k3 / one.n,
            one.diff_abs / whole,
        )
        for one in totals.top[:LISTED]
        if one.diff_abs > 0.0 and math.isfinite(one.k3)
    )  # fmt: skip


def heavy_sequences(totals: PairTotals, paths: tuple[str, ...], share: float) -> Heavy | None:
    """Return how much the heaviest sequences hold, as many as `share` of all of them."""
    whole, n_tokens = float(totals.classes[:, 3].sum()), float(totals.classes[:, 0].sum())
    if not totals.has_sequences or totals.no_sequences or not whole > 0.0:
        return None
    n_top = min(max(1, int(share * totals.n_sequences)), len(totals.top))
    top = totals.top[:n_top]
    files = {path: index for index, path in enumerate(paths)}
    keys = frozenset((files[one.path], one.key) for one in top if one.path in files)
    return Heavy(
        totals.n_sequences,
        n_top,
        sum(one.diff_abs for one in top) / whole,
        sum(one.n for one in top) / n_tokens,
        keys,
    )


def corrections(s: PairSummary) -> tuple[Correction, ...]:
    """Return what each rule would do; those at levels of sequences where there are sequences."""
    out = []
    n_token = n_sequence = 0
    for rule in s.plan.rules:
        if rule.level == "token":
            out.append(_token_rule(s, rule, n_token))
            n_token += 1
        else:
            if s.totals.has_sequences and not s.totals.no_sequences:
                out.append(_sequence_rule(s, rule, n_sequence))
            n_sequence += 1
    # Twice the same where a cap that was given is one of the usual ones.
    seen: dict[tuple[object, ...], Correction] = {}
    for one in out:
        seen.setdefault((one.level, one.mode, one.low, one.cap), one)
    return tuple(seen.values())


def _token_rule(s: PairSummary, rule: WeightRule, at: int) -> Correction:
    sums = s.totals.by_rule
    loss, change = _losses(s, sum_of(s.totals.losses, 2 + at)) if s.plan.loss else (None, None)
    return Correction(
        rule.level, rule.mode, rule.low, rule.cap,
        _finite(sum_of(sums, 3 * at + 2) / s.n) if s.n else None, None,
        _finite(mean_of(sums, 3 * at, s.n)), _ess(sums, 3 * at, s.n), loss, change,
    )  # fmt: skip


def _sequence_rule(s: PairSummary, rule: WeightRule, at: int) -> Correction:
    sums = s.totals.sequences
    first = len(drift_sequence.SEQUENCE_SUMS) + len(drift_sequence.RULE_SUMS) * at
    n, n_sequences = int(s.totals.classes[:, 0].sum()), int(sums.hi[0])
    loss, change = _losses(s, sum_of(sums, first + 4)) if s.plan.loss else (None, None)
    return Correction(
        rule.level, rule.mode, rule.low, rule.cap,
        _finite(sum_of(sums, first + 2) / n) if n else None,
        _finite(sum_of(sums, first + 3) / n_sequences) if n_sequences else None,
        _finite(mean_of(sums, first, n)), _ess(sums, first, n), loss, change,
    )  # fmt: skip


def _losses(s: PairSummary, weighted: float) -> tuple[float | None, float | None]:
    """Return the mean loss under a rule, and what it changes."""
    n = int(s.totals.losses.hi[0])
    if not n:
        return None, None
    plain, mean = sum_of(s.totals.losses, 1) / n, weighted / n
    return _finite(mean), _finite(mean - plain)


def _ess(sums: Sums, first: int, n: int) -> float | None:
    """Return (sum w)^2 / (n sum w^2)."""
    one, two = sum_of(sums, first), sum_of(sums, first + 1)
    return _finite(one * (one / two) / n) if n and two > 0.0 and np.isfinite(two) else None
