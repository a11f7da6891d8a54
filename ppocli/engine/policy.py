"""Losses that the kernels do not compute: every objective but plain ppo, corrections, scoped normalisation.

The terms of each token are computed with the formulas of `core`, batch by batch, and put beside the columns
of the span; `engine.policy_sums` then adds them up as the kernels add theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core.rollout_correction import Weights
from ppocli.core.tokens import NEW, OLD, ROLLOUT, Tokens
from ppocli.engine.blocks import stored_of, widened
from ppocli.engine.measures import Batch
from ppocli.engine.span import STORED
from ppocli.errors import InputError
from ppocli.kernels import layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ppocli.core.reference import ClipMasks
    from ppocli.core.report import InputReport
    from ppocli.core.spec import LossSpec
    from ppocli.engine.measures import MeasureSet, MeasureTotals, Part
    from ppocli.engine.span import Span
    from ppocli.engine.totals import Floats, Ints, Totals
    from ppocli.engine.windows import Window

    Array = NDArray[Any]
    Bools = NDArray[np.bool_]

BATCH_BLOCKS = 32
"""Blocks of a batch: 65,536 tokens, whose float64 columns stay in the second-level cache."""

LOSS, UNCLIPPED, GRADIENT, FLAGS = "policy loss", "policy unclipped", "policy gradient", "policy flags"
LOW, HIGH, ACTIVE_LOW, ACTIVE_HIGH, DUAL, DELTA, LEFT_OUT, REJECTED = (1 << bit for bit in range(8))
"""Bits of the flags. LEFT_OUT: a column of the loss is not finite. REJECTED: dropped by a rule."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be computed beside the kernels.

    Attributes
    ----------
    spec : LossSpec
    loss : bool
        The terms of the loss; False where the kernels compute them.
    scale_of : callable, optional
        Takes the arrays of a batch and returns shift and scale of each token's advantage.
    shift, scale : float
        Otherwise the loss uses (A - shift) / scale.
    before, after : MeasureSet, optional
        Measures over the tokens before rejection, and over those that are left.
    """

    spec: LossSpec
    loss: bool
    shift: float = 0.0
    scale: float = 1.0
    scale_of: Callable[[Mapping[str, Array]], tuple[Floats, Floats]] | None = None
    before: MeasureSet | None = None
    after: MeasureSet | None = None

    @property
    def sets(self) -> tuple[MeasureSet, ...]:
        """The measures asked for."""
        return tuple(one for one in (self.before, self.after) if one is not None)

    @property
    def by_sequence(self) -> bool:
        """Whether whole sequences are needed for something."""
        return (self.loss and self.spec.needs_sequences) or any(one.by_sequence for one in self.sets)


@dataclass(slots=True, eq=False)
class PolicyStage:
    """Computes a job for the spans of one file.

    Attributes
    ----------
    job : Job
    have : frozenset of str
        Columns of the file.
    threads : int
    sequences : bool
        Whether the file has sequences.
    """

    job: Job
    have: frozenset[str]
    threads: int
    sequences: bool
    totals: list[MeasureTotals] = field(init=False)
    n_rejected: int = 0

    def __post_init__(self) -> None:
        self.totals = [one.start(self.have, sequences=self.sequences) for one in self.job.sets]

    def finish(self, totals: Totals, n_empty: int = 0) -> None:
        """Close the measures of the file, and enter what was rejected into its totals.

        `n_empty`: stored sequences without a token, which no window holds.
        """
        for one, mine in zip(self.job.sets, self.totals, strict=True):
            one.count_empty(mine, n_empty)
        totals.n_rejected = self.n_rejected
        totals.n_masked -= self.n_rejected

    def through(self, spans: Iterator[Span]) -> Iterator[Span]:
        """Yield the spans again with what needs no sequences put beside their columns."""
        size = BATCH_BLOCKS * layout.BLOCK
        for span in spans:
            bounds = [(at, min(at + size, span.n_tokens)) for at in range(0, span.n_tokens, size)]
            views = [{name: values[a:b] for name, values in span.arrays.items()} for a, b in bounds]
            for (a, b), derived in zip(bounds, self._run(views, [None] * len(views)), strict=True):
                for name, values in derived.items():
                    span.writable(name, values.dtype)[a:b] = values
            yield span

    def of_window(self, window: Window) -> dict[str, Array]:
        """Return what needs sequences for the tokens of a window."""
        bounds = _groups(window.offsets, BATCH_BLOCKS * layout.BLOCK)
        views, offsets = [], []
        for first, last in bounds:
            a, b = int(window.offsets[first]), int(window.offsets[last])
            views.append({name: values[a:b] for name, values in window.arrays.items()})
            offsets.append(window.offsets[first : last + 1] - a)
        parts = self._run(views, offsets)
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}

    def _run(self, views: list[dict[str, Array]], offsets: Sequence[Ints | None]) -> list[dict[str, Array]]:
        """Compute batches, several at a time, and add their measures in order."""
        done = []
        with ThreadPoolExecutor(max(1, min(self.threads, len(views)))) as pool:
            for derived, parts, n_rejected in pool.map(self._batch, views, offsets):
                self.n_rejected += n_rejected
                for totals, rows in zip(self.totals, parts, strict=True):
                    for which, sums, part in rows:
                        totals.add(which, sums, part)
                done.append(derived)
        return done

    def _batch(
        self, view: dict[str, Array], offsets: Ints | None
    ) -> tuple[dict[str, Array], list[list[tuple[int, Floats, Part]]], int]:
        """Compute one batch: the arrays beside it, its measures, and how many tokens it rejects."""
        columns = {role: widened(stored_of(view, role)) for role in self._roles() if role in view}
        valid = (
            view["mask"] != 0 if "mask" in view else np.ones(next(iter(view.values())).size, dtype=np.bool_)
        )
        scoped = None if self.job.scale_of is None else self.job.scale_of(view)
        batch = Batch(columns, valid, offsets, scoped)
        job, parts = self.job, []
        here = job.loss and (offsets is not None) == job.spec.needs_sequences
        if job.before is not None:
            stored = view[STORED] != 0 if STORED in view and not here else valid
            parts.append(job.before.evaluate(replace(batch, valid=stored), self.totals[0]))
        derived: dict[str, Array] = {}
        n_rejected = 0
        if here:
            with np.errstate(all="ignore"):
                derived, weights = self._terms(batch, _missing(view, loss_roles(job.spec)))
            if job.spec.drops:
                rejected = derived[FLAGS] & REJECTED != 0
                n_rejected = int(rejected.sum())
                derived[STORED] = valid.astype(np.uint8)
                valid = valid & ~rejected
                derived["mask"] = valid.astype(np.uint8)
                batch = replace(batch, valid=valid, weights=weights)
        if job.after is not None:
            parts.append(job.after.evaluate(batch, self.totals[-1]))
        return derived, parts, n_rejected

    def _roles(self) -> frozenset[str]:
        """Return the columns that are computed with."""
        mine = loss_roles(self.job.spec) if self.job.loss else ()
        return frozenset(mine).union(*(one.roles for one in self.job.sets))

    def _terms(self, batch: Batch, missing: Bools) -> tuple[dict[str, Array], Weights | None]:
        """Return loss, gradient and flags of every stored token, 0 where it does not count; their weights.

        `missing`: where a column holds a null.
        """
        spec, columns = self.job.spec, batch.columns
        pair = [role for role in loss_roles(spec) if role != "advantages"]
        there = batch.valid & np.logical_and.reduce([np.isfinite(columns[role]) for role in pair])
        used = self._used_advantages(batch)
        finite = np.isfinite(used)
        tokens = batch.tokens(pair, there, np.where(finite, used, 0.0))
        kept, weights = _corrected(tokens, spec)
        out = _empty(batch.valid.size)
        out[FLAGS][there] = np.where(kept, 0, REJECTED)
        there = there.copy()
        there[there] = kept
        left = batch.tokens(pair, there, np.where(finite, used, 0.0)).with_weights(weights)
        _put(out, there, left, spec)
        stay = batch.valid & (out[FLAGS] & REJECTED == 0)
        wrong = stay & ~(there & finite)
        if wrong.any():
            region = np.where(there, out[FLAGS], 0)
            if spec.shares_terms and (there & ~finite).any():
                # The region is that of the log-probs; a loss is made of tokens with a finite advantage.
                both = there & finite
                _put(out, both, batch.tokens(pair, both, used).with_weights(_of(weights, both[there])), spec)
                out[FLAGS][both] = out[FLAGS][both] & ~np.uint8(LOW | HIGH) | region[both] & (LOW | HIGH)
            self._put_wrong(out, batch, wrong, stay & ~missing, used)
            out[FLAGS][wrong] = region[wrong] | LEFT_OUT
        return out, None if weights is None else _stored(weights, there)

    def _put_wrong(
        self, out: dict[str, Array], batch: Batch, wrong: Bools, present: Bools, used: Floats
    ) -> None:
        """Write what float64 arithmetic makes of tokens that miss a value: the engine counts it.

        Where tokens share a term, each of these stands for all of its sequence.
        """
        spec = replace(self.job.spec, rollout_rs=(), off_policy_threshold=None)
        pair = [role for role in loss_roles(spec) if role != "advantages"]
        own = Batch(batch.columns, batch.valid)
        if batch.offsets is None:
            _put(out, wrong, own.tokens(pair, wrong, used), spec)
            return
        lengths = np.diff(batch.offsets)
        index = np.repeat(np.arange(lengths.size), lengths)
        near = present & (np.bincount(index[wrong], minlength=lengths.size) > 0)[index]
        every = _empty(wrong.size)
        _put(every, near, batch.tokens(pair, near, used), spec)
        for name in (LOSS, GRADIENT):
            out[name][wrong] = _kind_of_each(every[name], index, lengths.size)[index[wrong]]
        out[UNCLIPPED][wrong] = every[UNCLIPPED][wrong]

    def _used_advantages(self, batch: Batch) -> Floats:
        """Return the advantages that the loss uses."""
        advantages = batch.columns["advantages"]
        if batch.scoped is not None:
            return (advantages - batch.scoped[0]) / batch.scoped[1]
        if self.job.shift == 0.0 and self.job.scale == 1.0:
            return advantages
        return (advantages - self.job.shift) / self.job.scale


def check_loss(spec: LossSpec, report: InputReport, *, has_sequences: bool) -> None:
    """Refuse a file that lacks what the loss needs.

    Raises
    ------
    InputError
    """
    what = f"objective '{spec.objective}'" if spec.objective != "ppo" else "the correction"
    missing = [role for role in loss_roles(spec) if role not in report.columns]
    if missing:
        raise InputError(
            f"no column for {', '.join(missing)}, which {what} needs",
            where=report.path,
            hint=f"name one: --col {missing[0]}=COLUMN",
        )
    if spec.needs_sequences and not has_sequences:
        raise InputError(
            f"{what} needs to know which tokens belong together",
            where=report.path,
            hint="give a column sequence_id, or store one row per sequence",
        )


def loss_roles(spec: LossSpec) -> tuple[str, ...]:
    """Return the columns that the loss needs."""
    return NEW, OLD, "advantages", *((ROLLOUT,) if spec.reads_rollout else ())


def _corrected(tokens: Tokens, spec: LossSpec) -> tuple[Bools, Weights | None]:
    """Return which tokens the rules of rejection keep, and the weights of those."""
    if spec.rollout_rs_mode != "drop":
        return np.ones(tokens.n, dtype=np.bool_), None
    kept = tokens.kept(spec)
    return kept, _of(tokens.weights(spec), kept)


def _missing(view: Mapping[str, Array], roles: Sequence[str]) -> Bools:
    """Return the tokens that hold a null in one of these columns."""
    missing = np.zeros(next(iter(view.values())).size, dtype=np.bool_)
    for role in roles:
        if f"{role} present" in view:
            missing |= view[f"{role} present"] == 0
    return missing


def _kind_of_each(values: Floats, index: Ints, n: int) -> Floats:
    """Return what the sum of each of n sequences is that is not finite: NaN, inf or -inf; else 0."""
    up, down, nan = (
        np.bincount(index[where], minlength=n) > 0
        for where in (values == np.inf, values == -np.inf, np.isnan(values))
    )
    return np.where(nan | (up & down), np.nan, np.where(up, np.inf, np.where(down, -np.inf, 0.0)))


def _of(weights: Weights | None, where: Bools) -> Weights | None:
    """Return the weights of some tokens."""
    if weights is None:
        return None
    return Weights(weights.raw[where], weights.applied[where], weights.low[where], weights.high[where])


def _empty(n: int) -> dict[str, Array]:
    """Return arrays of tokens that do not count."""
    out: dict[str, Array] = {name: np.zeros(n) for name in (LOSS, UNCLIPPED, GRADIENT)}
    out[FLAGS] = np.zeros(n, dtype=np.uint8)
    return out


def _put(out: dict[str, Array], where: Bools, tokens: Tokens, spec: LossSpec) -> None:
    """Write the terms of some tokens."""
    terms = tokens.terms(spec)
    advantages = tokens.advantages(spec)
    ratio = tokens.ratio(clamp=spec.log_ratio_clamp)
    out[LOSS][where] = terms.loss
    out[UNCLIPPED][where] = np.where(advantages == 0.0, 0.0, -ratio * advantages) + 0.0
    out[GRADIENT][where] = np.abs(terms.gradient)
    out[FLAGS][where] = _bits(terms.masks)


def _bits(masks: ClipMasks) -> NDArray[np.uint8]:
    """Return clip decisions as bits."""
    named = (
        (LOW, masks.low),
        (HIGH, masks.high),
        (ACTIVE_LOW, masks.active_low),
        (ACTIVE_HIGH, masks.active_high),
        (DUAL, masks.dual),
        (DELTA, masks.delta),
    )
    out = np.zeros(masks.low.shape, dtype=np.uint8)
    for bit, mask in named:
        out |= np.where(mask, np.uint8(bit), np.uint8(0))
    return out


def _stored(weights: Weights, where: Bools) -> Weights:
    """Return the weights of some tokens among all stored ones: NaN, and no bound, for the others."""
    raw, applied = np.full((2, where.size), np.nan)
    low, high = np.zeros((2, where.size), dtype=np.bool_)
    raw[where], applied[where] = weights.raw, weights.applied
    low[where], high[where] = weights.low, weights.high
    return Weights(raw, applied, low, high)


def _groups(offsets: Ints, size: int) -> Iterator[tuple[int, int]]:
    """Yield groups of consecutive sequences, about `size` tokens each and at least one sequence."""
    first, n = 0, offsets.size - 1
    while first < n:
        last = int(np.searchsorted(offsets, offsets[first] + size, side="right")) - 1
        last = min(max(last, first + 1), n)
        yield first, last
        first = last
