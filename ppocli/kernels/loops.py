"""The vectorised loops: each takes one run of finite tokens from scratch and adds to the block's lanes.

A lane belongs to the position of a token inside its run, and the lanes of a sum are folded by halving when
the block ends. The order of additions is therefore written down here and not left to the compiler: no
fast-math flag is needed for packed instructions, and results are the same bits on every thread and in every
build of the loop. A block's sum is 8 additions deep in a lane and 8 in the fold: its error is at most
16 * 2^-53 of the sum of |terms|.

Offsets into `s` are compile-time constants of one array: that is what lets LLVM prove that loads and stores
do not meet, without run-time checks (it gives up on loops with more than a few arrays).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppocli.kernels._jit import jit
from ppocli.kernels.layout import (
    ADV,
    ADV_USED,
    FLAT,
    HISTOGRAM_HALF,
    HISTOGRAM_PER_NAT,
    KEPT,
    LOG_RATIO,
    LOSS,
    LP,
    OLD,
    OLD_VALUE,
    RATIO,
    REF,
    REF_K3,
    RETURN,
    RUN,
    VALUE,
    VALUE_TERM,
    WORK,
    lane,
    square,
)
from ppocli.kernels.math import exp, exp_and_expm1_minus_x, expm1_minus_x

if TYPE_CHECKING:
    from ppocli.kernels.layout import Floats, Ints

A_LOG_RATIO, A_LOG_RATIO_SQ, A_K3, A_ABS = (
    lane("log_ratio"),
    lane("log_ratio_sq"),
    lane("kl_k3"),
    lane("log_ratio_abs"),
)
A_RATIO, A_RAW_RATIO, A_RAW_RATIO_SQ = lane("ratio"), lane("raw_ratio"), lane("raw_ratio_sq")
A_BELOW, A_ABOVE, A_ZERO = lane("below"), lane("above"), lane("log_ratio_zero")
A_LOSS, A_UNCLIPPED, A_GRAD, A_GRAD_ZERO = (
    lane("loss"),
    lane("unclipped"),
    lane("grad_abs"),
    lane("grad_zero"),
)
A_ACTIVE_LOW, A_ACTIVE_HIGH, A_DUAL, A_DELTA = (
    lane("active_low"),
    lane("active_high"),
    lane("dual"),
    lane("delta"),
)
A_VALUE, A_VALUE_OUTSIDE, A_VALUE_ACTIVE = lane("value"), lane("value_outside"), lane("value_active")
A_REF_K1, A_REF_K2, A_REF_K3 = lane("ref_k1"), lane("ref_k2"), lane("ref_k3")
Q_RATIO, Q_LOG_RATIO = square("ratio"), square("log_ratio")
HALF = RUN // 2


@jit()
def sum_span(x: Floats, start: int, stop: int) -> float:
    """Sum x[start:stop] in eight interleaved parts: at most (stop - start) / 8 + 10 additions deep."""
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
    whole = start + ((stop - start) & -8)
    for k in range(start, whole, 8):
        s0 += x[k]
        s1 += x[k + 1]
        s2 += x[k + 2]
        s3 += x[k + 3]
        s4 += x[k + 4]
        s5 += x[k + 5]
        s6 += x[k + 6]
        s7 += x[k + 7]
    for k in range(whole, stop):
        s0 += x[k]
    return ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))


@jit()
def fold_sum(lanes: Floats) -> float:
    """Add up the lanes of a sum by halving; the lanes are overwritten."""
    width = HALF
    while width >= 1:
        for j in range(width):
            lanes[j] += lanes[j + width]
        width >>= 1
    return float(lanes[0])


@jit()
def fold_min(lanes: Floats) -> float:
    """Return the smallest lane; the lanes are overwritten."""
    width = HALF
    while width >= 1:
        for j in range(width):
            lanes[j] = min(lanes[j], lanes[j + width])
        width >>= 1
    return float(lanes[0])


@jit()
def fold_max(lanes: Floats) -> float:
    """Return the largest lane; the lanes are overwritten."""
    width = HALF
    while width >= 1:
        for j in range(width):
            lanes[j] = max(lanes[j], lanes[j + width])
        width >>= 1
    return float(lanes[0])


@jit()
def add_plain(x: Floats, n: int, lanes: Floats) -> None:
    """Add a run to the lanes of a sum."""
    for i in range(n):
        lanes[i] += x[i]


@jit()
def add_square(x: Floats, n: int, centre: float, lanes: Floats) -> None:
    """Add (x - centre)^2 to the lanes of a second moment."""
    for i in range(n):
        lanes[i] += (x[i] - centre) * (x[i] - centre)


@jit()
def add_extremes(x: Floats, n: int, lowest: Floats, highest: Floats) -> None:
    """Keep the smallest and largest value per lane."""
    for i in range(n):
        lowest[i] = x[i] if x[i] < lowest[i] else lowest[i]
        highest[i] = x[i] if x[i] > highest[i] else highest[i]


@jit()
def count_zero(x: Floats, n: int, lanes: Floats) -> None:
    """Count exact zeros of either sign."""
    for i in range(n):
        lanes[i] += 1.0 if x[i] == 0.0 else 0.0


@jit()
def fill_ratio(s: Floats, n: int) -> None:
    """Log-ratio and ratio of a run; sums of the k3 estimate, the ratio and its square, before any clamp."""
    for i in range(n):
        log_ratio = s[LP + i] - s[OLD + i]
        ratio, k3 = exp_and_expm1_minus_x(log_ratio)
        s[LOG_RATIO + i] = log_ratio
        s[RATIO + i] = ratio
        s[A_K3 + i] += k3
        s[A_RAW_RATIO + i] += ratio
        s[A_RAW_RATIO_SQ + i] += ratio * ratio


@jit()
def clamp_ratio(s: Floats, n: int, bound: float) -> None:
    """Replace the ratio by exp(log_ratio clamped to plus or minus bound)."""
    for i in range(n):
        s[RATIO + i] = exp(min(max(s[LOG_RATIO + i], -bound), bound))


@jit()
def add_log_ratio(s: Floats, n: int, centre: float) -> None:
    """Add the log-ratio, its size and its square, its second moment, and exact zeros."""
    for i in range(n):
        log_ratio = s[LOG_RATIO + i]
        s[A_LOG_RATIO + i] += log_ratio
        s[A_LOG_RATIO_SQ + i] += log_ratio * log_ratio
        s[Q_LOG_RATIO + i] += (log_ratio - centre) * (log_ratio - centre)
        s[A_ABS + i] += abs(log_ratio)
        s[A_ZERO + i] += 1.0 if log_ratio == 0.0 else 0.0


@jit()
def add_ratio(s: Floats, n: int, floor: float, ceiling: float, centre: float) -> None:
    """Sum of the ratio, its second moment, and how many lie outside the interval."""
    for i in range(n):
        ratio = s[RATIO + i]
        s[A_RATIO + i] += ratio
        s[Q_RATIO + i] += (ratio - centre) * (ratio - centre)
        s[A_BELOW + i] += 1.0 if ratio < floor else 0.0
        s[A_ABOVE + i] += 1.0 if ratio > ceiling else 0.0


@jit()
def add_loss(s: Floats, n: int, floor: float, ceiling: float, dual: float, delta: float) -> None:
    """Loss per token and its sum, the unclipped loss, and where the dual-clip bound is chosen.

    loss = -min(min(ratio, delta) A, clip(ratio) A); where A < 0 at most -dual A; exactly 0 where A = 0.
    """
    for i in range(n):
        adv = s[ADV_USED + i]
        ratio = s[RATIO + i]
        surrogate = min(min(ratio, delta) * adv, min(max(ratio, floor), ceiling) * adv)
        bound = dual * adv if adv < 0.0 else surrogate
        by_dual = 1.0 if bound > surrogate else 0.0
        loss = 0.0 if adv == 0.0 else -max(surrogate, bound)
        s[LOSS + i] = loss
        s[FLAT + i] = by_dual
        s[A_DUAL + i] += by_dual
        s[A_LOSS + i] += loss
        s[A_UNCLIPPED + i] += 0.0 if adv == 0.0 else -(ratio * adv)


@jit()
def mark_delta(s: Floats, n: int, delta: float) -> None:
    """Count and mark tokens whose loss is flat behind delta."""
    for i in range(n):
        capped = 1.0 if (s[ADV_USED + i] < 0.0) & (s[RATIO + i] > delta) else 0.0
        s[A_DELTA + i] += capped
        s[FLAT + i] += capped


@jit()
def mark_clamped(s: Floats, n: int, clamp: float) -> None:
    """Mark tokens whose loss is flat behind the log-ratio clamp."""
    for i in range(n):
        s[FLAT + i] += 1.0 if abs(s[LOG_RATIO + i]) > clamp else 0.0


@jit()
def add_branches(s: Floats, n: int, floor: float, ceiling: float) -> None:
    """Tokens whose clipped branch is strictly chosen, and the gradient |d loss / d log_probs|.

    The gradient is ratio |A|, or 0 where the loss does not depend on log_probs: behind the clip, where A = 0,
    and at tokens marked before.
    """
    for i in range(n):
        adv = s[ADV_USED + i]
        ratio = s[RATIO + i]
        low = 1.0 if (adv < 0.0) & (ratio < floor) else 0.0
        high = 1.0 if (adv > 0.0) & (ratio > ceiling) else 0.0
        gradient = 0.0 if low + high + s[FLAT + i] > 0.0 else ratio * abs(adv)
        gradient = 0.0 if adv == 0.0 else gradient
        s[A_ACTIVE_LOW + i] += low
        s[A_ACTIVE_HIGH + i] += high
        s[A_GRAD + i] += gradient
        s[A_GRAD_ZERO + i] += 1.0 if gradient == 0.0 else 0.0


@jit()
def fill_advantages(s: Floats, n: int, shift: float, scale: float) -> None:
    """Advantages as the objective uses them: (A - shift) / scale."""
    for i in range(n):
        s[ADV_USED + i] = (s[ADV + i] - shift) / scale


@jit()
def add_value(s: Floats, n: int) -> None:
    """Squared value error."""
    for i in range(n):
        error = s[VALUE + i] - s[RETURN + i]
        s[VALUE_TERM + i] = error * error
        s[A_VALUE + i] += error * error


@jit()
def add_clipped_value(s: Floats, n: int, clip: float) -> None:
    """Add the larger of the squared value error and that of the value clipped around the old one."""
    for i in range(n):
        moved = s[VALUE + i] - s[OLD_VALUE + i]
        error = s[VALUE + i] - s[RETURN + i]
        clipped_error = s[OLD_VALUE + i] + min(max(moved, -clip), clip) - s[RETURN + i]
        plain, clipped = error * error, clipped_error * clipped_error
        term = max(plain, clipped)
        s[VALUE_TERM + i] = term
        s[A_VALUE + i] += term
        s[A_VALUE_OUTSIDE + i] += 1.0 if abs(moved) > clip else 0.0
        s[A_VALUE_ACTIVE + i] += 1.0 if clipped > plain else 0.0


@jit()
def add_reference(s: Floats, n: int) -> None:
    """Add the three estimates of KL(new || ref); k1 terms stay in the work row for their extremes."""
    for i in range(n):
        x = s[LP + i] - s[REF + i]
        k3 = expm1_minus_x(-x)
        s[A_REF_K1 + i] += x
        s[A_REF_K2 + i] += 0.5 * x * x
        s[A_REF_K3 + i] += k3
        s[REF_K3 + i] = k3
        s[WORK + i] = x


@jit()
def fill_difference(x: Floats, y: Floats, n: int, out: Floats) -> None:
    """Write x - y."""
    for i in range(n):
        out[i] = x[i] - y[i]


@jit()
def keep_log_ratios(s: Floats, n: int, at: int) -> None:
    """Keep a run's log-ratios for the histogram of the block, of which `at` tokens are kept already."""
    kept = s[KEPT + at : KEPT + at + n]
    for i in range(n):
        kept[i] = s[LOG_RATIO + i]


@jit()
def add_histogram(s: Floats, n: int, bins: Ints) -> None:
    """Count the block's log-ratios in bins 1/128 nat wide."""
    for i in range(n):
        place = s[KEPT + i] * HISTOGRAM_PER_NAT
        place = min(max(place, -HISTOGRAM_HALF - 1.0), HISTOGRAM_HALF + 1.0)
        bins[int(place + HISTOGRAM_HALF + 1.5)] += 1
