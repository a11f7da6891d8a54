"""The kernel of the precision audit: the loss of every token in several formats beside that in float64.

A variant is a storage format and a way of rounding the steps of the loss; the first one is the reference,
which rounds nothing. Tokens with a value that is not finite in one of the three columns are left out. As in
`ppocli.kernels.ppo`, each block of stored tokens has a row of results of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.kernels._jit import parallel
from ppocli.kernels.audit_layout import (
    DUMPED,
    IN_FLOAT64,
    LANES,
    LANES_PER_VARIANT,
    N_EXTREMES,
    N_RESULTS,
    NEW,
    OLD,
    RUNS,
    USED,
    USED_F,
    V_CLAMP,
    V_FLOAT32,
    V_FORMAT,
    V_KIND,
    V_TERMS,
    AuditWorkspace,
)  # fmt: skip
from ppocli.kernels.audit_losses import TO_FLOAT32, TO_FORMAT, WITHIN, in_float64, in_format, stays_within
from ppocli.kernels.audit_rows import count_inexact, keep_sizes, load_run, store_advantages, store_log_probs
from ppocli.kernels.audit_sums import (
    DUMPED_ROWS,
    add_sizes,
    begin_variants,
    finish_variants,
    give_rows,
)  # fmt: skip
from ppocli.kernels.blocks import flags_of, stop_of, stored
from ppocli.kernels.layout import BLOCK, RUN, WIDTH, Bytes, Floats, Ints, Places
from ppocli.kernels.memory import count_places, row_address

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats32 = NDArray[np.float32]


@parallel
def _audit(
    worker: int,
    n_workers: int,
    addresses: Ints,
    doubles: int,
    mask: int,
    tails: Floats,
    edge: Bytes,
    n_tokens: int,
    wanted: Ints,
    p: Floats,
    formats: Floats,
    scales: Ints,
    with_advantages: int,
    variants: Floats,
    checked: Ints,
    check_rules: Floats,
    scratch: Floats,
    kept: Places,
    bins: Ints,
    counts: Ints,
    results: Floats,
    extremes: Floats,
    runs: Floats,
    inexact: Ints,
    terms: Floats,
    dump: Floats,
) -> None:
    """Audit one worker's share of the blocks."""
    s, tail, ones = row_address(scratch, worker), row_address(tails, 0), row_address(edge, 0)
    of_new, of_log_ratio = row_address(kept, 2 * worker), row_address(kept, 2 * worker + 1)
    whole, n_variants, keep = n_tokens & -WIDTH, variants.shape[0], dump.shape[0] > 0
    signs, used = with_advantages != 0, USED_F if with_advantages else USED
    for k in range(worker * wanted.size // n_workers, (worker + 1) * wanted.size // n_workers):
        b, at, counted = wanted[k], 0, 0
        begin_variants(s, n_variants)
        for run in range(b * BLOCK, stop_of(b * BLOCK, BLOCK, n_tokens), RUN):
            n = stop_of(run, RUN, n_tokens) - run
            live = flags_of(mask, run, n, ones)
            n_on, size, most_used = load_run(addresses, doubles, tail, whole, run, n, live, p, s)
            counted += n_on
            for c in range(checked.size):
                if checked[c]:
                    rule = (check_rules[c, 0], check_rules[c, 1], check_rules[c, 2], check_rules[c, 3])
                    inexact[b, c] += count_inexact(s, n, NEW if c & 1 == 0 else OLD, rule)
            held, again, most = -1, False, 0.0
            for v in range(n_variants):
                lanes, one = LANES + v * LANES_PER_VARIANT, variants[v]
                if int(one[V_FORMAT]) != held:
                    held = int(one[V_FORMAT])
                    again = False
                    most = store_log_probs(s, n, run, size, formats[held], scales)
                    if with_advantages:
                        most_used = store_advantages(s, n, run, formats[held], scales, p)
                place = row_address(terms, int(one[V_TERMS])) + 8 * run if one[V_TERMS] >= 0.0 else 0
                if one[V_KIND] == IN_FLOAT64:
                    total = in_float64(
                        s, lanes, n, n_on, used, most, most_used, v == 0, signs, keep, place, one
                    )
                elif one[V_FLOAT32] > 0.0:
                    total = in_format(
                        s, lanes, n, n_on, used, most, TO_FLOAT32, again, signs, keep, place, one
                    )
                elif stays_within(most, most_used, one):
                    total = in_format(s, lanes, n, n_on, used, most, WITHIN, again, signs, keep, place, one)
                else:
                    total = in_format(
                        s, lanes, n, n_on, used, most, TO_FORMAT, again, signs, keep, place, one
                    )
                if v == 0:
                    add_sizes(s, lanes, n)
                runs[b * RUNS + (run - b * BLOCK) // RUN, v] = total
                # Rows that were kept are not what the arithmetic question of the format asks for.
                again = (again or one[V_KIND] == IN_FLOAT64) and not keep and one[V_CLAMP] == np.inf
                if keep:
                    give_rows(s, n, dump, v * DUMPED_ROWS.size, run - b * BLOCK)
            keep_sizes(s, n, of_new, of_log_ratio, at)
            at += (n + WIDTH - 1) & -WIDTH
        counts[b] = counted
        finish_variants(s, b, n_variants, results, extremes)
        for h in range(2):
            place, first = row_address(kept, 2 * worker + h), row_address(bins, 2 * worker + h)
            for i in range(0, at, WIDTH):
                count_places(first, place, i)
            bins[2 * worker + h, 0] -= at - counted  # tokens that do not count stand at 0


@dataclass(slots=True, eq=False)
class Audited:
    """What the kernel writes for some blocks.

    Attributes
    ----------
    counts : (n_blocks,) int64
        Tokens that count.
    results : (n_blocks, n_variants * N_RESULTS) float64
    extremes : (n_blocks, n_variants * N_EXTREMES) float64
    runs : (n_blocks * RUNS, n_variants) float64
        Sums of the losses of each run in float32.
    inexact : (n_blocks, n_checks) int64
        Log-probs that a format does not hold exactly.
    terms : (n_term_rows, at least n_tokens in whole vectors) float64
        Losses, NaN where a token does not count; nothing is said about what stands behind the span.
    dump : (n_variants * n_dumped, BLOCK) float64, or empty
        Rows of `DUMPED` for the one block that is looked at.
    """

    counts: Ints
    results: Floats
    extremes: Floats
    runs: Floats
    inexact: Ints
    terms: Floats
    dump: Floats

    @classmethod
    def room(
        cls, n_tokens: int, n_variants: int, n_checks: int, terms: Floats, *, dump: bool = False
    ) -> Audited:
        """Return arrays for the results of a span; `terms` may be used again for the next one."""
        n = -(-n_tokens // BLOCK)
        return cls(
            counts=np.zeros(n, dtype=np.int64),
            results=np.zeros((n, n_variants * N_RESULTS)),
            extremes=np.zeros((n, n_variants * N_EXTREMES)),
            runs=np.zeros((n * RUNS, n_variants)),
            inexact=np.zeros((n, n_checks), dtype=np.int64),
            terms=terms,
            dump=np.full((n_variants * len(DUMPED) if dump else 0, BLOCK), np.nan),
        )


def audit_blocks(
    workspace: AuditWorkspace, columns: Sequence[NDArray[Any]], mask: Bytes, n_tokens: int, wanted: Ints,
    p: Floats, formats: Floats, scales: Sequence[Floats32], with_advantages: bool, variants: Floats,
    checked: Ints, check_rules: Floats, out: Audited,
) -> None:  # fmt: skip
    """Audit blocks of a span in parallel.

    Parameters
    ----------
    columns : N_COLUMNS contiguous arrays, (n_tokens,) float32 or float64
        Nulls are NaN; columns but the three main ones may be anything.
    mask : (n_tokens,) or (0,) uint8
    wanted : (n,) int64
        Blocks to look at.
    p : (N_PARAMETERS,) float64
    formats : (n_formats, len(FORMAT)) float64
    scales : three (n_tokens in whole vectors,) float32, or empty
        For int8 with a scale for each sequence: of both log-probs and the advantages, for each token.
    with_advantages : bool
        Advantages are stored in the format too, before they are normalised.
    variants : (n_variants, len(VARIANT)) float64
        Ordered by format; the first one is the reference.
    checked : (n_checks,) int64; check_rules : (n_checks, 4) float64
        Even ones look at log_probs, odd ones at old_log_probs, where not 0.
    out : Audited
        Written for the wanted blocks.
    """
    addresses = np.array([one.ctypes.data if one.size else 0 for one in scales], dtype=np.int64)
    _audit(
        workspace.workers_for(wanted.size), *stored(columns, mask, n_tokens), wanted, p, formats, addresses,
        int(with_advantages), variants, checked, check_rules, workspace.scratch, workspace.kept,
        workspace.bins, out.counts, out.results, out.extremes, out.runs, out.inexact, out.terms, out.dump,
    )  # fmt: skip
