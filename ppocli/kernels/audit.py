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

from ppocli.kernels._jit import inline, jit, parallel
from ppocli.kernels.audit_layout import (
    COUNTS,
    DUMPED,
    EXACT,
    EXTREMES,
    F_BEYOND,
    F_FACTOR,
    F_KIND,
    F_LIMIT,
    F_POWER,
    F_SCALE_ADV,
    F_SCALE_NEW,
    F_SCALE_OLD,
    FLOATING,
    IN_FLOAT64,
    LANES,
    LANES_PER_VARIANT,
    LOSS_ONLY,
    LOWEST,
    N_EXTREMES,
    N_RESULTS,
    RESULTS,
    RUNS,
    SCALED,
    SIZE_HIGHEST,
    SIZE_LOWEST,
    SIZE_OFFSET,
    SIZE_SHIFT,
    SUMS,
    V_BEYOND,
    V_BOTTOM,
    V_CEILING,
    V_CLAMP,
    V_DELTA,
    V_DUAL,
    V_FACTOR,
    V_FLOAT32,
    V_FLOOR,
    V_FORMAT,
    V_KIND,
    V_LIMIT,
    V_POWER,
    V_TERMS,
    V_TOP,
    AuditWorkspace,
    extreme_lane,
    result_lane,
    row,
)
from ppocli.kernels.blocks import flags_of, stop_of, stored
from ppocli.kernels.layout import BLOCK, P_SCALE, P_SHIFT, RUN, WIDTH, Bytes, Floats, Ints, Places
from ppocli.kernels.load import read
from ppocli.kernels.loops import ADV as ADV_COLUMN
from ppocli.kernels.loops import NEW as NEW_COLUMN
from ppocli.kernels.loops import OLD as OLD_COLUMN
from ppocli.kernels.math import NEAR, exp, exp_and_expm1_minus_x, exp_and_expm1_minus_x_near_0
from ppocli.kernels.memory import (
    add_to,
    count_places,
    count_to,
    load,
    load_flags,
    load_float32,
    lower_to,
    raise_to,
    row_address,
    store,
    store_low16,
)
from ppocli.kernels.rounding import Rule, rounded, rounded_step, scaled
from ppocli.kernels.vector import (
    Flags,
    Vector,
    any_of,
    bits,
    broadcast,
    fma,
    greatest,
    highest,
    least,
    lowest,
    narrowed,
    number_of,
    total,
    where,
    without,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats32 = NDArray[np.float32]

NEW, OLD, ADV, USED, ON = (
    row(name) for name in ("log_probs", "old_log_probs", "advantages", "used_advantages", "counts")
)
LOG_RATIO, RATIO, LOSS, GRADIENT, SIDE = (
    row(name) for name in ("log_ratio", "ratio", "loss", "gradient", "side")
)
INVERSE = row("inverse")
NEW_F, OLD_F, USED_F = (row(f"{name} stored") for name in ("log_probs", "old_log_probs", "used_advantages"))
LOG_RATIO_V, RATIO_V, LOSS_V, GRADIENT_V, SIDE_V, K2_V, K3_V = (
    row(f"{name} audited") for name in ("log_ratio", "ratio", "loss", "gradient", "side", "kl_k2", "kl_k3")
)
DUMPED_ROWS = np.array([row(name) for name in DUMPED])
N_LANES = len(RESULTS)
N_LOWEST = len(LOWEST)
SMALLEST, LARGEST = 2.0**SIZE_LOWEST, np.nextafter(2.0**SIZE_HIGHEST, 0.0)
OFFSET, SHIFT = np.uint64(SIZE_OFFSET), np.uint64(SIZE_SHIFT)

(
    A_LOSS, A_LOSS_FLOAT32, A_LOSS_ABS, A_LOG_RATIO, A_K2, A_K3, A_RATIO, A_RATIO_SQ, A_GRADIENT,
    A_GRADIENT_ERROR,
) = (result_lane(name) for name in SUMS)  # fmt: skip
(
    A_BELOW, A_ABOVE, A_ACTIVE, A_ON, A_OFF, A_OVERFLOW, A_UNDERFLOW, A_ZERO, A_TO_ZERO, A_VANISHED,
    A_APPEARED, A_REVERSED,
) = (result_lane(name) for name in COUNTS)  # fmt: skip
X_RATIO_LOW, X_RATIO_HIGH, X_RATIO_ERROR, X_LOG_RATIO_ERROR, X_FLIP = (
    extreme_lane(name) for name in EXTREMES
)


# ------------------------------------------------------------------------------------------- tokens


@inline
def _load_run(
    addresses: Ints, doubles: int, tails: int, whole: int, start: int, n: int, live: int, p: Floats, s: int
) -> int:
    """Load the columns of a run, 0 where a token does not count, and the advantages as they are used."""
    counted = 0
    new_at, old_at, adv_at = addresses[NEW_COLUMN], addresses[OLD_COLUMN], addresses[ADV_COLUMN]
    new_double, old_double = doubles >> NEW_COLUMN & 1, doubles >> OLD_COLUMN & 1
    adv_double = doubles >> ADV_COLUMN & 1
    shift, scale = p[P_SHIFT], p[P_SCALE]
    for i in range(0, n, WIDTH):
        new = read(new_at, new_double, start + i, whole, tails, NEW_COLUMN)
        old = read(old_at, old_double, start + i, whole, tails, OLD_COLUMN)
        adv = read(adv_at, adv_double, start + i, whole, tails, ADV_COLUMN)
        on = load_flags(live, i) & (abs(new) < np.inf) & (abs(old) < np.inf) & (abs(adv) < np.inf)
        store(s, NEW + i, where(on, new, 0.0))
        store(s, OLD + i, where(on, old, 0.0))
        store(s, ADV + i, where(on, adv, 0.0))
        store(s, USED + i, where(on, (adv - shift) / scale, 0.0))
        store(s, ON + i, where(on, 1.0, broadcast(0.0)))
        counted += number_of(on)
    return counted


@inline
def _count_inexact(s: int, n: int, column: int, rule: Rule) -> int:
    """Return how many values of a row are not numbers of a format."""
    found = 0
    for i in range(0, n, WIDTH):
        x = load(s, column + i)
        y = rounded(x, rule)
        found += number_of((x < y) | (y < x))
    return found


@inline
def _keep_sizes(s: int, n: int, of_new: int, of_log_ratio: int, at: int) -> None:
    """Keep the bins of |log_prob| and |log_ratio| of a run."""
    for i in range(0, n, WIDTH):
        size = least(LARGEST, greatest(SMALLEST, abs(load(s, NEW + i))))
        store_low16(of_new, at + i, (bits(size) >> SHIFT) - OFFSET)
        size = least(LARGEST, greatest(SMALLEST, abs(load(s, LOG_RATIO + i))))
        store_low16(of_log_ratio, at + i, (bits(size) >> SHIFT) - OFFSET)


# ------------------------------------------------------------------------------------------- storage


@inline
def _store_column(
    s: int, n: int, source: int, target: int, kind: int, rule: Rule, scale: float, scales: int, start: int
) -> None:
    """Write what a storage format leaves of a row."""
    for i in range(0, n, WIDTH):
        x = load(s, source + i)
        if kind == EXACT:
            y = x
        elif kind == FLOATING:
            y = rounded(x, rule)
        elif kind == SCALED:
            y = scaled(x, broadcast(scale))
        else:
            y = scaled(x, load_float32(scales, start + i))
        store(s, target + i, y)


@inline
def _store_run(
    s: int, n: int, start: int, one: Floats, scales: Ints, with_advantages: int, p: Floats
) -> None:
    """Write what a storage format leaves of the columns of a run."""
    kind = int(one[F_KIND])
    rule = (one[F_FACTOR], one[F_POWER], one[F_LIMIT], one[F_BEYOND])
    for c in range(2 + with_advantages):
        source = NEW if c == 0 else OLD if c == 1 else ADV
        target = NEW_F if c == 0 else OLD_F if c == 1 else USED_F
        scale = one[F_SCALE_NEW] if c == 0 else one[F_SCALE_OLD] if c == 1 else one[F_SCALE_ADV]
        _store_column(s, n, source, target, kind, rule, scale, scales[c], start)
    shift, divisor = p[P_SHIFT], p[P_SCALE]
    for i in range(0, n, WIDTH):
        used = load(s, USED + i)
        if with_advantages:
            on = load(s, ON + i) > 0.0
            used = where(on, (load(s, USED_F + i) - shift) / divisor, 0.0)
        store(s, USED_F + i, used)


# ------------------------------------------------------------------------------------------- losses


SHORT = 0.98 * NEAR
"""Up to here a log-ratio, rounded to a format of arithmetic, stays below `NEAR`: a step is at most 2^-7."""


@inline
def _is_near(s: int, n: int) -> bool:
    """Whether all log-ratios of the stored columns are so small that their exp is short."""
    far = broadcast(0.0)
    for i in range(0, n, WIDTH):
        x = abs(load(s, NEW_F + i) - load(s, OLD_F + i))
        far = where(x < SHORT, far, 1.0)  # NaN is far
    return not any_of(far > 0.0)


@inline
def _clamped(x: Vector, ratio: Vector, clamp: float, bottom: float, top: float) -> Vector:
    """Return the ratio at the clamped log-ratio."""
    return where(x > clamp, top, where(x < -clamp, bottom, ratio))


@inline
def _put(
    s: int, i: int, x: Vector, ratio: Vector, loss: Vector, gradient: Vector, low: Flags, high: Flags
) -> None:
    """Write what was found for eight tokens."""
    store(s, LOG_RATIO_V + i, x)
    store(s, RATIO_V + i, ratio)
    store(s, LOSS_V + i, loss)
    store(s, GRADIENT_V + i, gradient)
    store(s, SIDE_V + i, where(high, 1.0, where(low, -1.0, broadcast(0.0))))


@inline
def _in_float64(s: int, n: int, near: bool, v: Floats) -> None:
    """Losses of the stored columns, no step rounded but to float64; the formulas are those of `policy`.

    `least` and `greatest` have the ratio last, so that a NaN stays one.
    """
    floor, ceiling, dual, delta = v[V_FLOOR], v[V_CEILING], v[V_DUAL], v[V_DELTA]
    clamp, bottom, top = v[V_CLAMP], v[V_BOTTOM], v[V_TOP]
    for i in range(0, n, WIDTH):
        x = load(s, NEW_F + i) - load(s, OLD_F + i)
        if near:
            raw, k3 = exp_and_expm1_minus_x_near_0(x)
        else:
            raw, k3 = exp_and_expm1_minus_x(x)
        ratio, cost = _clamped(x, raw, clamp, bottom, top), -load(s, USED_F + i)
        low, high = (ratio < floor) & (cost > 0.0), (ratio > ceiling) & (cost < 0.0)
        free, held = ratio * cost, least(delta, ratio)
        clipped = least(ceiling, greatest(floor, ratio)) * cost
        surrogate, bound = greatest(clipped, held * cost), dual * cost
        by_dual = (cost > 0.0) & (bound < surrogate)
        by_delta = (cost > 0.0) & (ratio > delta)
        flat = low | high | by_dual | by_delta | (abs(x) > clamp)
        some = abs(cost) > 0.0
        loss = where(some, where(by_dual, bound, surrogate), 0.0)
        _put(s, i, x, ratio, loss, where(without(some, flat), free, 0.0), low, high)
        store(s, K2_V + i, 0.5 * x * x)
        store(s, K3_V + i, k3)


@jit
def _step(x: Vector, is_float32: bool, rule: Rule) -> Vector:
    """Round the result of one step."""
    return narrowed(x) if is_float32 else rounded_step(x, rule[0], rule[1], rule[2])


@inline
def _in_format(s: int, n: int, near: bool, v: Floats) -> None:
    """Losses of the stored columns, each step rounded to the format of the arithmetic.

    Nothing is selected: 0 times infinity is NaN, as it is in a trainer. The clipped branch is active where
    its product is strictly the worse one, which after rounding is not the same as a ratio outside.
    """
    rule = (v[V_FACTOR], v[V_POWER], v[V_LIMIT], v[V_BEYOND])
    narrow, whole_set = v[V_FLOAT32] > 0.0, v[V_KIND] != LOSS_ONLY
    floor, ceiling, dual, delta = v[V_FLOOR], v[V_CEILING], v[V_DUAL], v[V_DELTA]
    clamp, bottom, top = v[V_CLAMP], v[V_BOTTOM], v[V_TOP]
    with_delta, with_dual = delta < np.inf, dual < np.inf
    for i in range(0, n, WIDTH):
        x = _step(load(s, NEW_F + i) - load(s, OLD_F + i), narrow, rule)
        power = exp_and_expm1_minus_x_near_0(x)[0] if near else exp(x)
        raw = _step(power, narrow, rule)
        ratio, cost = _clamped(x, raw, clamp, bottom, top), -_step(load(s, USED_F + i), narrow, rule)
        free = _step(ratio * cost, narrow, rule)
        clipped = _step(least(ceiling, greatest(floor, ratio)) * cost, narrow, rule)
        held = free
        flat = abs(x) > clamp
        if with_delta:
            held = _step(least(delta, ratio) * cost, narrow, rule)
            flat = flat | ((cost > 0.0) & (ratio > delta))
        active = clipped > held
        loss = greatest(clipped, held)
        if with_dual:
            bound = _step(dual * cost, narrow, rule)
            by_dual = (cost > 0.0) & (bound < loss)
            loss = where(by_dual, bound, loss)
            flat = flat | by_dual
        high = active & (ratio > ceiling)
        _put(s, i, x, ratio, loss, where(active | flat, 0.0, free), without(active, high), high)
        if whole_set:
            store(s, K2_V + i, 0.5 * _step(x * x, narrow, rule))
            # Near 1 the difference is a number of the format, as the ratio is (Sterbenz).
            above = raw - 1.0 if near else _step(raw - 1.0, narrow, rule)
            store(s, K3_V + i, _step(above - x, narrow, rule))


@inline
def _as_reference(s: int, n: int) -> None:
    """Keep what was found as the reference."""
    for i in range(0, n, WIDTH):
        for k in range(5):
            store(s, LOG_RATIO + k * RUN + i, load(s, LOG_RATIO_V + k * RUN + i))
        store(s, INVERSE + i, 1.0 / load(s, RATIO_V + i))


# ------------------------------------------------------------------------------------------- results


@inline
def _add_losses(s: int, lanes: int, n: int) -> float:
    """Add the losses of a run and the clip decisions that flipped; return the sum in float32.

    That sum has eight lanes, folded in float64 and rounded.
    """
    losses = rounded_losses = narrow = broadcast(0.0)
    worst = broadcast(-1.0)
    n_on = n_off = 0
    for i in range(0, n, WIDTH):
        loss = load(s, LOSS_V + i)
        losses += loss
        term = narrowed(loss)
        rounded_losses += term
        narrow = narrowed(narrow + term)
        was, now = abs(load(s, SIDE + i)) > 0.0, abs(load(s, SIDE_V + i)) > 0.0
        on, off = without(now, was), without(was, now)
        n_on, n_off = n_on + number_of(on), n_off + number_of(off)
        worst = greatest(where(on | off, abs(load(s, RATIO_V + i) - load(s, RATIO + i)), -1.0), worst)
    add_to(s, lanes + A_LOSS, losses)
    add_to(s, lanes + A_LOSS_FLOAT32, rounded_losses)
    raise_to(s, lanes + X_FLIP, worst)
    count_to(s, lanes + A_ON, n_on)
    count_to(s, lanes + A_OFF, n_off)
    return narrowed(total(narrow))


@inline
def _add_terms(s: int, lanes: int, n: int, floor: float, ceiling: float) -> None:
    """Add everything else about a run: KL terms, ratios, gradients, and what became of them."""
    k1 = k2 = k3 = ratios = squares = sizes = slopes = slope_errors = errors = shifts = broadcast(0.0)
    lows, highs = broadcast(np.inf), broadcast(-np.inf)
    n_below = n_above = n_active = n_over = n_under = n_zero = n_to_zero = 0
    n_vanished = n_appeared = n_reversed = 0
    for i in range(0, n, WIDTH):
        on = load(s, ON + i) > 0.0
        x, ratio = load(s, LOG_RATIO_V + i), load(s, RATIO_V + i)
        k1 += x
        k2 += load(s, K2_V + i)
        k3 += load(s, K3_V + i)
        sizes += abs(load(s, LOSS_V + i))
        ratios = where(on, ratios + ratio, ratios)
        squares = where(on, fma(ratio, ratio, squares), squares)
        lows, highs = least(where(on, ratio, np.inf), lows), greatest(where(on, ratio, -np.inf), highs)
        was, was_x = load(s, RATIO + i), load(s, LOG_RATIO + i)
        errors = greatest(abs(ratio - was) * load(s, INVERSE + i), errors)
        shifts = greatest(abs(x - was_x), shifts)
        n_below, n_above = n_below + number_of(ratio < floor), n_above + number_of(ratio > ceiling)
        n_over += number_of(without(was < np.inf, abs(ratio) < np.inf))
        n_under += number_of((ratio == 0.0) & (was > 0.0))
        zero = on & (x == 0.0)
        n_zero, n_to_zero = n_zero + number_of(zero), n_to_zero + number_of(zero & (abs(was_x) > 0.0))
        n_active += number_of(abs(load(s, SIDE_V + i)) > 0.0)
        slope, old_slope = load(s, GRADIENT_V + i), load(s, GRADIENT + i)
        slopes += abs(slope)
        slope_errors += abs(slope - old_slope)
        there, remains = abs(old_slope) > 0.0, abs(slope) > 0.0
        n_vanished += number_of(there & (slope == 0.0))
        n_appeared += number_of(without(remains, there))
        n_reversed += number_of(slope * old_slope < 0.0)
    add_to(s, lanes + A_LOSS_ABS, sizes)
    add_to(s, lanes + A_LOG_RATIO, k1)
    add_to(s, lanes + A_K2, k2)
    add_to(s, lanes + A_K3, k3)
    add_to(s, lanes + A_RATIO, ratios)
    add_to(s, lanes + A_RATIO_SQ, squares)
    add_to(s, lanes + A_GRADIENT, slopes)
    add_to(s, lanes + A_GRADIENT_ERROR, slope_errors)
    lower_to(s, lanes + X_RATIO_LOW, lows)
    raise_to(s, lanes + X_RATIO_HIGH, highs)
    raise_to(s, lanes + X_RATIO_ERROR, errors)
    raise_to(s, lanes + X_LOG_RATIO_ERROR, shifts)
    count_to(s, lanes + A_BELOW, n_below)
    count_to(s, lanes + A_ABOVE, n_above)
    count_to(s, lanes + A_ACTIVE, n_active)
    count_to(s, lanes + A_OVERFLOW, n_over)
    count_to(s, lanes + A_UNDERFLOW, n_under)
    count_to(s, lanes + A_ZERO, n_zero)
    count_to(s, lanes + A_TO_ZERO, n_to_zero)
    count_to(s, lanes + A_VANISHED, n_vanished)
    count_to(s, lanes + A_APPEARED, n_appeared)
    count_to(s, lanes + A_REVERSED, n_reversed)


@inline
def _begin(s: int, n_variants: int) -> None:
    """Clear the lanes of all variants."""
    for v in range(n_variants):
        lanes = LANES + v * LANES_PER_VARIANT
        for q in range(N_LANES + N_EXTREMES):
            low = q >= N_LANES and q < N_LANES + N_LOWEST
            store(s, lanes + q * WIDTH, np.inf if low else -np.inf if q >= N_LANES else 0.0)


@inline
def _finish(s: int, b: int, n_variants: int, results: Floats, extremes: Floats) -> None:
    """Fold the lanes into the rows of block b."""
    for v in range(n_variants):
        lanes = LANES + v * LANES_PER_VARIANT
        for q in range(N_LANES):
            results[b, v * N_RESULTS + q] = total(load(s, lanes + q * WIDTH))
        for e in range(N_EXTREMES):
            x = load(s, lanes + (N_LANES + e) * WIDTH)
            extremes[b, v * N_EXTREMES + e] = lowest(x) if e < N_LOWEST else highest(x)


@inline
def _give_terms(s: int, n: int, terms: int, at: int) -> None:
    """Write the losses of a run, NaN where a token does not count."""
    for i in range(0, n, WIDTH):
        store(terms, at + i, where(load(s, ON + i) > 0.0, load(s, LOSS_V + i), np.nan))


@inline
def _give_rows(s: int, n: int, dump: Floats, first: int, at: int) -> None:
    """Write what was found for the tokens of a run."""
    for d in range(DUMPED_ROWS.size):
        for i in range(0, n, WIDTH):
            store(row_address(dump, first + d), at + i, load(s, DUMPED_ROWS[d] + i))


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
    whole, n_variants = n_tokens & -WIDTH, variants.shape[0]
    for k in range(worker * wanted.size // n_workers, (worker + 1) * wanted.size // n_workers):
        b, at, counted = wanted[k], 0, 0
        _begin(s, n_variants)
        for run in range(b * BLOCK, stop_of(b * BLOCK, BLOCK, n_tokens), RUN):
            n = stop_of(run, RUN, n_tokens) - run
            live = flags_of(mask, run, n, ones)
            counted += _load_run(addresses, doubles, tail, whole, run, n, live, p, s)
            for c in range(checked.size):
                if checked[c]:
                    rule = (check_rules[c, 0], check_rules[c, 1], check_rules[c, 2], check_rules[c, 3])
                    inexact[b, c] += _count_inexact(s, n, NEW if c & 1 == 0 else OLD, rule)
            held, near = -1, False
            for v in range(n_variants):
                lanes, one = LANES + v * LANES_PER_VARIANT, variants[v]
                if int(one[V_FORMAT]) != held:
                    held = int(one[V_FORMAT])
                    _store_run(s, n, run, formats[held], scales, with_advantages, p)
                    near = _is_near(s, n)
                if one[V_KIND] == IN_FLOAT64:
                    _in_float64(s, n, near, one)
                else:
                    _in_format(s, n, near, one)
                if v == 0:
                    _as_reference(s, n)
                runs[b * RUNS + (run - b * BLOCK) // RUN, v] = _add_losses(s, lanes, n)
                if one[V_KIND] != LOSS_ONLY:
                    _add_terms(s, lanes, n, one[V_FLOOR], one[V_CEILING])
                if one[V_TERMS] >= 0.0:
                    _give_terms(s, n, row_address(terms, int(one[V_TERMS])), run)
                if dump.shape[0] > 0:
                    _give_rows(s, n, dump, v * DUMPED_ROWS.size, run - b * BLOCK)
            _keep_sizes(s, n, of_new, of_log_ratio, at)
            at += (n + WIDTH - 1) & -WIDTH
        counts[b] = counted
        _finish(s, b, n_variants, results, extremes)
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
    terms : (n_term_rows, n_tokens in whole runs) float64
        Losses, NaN where a token does not count.
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
    def room(cls, n_tokens: int, n_variants: int, n_checks: int, n_terms: int, *, dump: bool) -> Audited:
        """Return arrays for the results of a span."""
        n = -(-n_tokens // BLOCK)
        return cls(
            counts=np.zeros(n, dtype=np.int64),
            results=np.zeros((n, n_variants * N_RESULTS)),
            extremes=np.zeros((n, n_variants * N_EXTREMES)),
            runs=np.zeros((n * RUNS, n_variants)),
            inexact=np.zeros((n, n_checks), dtype=np.int64),
            terms=np.full((n_terms, n * BLOCK), np.nan),
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
