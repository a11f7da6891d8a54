"""The audit of a run: spans in, totals out; it watches the passes of an evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core.audit_report import AuditResult, Flip
from ppocli.core.partials import COLUMNS
from ppocli.core.precision import PRECISIONS
from ppocli.engine.audit_tables import (
    CHECKED,
    IN_FLOAT64,
    IN_FORMAT,
    LOSS_ONLY,
    REFERENCE,
    format_table,
    variant_table,
    variants_of,
)
from ppocli.engine.audit_totals import (
    N_EXTREMES,
    N_RESULTS,
    AuditPart,
    AuditTotals,
    OrderedSums,
    no_extremes,
)
from ppocli.engine.blocks import NOTHING, stored, widened_half
from ppocli.engine.scales import Scales
from ppocli.errors import InputError
from ppocli.kernels import audit_layout, layout, running
from ppocli.kernels.audit import Audited, audit_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from ppocli.core.audit_spec import AuditOptions
    from ppocli.core.chunk import Reader
    from ppocli.core.report import InputReport
    from ppocli.engine.accumulate import FileAccumulator
    from ppocli.engine.passes import Inputs
    from ppocli.engine.span import Span
    from ppocli.engine.totals import Floats, Ints, Plan

ROLES = ("log_probs", "old_log_probs", "advantages")
CHECKS = tuple((role, name) for name in CHECKED for role in ROLES[:2])
"""What may turn out to hold for a whole column; even ones are about log_probs, as in the kernel."""
BFLOAT16 = np.array(PRECISIONS["bfloat16"].rule)
BY_ID = ("flat", "packed")
"""Layouts in which ids tell sequences apart; in the others a row is a sequence."""
NO_SCALES = [np.zeros(0, dtype=np.float32)] * 3
W_FLIP = audit_layout.EXTREME["worst_flip"]


class Audit:
    """Adds the spans of a run to the totals of its variants.

    Attributes
    ----------
    variants : tuple of Variant
    totals : AuditTotals
        Of all files that were read to their end.
    ordered : OrderedSums
    scales : Scales, optional
        Of int8; known after a first pass over the data.
    scales_of : callable, optional
        Fills them, where they are found elsewhere.
    """

    def __init__(self, options: AuditOptions, n_workers: int) -> None:
        self.options = options
        self.variants = variants_of(options)
        self.formats = tuple(dict.fromkeys(one.storage for one in self.variants))
        self.same = [v for v, one in enumerate(self.variants) if one.kind == IN_FORMAT]
        if options.accumulate != "same":
            self.same = []
        n = len(self.variants)
        self.totals, self._file = AuditTotals(n, len(CHECKS)), AuditTotals(n, len(CHECKS))
        self.ordered = OrderedSums.empty(n, len(self.same))
        self.scales = self._wanted_scales()
        self.scales_of: Callable[[Scales], None] | None = None
        self.workspace = audit_layout.AuditWorkspace(n_workers, n)
        self._looking = audit_layout.AuditWorkspace(1, n)
        self._terms = np.zeros((1 + len(self.same), 0))
        self._check_rules = np.array([PRECISIONS[name].rule for _, name in CHECKS])
        self._same_rules = np.array([PRECISIONS[self.variants[v].storage].rule for v in self.same]).reshape(
            -1, 4
        )

    def _wanted_scales(self) -> Scales | None:
        """Return what a first pass has to find out, if anything."""
        kinds = {PRECISIONS[name].scale for name in self.options.formats} - {None}
        roles = ROLES if self.options.with_advantages else ROLES[:2]
        return Scales(roles, "sequence" in kinds) if kinds else None

    def prepare(self, run: Inputs, spans: Callable[[Reader, frozenset[str]], Iterator[Span]]) -> None:
        """Make the first pass that scales of int8 need; `spans` reads an input."""
        if self.scales is None:
            return
        if self.scales_of is not None:
            self.scales_of(self.scales)
            return
        roles = frozenset((*self.scales.roles, "mask"))
        for _, reader in run.readers():
            path = reader.report.path
            try:
                ids = {"sequence_id"} if reader.report.layout in BY_ID else set()
                for span in spans(reader, roles | ids):
                    self.scales.add(path, span)
            except InputError as problem:
                run.skip(path, problem)
                self.scales.forget(path)

    # ---------------------------------------------------------------------------------------- files

    def begin(self, report: InputReport, plan: Plan) -> None:
        """Begin a file."""
        self._path = report.path
        self._file = AuditTotals(len(self.variants), len(CHECKS))
        self._found = np.full(len(self.variants), -1.0)
        self._before = self.ordered.copy()
        self._parameters = plan.parameters
        self.workspace.bins[:] = 0
        table = variant_table(self.variants, self.formats, plan.parameters)
        for row, v in enumerate(self.same, start=1):
            table[v, audit_layout.V_TERMS] = row
        self._table = table
        scales = self.scales.of_columns() if self.scales else (0.0, 0.0, 0.0)
        scaled = {name: scales for name in self.options.formats if PRECISIONS[name].scale == "tensor"}
        self._formats = format_table(self.formats, scaled)

    def finish(self) -> None:
        """Add the file to the run."""
        self._file.bins += self.workspace.histograms()
        self.totals.merge(self._file)

    def part(self) -> AuditPart:
        """Return what was found in the file that was read last."""
        return AuditPart(self._file, self.ordered)

    def enter(self, part: AuditPart) -> None:
        """Add a file that was audited elsewhere, after those before it."""
        self.totals.merge(part.totals)
        self.ordered = part.ordered

    def drop(self) -> None:
        """Forget the file: it could not be read to its end."""
        self.ordered = self._before
        self._file = AuditTotals(len(self.variants), len(CHECKS))

    def result(self) -> AuditResult:
        """Return what was found."""
        from ppocli.engine.audit_summary import summarise_audit

        return summarise_audit(self)

    # ---------------------------------------------------------------------------------------- spans

    def add(self, span: Span, source: FileAccumulator) -> None:
        """Audit a span; `source` says where its tokens stand."""
        columns = [widened_half(stored(span, role)) if role in ROLES else NOTHING for role in COLUMNS]
        mask = span.arrays.get("mask", NOTHING)
        live, copied = self._live(columns)
        checked = np.array([self._open(c) for c in range(len(CHECKS))], dtype=np.int64)
        n_blocks = -(-span.n_tokens // layout.BLOCK)
        if self._terms.shape[1] < n_blocks * layout.BLOCK:
            # Kept for all spans: its pages, touched anew each time, would cost more than a format does.
            self._terms = np.zeros((1 + len(self.same), n_blocks * layout.BLOCK))
        out = Audited.room(span.n_tokens, live.size, len(CHECKS), self._terms)
        scales = self._scales_of(span)
        audit_blocks(
            self.workspace, columns, mask, span.n_tokens, np.arange(n_blocks), self._parameters,
            self._formats, scales, self.options.with_advantages, self._table[live], checked,
            self._check_rules, out,
        )  # fmt: skip
        results, extremes, runs = self._spread(out, live, copied)
        self._file.add_blocks(out.counts, results.reshape(n_blocks, -1), extremes, out.inexact)
        self._file.n_valid += span.n_tokens if not mask.size else int(np.count_nonzero(mask))
        self._keep_ranges(columns, mask)
        self._add_in_order(span.n_tokens, runs)
        self._locate_flips(span, source, columns, mask, scales, extremes)

    def _live(self, columns: list[NDArray[Any]]) -> tuple[Ints, list[int]]:
        """Return the variants to compute, and those that are the reference because nothing is rounded.

        float32 holds every value of narrower columns. Once storage alone flips decisions, the cheapest
        arithmetic for it is not looked for.
        """
        roles = ROLES if self.options.with_advantages else ROLES[:2]
        narrow = all(columns[COLUMNS.index(role)].dtype == np.float32 for role in roles)
        live, copied = [], []
        for v, one in enumerate(self.variants):
            unscaled = PRECISIONS[one.storage].scale == "sequence" if v else False
            if unscaled and (self.scales is None or self.scales.reason):
                continue
            if narrow and one.storage == "float32" and one.kind == IN_FLOAT64:
                copied.append(v)
            elif not (one.kind == LOSS_ONLY and self.flips_of_storage(one.storage)):
                live.append(v)
        return np.array(live, dtype=np.int64), copied

    def flips_of_storage(self, name: str) -> int:
        """Return how many clip decisions storage in a format has flipped so far."""
        v = next(v for v, one in enumerate(self.variants) if one.storage == name and one.kind == IN_FLOAT64)
        return sum(
            totals.count(v, flips)
            for totals in (self.totals, self._file)
            for flips in ("flips_on", "flips_off")
        )

    def _open(self, check: int) -> bool:
        """Whether all values so far were numbers of a format."""
        return not (self.totals.inexact[check] or self._file.inexact[check])

    def _scales_of(self, span: Span) -> list[NDArray[np.float32]]:
        """Return the scale of each token, if some format has one."""
        if self.scales is None or not self.scales.by_sequence:
            return NO_SCALES
        return self.scales.of_tokens(self._path, span)

    def _spread(self, out: Audited, live: Ints, copied: list[int]) -> tuple[Floats, Floats, Floats]:
        """Return results, extremes and sums of runs of all variants from those that were computed."""
        n, variants = out.counts.size, len(self.variants)
        results = np.zeros((n, variants, N_RESULTS))
        extremes = np.tile(no_extremes(variants), (n, 1, 1))
        runs = np.zeros((out.runs.shape[0], variants))
        results[:, live] = out.results.reshape(n, live.size, N_RESULTS)
        extremes[:, live] = out.extremes.reshape(n, live.size, N_EXTREMES)
        runs[:, live] = out.runs
        for v in copied:
            results[:, v], extremes[:, v], runs[:, v] = (
                results[:, REFERENCE],
                extremes[:, REFERENCE],
                runs[:, REFERENCE],
            )
        return results, extremes, runs

    def _keep_ranges(self, columns: list[NDArray[Any]], mask: NDArray[np.uint8]) -> None:
        """Keep the range of columns that may hold a narrow format: a constant one says nothing."""
        for k, role in enumerate(ROLES[:2]):
            if any(self._open(c) for c, (of, _) in enumerate(CHECKS) if of == role):
                values = columns[COLUMNS.index(role)]
                values = values[np.isfinite(values) & (mask != 0 if mask.size else True)]
                self._file.low[k] = min(self._file.low[k], values.min(initial=np.inf))
                self._file.high[k] = max(self._file.high[k], values.max(initial=-np.inf))

    def _add_in_order(self, n_tokens: int, runs: Floats) -> None:
        """Add to the sums whose order is that of the input."""
        ordered = self.ordered
        running.add_running(self._terms[0, :n_tokens], BFLOAT16, ordered.running)
        running.add_runs(runs, ordered.blocked, ordered.tree, ordered.n_runs)
        ordered.n_runs += runs.shape[0]
        if self.same:
            running.add_in_format(self._terms, n_tokens, self._same_rules, ordered.same)

    # ---------------------------------------------------------------------------------------- places

    def _locate_flips(
        self, span: Span, source: FileAccumulator, columns: list[NDArray[Any]], mask: NDArray[np.uint8],
        scales: list[NDArray[np.float32]], extremes: Floats,
    ) -> None:  # fmt: skip
        """Find the worst flips of a span that are worse than those of the file so far."""
        for v, block in self._worse_flips(extremes):
            start, stop = block * layout.BLOCK, min((block + 1) * layout.BLOCK, span.n_tokens)
            cut = [one[start:stop] if one.size else one for one in (*columns, mask)]
            chosen = np.array([REFERENCE, v])
            out = Audited.room(stop - start, 2, len(CHECKS), np.zeros((1, layout.BLOCK)), dump=True)
            table = self._table[chosen]
            table[1, audit_layout.V_TERMS] = -1
            audit_blocks(
                self._looking, cut[:-1], cut[-1], stop - start, np.arange(1), self._parameters,
                self._formats, [one[start : start + layout.BLOCK].copy() for one in scales],
                self.options.with_advantages, table, np.zeros(len(CHECKS), dtype=np.int64),
                self._check_rules, out,
            )  # fmt: skip
            rows = dict(
                zip(audit_layout.DUMPED, out.dump[len(audit_layout.DUMPED) :, : stop - start], strict=True)
            )
            self._file.flips[v] = self._flip(span, source, start, rows)

    def _worse_flips(self, extremes: Floats) -> Iterator[tuple[int, int]]:
        """Yield each variant of the two questions with a flip that is the worst so far, and its block."""
        for v, one in enumerate(self.variants):
            if v == REFERENCE or one.kind == LOSS_ONLY:
                continue
            block = int(extremes[:, v, W_FLIP].argmax())
            found = extremes[block, v, W_FLIP]
            if found > self._found[v]:
                self._found[v] = found
                yield v, block

    def _flip(self, span: Span, source: FileAccumulator, start: int, rows: dict[str, Floats]) -> Flip:
        """Return the flipped token with the largest change of its ratio; the first of equal ones."""
        was, now = rows["side"] != 0.0, rows["side audited"] != 0.0
        with np.errstate(invalid="ignore"):
            change = np.abs(rows["ratio audited"] - rows["ratio"])
        change[np.isnan(change)] = np.inf
        token = int(np.where(was != now, change, -1.0).argmax())
        ratio, reference = float(rows["ratio audited"][token]), float(rows["ratio"][token])
        return Flip(
            where=source.place(span, span.origin + start + token),
            direction="on" if now[token] else "off",
            ratio=ratio if np.isfinite(ratio) else None,
            reference_ratio=reference if np.isfinite(reference) else None,
        )
