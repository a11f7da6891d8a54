"""The kernel that compares two columns of log-probs: differences, weights, probabilities, and their tails.

The same blocks, runs and vectors as `ppocli.kernels.ppo`. Masked tokens are left out while a run is loaded; a
block with a value that is not finite is given back, to be evaluated again without such tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core.drift_partials import (
    BANDS,
    CLASS_SUMS,
    CONFIDENT,
    EXTREMES,
    FIRST_BIN,
    HIGHEST_OCTAVE,
    HISTOGRAM_BINS,
    LANE_SUMS,
    LOWEST_OCTAVE,
    MAX_RULES,
    MOMENTS,
    NEGATIVE_BINS,
    ODD_GAP,
    OCTAVE_BINS,
    PIECE,
    PROBABILITIES,
    RULE_SUMS,
    SUM,
)
from ppocli.kernels._jit import inline, jit, parallel
from ppocli.kernels.blocks import aligned, flags_of, pieces_until, stop_of, stored, within
from ppocli.kernels.layout import (
    BLOCK,
    HISTOGRAM_COPIES,
    RUN,
    WIDTH,
    Bytes,
    Floats,
    Ints,
    Places,
)
from ppocli.kernels.load import count_flags, read
from ppocli.kernels.loops import add_histogram
from ppocli.kernels.math import (
    BIAS,
    LN2_HIGH,
    LOG2_E,
    MANTISSA,
    NEAR,
    Q0,
    Q1,
    Q2,
    Q3,
    Q4,
    Q5,
    Q6,
    Q7,
    Q8,
    Q9,
    Q10,
    ROUNDER,
    dd_add,
    exp_and_expm1_minus_x,
)
from ppocli.kernels.memory import (
    add_to,
    count_to,
    load,
    load_flags,
    load_one,
    lower_to,
    prefetch,
    raise_to,
    row_address,
    store,
    store_low16,
    store_one,
)
from ppocli.kernels.vector import (
    Vector,
    Words,
    any_of,
    bits,
    broadcast,
    fma,
    from_bits,
    greatest,
    highest,
    least,
    lowest,
    number_of,
    total,
    where,
    without,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

A, B = 0, 1

# ------------------------------------------------------------------------------------------- scratch

DIFF, SIDE_B, EXPM1, K3 = (RUN * k for k in range(4))
"""Rows of one number per token of a run."""
_LANES = RUN * 4
_RULES = _LANES + WIDTH * len(LANE_SUMS)
CLEAN, CLEAN_SQ = _RULES, _RULES + WIDTH
"""Lanes of the weights, and their squares, of runs that no rule touches."""
PER_RULE = WIDTH * len(RULE_SUMS)
_MOMENTS = _RULES + 2 * WIDTH + PER_RULE * MAX_RULES
_EXTREMES = _MOMENTS + WIDTH * len(MOMENTS)
CENTRE_A, CENTRE_B, FIRST_A, FIRST_B = (_EXTREMES + 2 * WIDTH * len(EXTREMES) + k for k in range(4))
SCRATCH = CENTRE_A + WIDTH


def _lane(name: str) -> int:
    return _LANES + WIDTH * LANE_SUMS.index(name)


def _moment(name: str) -> int:
    return _MOMENTS + WIDTH * MOMENTS.index(name)


def _extreme(name: str) -> int:
    return _EXTREMES + 2 * WIDTH * EXTREMES.index(name)


L_DIFF, L_DIFF_SQ, L_ABS, L_K3, L_WEIGHT, L_WEIGHT_SQ, L_MULT = (
    _lane(name) for name in ("diff", "diff_sq", "diff_abs", "k3", "weight", "weight_sq", "mult")
)
L_PROB_A, L_PROB_B = _lane("prob_a"), _lane("prob_b")
L_EQUAL, L_CONFIDENT, L_ODD, L_VARIES_A, L_VARIES_B = (
    _lane(name) for name in ("equal", "confident", "odd", "varies_a", "varies_b")
)
L_BAND, L_CLASS = _lane("band_0"), _lane("n below 0")
Q_AA, Q_BB, Q_AB = (_moment(name) for name in MOMENTS)
X_DIFF, X_GAP = (_extreme(name) for name in EXTREMES)
N_LANES, N_MOMENTS, N_EXTREMES = len(LANE_SUMS), len(MOMENTS), len(EXTREMES)
PER_CLASS = WIDTH * len(CLASS_SUMS)
COUNT = SUM["n"]

# The bands are closed: as |expm1(diff) - middle| they end just inside these.
MIDDLE_0 = (BANDS[0][0] + BANDS[0][1]) / 2.0 - 1.0
HALF_0, HALF_1, HALF_2, HALF_3 = (math.nextafter((high - low) / 2.0, 1.0) for low, high in BANDS)
CLASS_0, CLASS_1, CLASS_2, CLASS_3 = (math.log(bound) for bound in PROBABILITIES)
P_N, P_DIFF, P_ABS, P_K3 = (PIECE.index(name) for name in ("n", "diff", "diff_abs", "k3"))

R_LOW, R_HIGH, R_BELOW, R_ABOVE = range(4)
"""A rule: its bounds, and what weights below and above them are replaced by."""

# exp(r) = 1 + r + r^2 (P0 + P1 r + ...) for |r| <= ln(2) / 2, interpolated at the Chebyshev nodes in 50
# digits: relative error 7.4e-14, what single probabilities need.
P0 = 0.4999999999995507
P1 = 0.16666666666662583
P2 = 0.041666666786337556
P3 = 0.008333333344209506
P4 = 0.001388883909064138
P5 = 0.00019841224581544105
P6 = 2.4867883453521802e-05
P7 = 2.761757684835413e-06

# ------------------------------------------------------------------------------------------- histogram

# The exponent and the seven highest bits of the mantissa number the bins of one sign. Of the number below:
# a bin ends with its upper bound, so that the counts above 0.5 and above 1 are sums of bins.
TOP_BITS = np.uint64(52 - OCTAVE_BINS.bit_length() + 1)
ONE = np.uint64(1)
BASE = np.uint64((1023 + LOWEST_OCTAVE) * OCTAVE_BINS - FIRST_BIN)
FLOOR = 2.0**LOWEST_OCTAVE
CEILING = math.nextafter(2.0**HIGHEST_OCTAVE, math.inf)
FOR_NEGATIVE = float(np.uint64(NEGATIVE_BINS).view(np.float64))
"""A float64 whose bits are the number of the first bin of negative differences."""


class PairWorkspace:
    """Scratch of the workers, made once and used for every file.

    Attributes
    ----------
    scratch : (n_workers, SCRATCH) float64
    kept : (n_workers, BLOCK) uint16
        Bins of a block's tokens.
    bins : (n_workers, HISTOGRAM_BINS * HISTOGRAM_COPIES) int64
    """

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self.scratch: Floats = aligned((n_workers, SCRATCH), np.float64)
        self.kept: Places = aligned((n_workers, BLOCK), np.uint16)
        self.bins: Ints = aligned((n_workers, HISTOGRAM_BINS * HISTOGRAM_COPIES), np.int64)

    def workers_for(self, n_blocks: int) -> int:
        """Return how many workers to start, as in `ppocli.kernels.blocks.Workspace`."""
        return max(1, min(self.n_workers, n_blocks // 32))

    def histogram(self) -> Ints:
        """Return the counts per bin, of all workers together."""
        counts: Ints = self.bins.reshape(self.n_workers, HISTOGRAM_BINS, HISTOGRAM_COPIES).sum(axis=(0, 2))
        return counts


# ------------------------------------------------------------------------------------------- loops


@inline
def _place(x: Vector, size: Vector) -> Words:
    """Return the bin of a difference; only the lowest 16 bits mean something."""
    inside = bits(least(CEILING, greatest(FLOOR, size))) - ONE
    return (inside >> TOP_BITS) - BASE + bits(where(x < 0.0, FOR_NEGATIVE, 0.0))


@inline
def _set_first(addresses: Ints, doubles: int, tails: int, whole: int, start: int, live: int, s: int) -> None:
    """Keep the largest values of the first vector with a token that counts, to compare others with them."""
    i = 0
    while not any_of(load_flags(live, i)):
        i += WIDTH
    on = load_flags(live, i)
    a = read(addresses[A], doubles >> A & 1, start + i, whole, tails, A)
    b = read(addresses[B], doubles >> B & 1, start + i, whole, tails, B)
    store_one(s, FIRST_A, highest(where(on, a, -np.inf)))
    store_one(s, FIRST_B, highest(where(on, b, -np.inf)))


@inline
def _add_difference(
    addresses: Ints, doubles: int, tails: int, whole: int, start: int, n: int, live: int, s: int,
    kept: int, at: int, reach: Floats,
) -> tuple[bool, bool]:  # fmt: skip
    """Differences of a run, their sums, extremes and bins.

    Returns whether one is further than `NEAR` from 0, and whether one is outside of `reach`.
    """
    added = squares = sizes = varies_a = varies_b = broadcast(0.0)
    low, high = broadcast(np.inf), broadcast(-np.inf)
    a_address, a_double = addresses[A], doubles >> A & 1
    b_address, b_double = addresses[B], doubles >> B & 1
    first_a, first_b = load_one(s, FIRST_A), load_one(s, FIRST_B)
    equal = odd = 0
    for i in range(0, n, WIDTH):
        on = load_flags(live, i)
        a = where(on, read(a_address, a_double, start + i, whole, tails, A), 0.0)
        b = where(on, read(b_address, b_double, start + i, whole, tails, B), 0.0)
        x = a - b
        size = abs(x)
        store(s, DIFF + i, x)
        store(s, SIDE_B + i, b)
        added += x
        squares = fma(x, x, squares)
        sizes += size
        equal += number_of(on & (x == 0.0))
        odd += number_of(without(x < -ODD_GAP, b < 0.0) | without(x > ODD_GAP, a < 0.0))
        varies_a = where(on & (abs(a - first_a) > 0.0), 1.0, varies_a)
        varies_b = where(on & (abs(b - first_b) > 0.0), 1.0, varies_b)
        low = least(where(on, x, np.inf), low)
        high = greatest(where(on, x, -np.inf), high)
        store_low16(kept, at + i, _place(x, size))
    add_to(s, L_DIFF, added)
    add_to(s, L_DIFF_SQ, squares)
    add_to(s, L_ABS, sizes)
    count_to(s, L_EQUAL, equal)
    count_to(s, L_ODD, odd)
    add_to(s, L_VARIES_A, varies_a)
    add_to(s, L_VARIES_B, varies_b)
    lower_to(s, X_DIFF, low)
    raise_to(s, X_DIFF + WIDTH, high)
    return any_of((low < -NEAR) | (high > NEAR)), any_of((low < reach[0]) | (high > reach[1]))


@inline
def _exponentials(x: Vector) -> tuple[Vector, Vector, Vector, Vector]:
    """Return exp(x), exp(x) - 1 - x, exp(x) - 1 and exp(|x|)."""
    weight, term = exp_and_expm1_minus_x(x)
    return weight, term, x + term, greatest(weight, 1.0 / weight)


@inline
def _exponentials_near_0(x: Vector) -> tuple[Vector, Vector, Vector, Vector]:
    """Return the same for |x| <= `NEAR`: q(x) from its even and its odd part, of which q(|x|) is made, too.

    exp(x) = 1 + x + x^2 q(x), as in `ppocli.kernels.math`.
    """
    y, size = x * x, abs(x)
    even, odd = fma(Q10, y, Q8), fma(Q9, y, Q7)
    even, odd = fma(even, y, Q6), fma(odd, y, Q5)
    even, odd = fma(even, y, Q4), fma(odd, y, Q3)
    even, odd = fma(even, y, Q2), fma(odd, y, Q1)
    even = fma(even, y, Q0)
    term = y * fma(odd, x, even)
    expm1 = x + term
    return 1.0 + expm1, term, expm1, 1.0 + fma(fma(odd, size, even), y, size)


@inline
def _add_weight(
    s: int, i: int, live: int, values: tuple[Vector, Vector, Vector, Vector],
    sums: tuple[Vector, Vector, Vector, Vector], bands: tuple[int, int, int, int],
) -> tuple[tuple[Vector, Vector, Vector, Vector], tuple[int, int, int, int]]:  # fmt: skip
    """Store k3 and expm1 of eight tokens; return the sums and the counts of the bands with them."""
    on = load_flags(live, i)
    weight, term, expm1, mult = values
    store(s, K3 + i, term)
    store(s, EXPM1 + i, expm1)
    off = abs(expm1)
    weight = where(on, weight, 0.0)
    sums = (
        sums[0] + term,
        sums[1] + weight,
        fma(weight, weight, sums[2]),
        where(on, sums[3] + mult, sums[3]),
    )
    bands = (
        bands[0] + number_of(on & (abs(expm1 - MIDDLE_0) < HALF_0)),
        bands[1] + number_of(on & (off < HALF_1)),
        bands[2] + number_of(on & (off < HALF_2)),
        bands[3] + number_of(on & (off < HALF_3)),
    )
    return sums, bands


@inline
def _add_weights(s: int, n: int, live: int, far: bool, wide: bool) -> None:
    """Weights and k3 of a run, the short way where no |diff| is above `NEAR`.

    Where the run is not `wide`, rules leave its weights as they are.
    """
    zero = broadcast(0.0)
    sums, bands = (zero, zero, zero, zero), (0, 0, 0, 0)
    if far:
        for i in range(0, n, WIDTH):
            sums, bands = _add_weight(s, i, live, _exponentials(load(s, DIFF + i)), sums, bands)
    else:
        for i in range(0, n, WIDTH):
            sums, bands = _add_weight(s, i, live, _exponentials_near_0(load(s, DIFF + i)), sums, bands)
    add_to(s, L_K3, sums[0])
    add_to(s, L_WEIGHT, sums[1])
    add_to(s, L_WEIGHT_SQ, sums[2])
    add_to(s, L_MULT, sums[3])
    if not wide:
        add_to(s, CLEAN, sums[1])
        add_to(s, CLEAN_SQ, sums[2])
    count_to(s, L_BAND, bands[0])
    count_to(s, L_BAND + WIDTH, bands[1])
    count_to(s, L_BAND + 2 * WIDTH, bands[2])
    count_to(s, L_BAND + 3 * WIDTH, bands[3])


@inline
def _add_rules(s: int, n: int, live: int, rules: Floats) -> None:
    """Add what each rule makes of the weights of a run: those outside its bounds are replaced."""
    for r in range(rules.shape[0]):
        low, high, below, above = rules[r, R_LOW], rules[r, R_HIGH], rules[r, R_BELOW], rules[r, R_ABOVE]
        added = squares = broadcast(0.0)
        touched = 0
        for i in range(0, n, WIDTH):
            on = load_flags(live, i)
            weight = 1.0 + load(s, EXPM1 + i)
            is_low, is_high = weight < low, weight > high
            applied = where(on, where(is_low, below, where(is_high, above, weight)), 0.0)
            added += applied
            squares = fma(applied, applied, squares)
            touched += number_of(on & (is_low | is_high))
        lanes = CLEAN + 2 * WIDTH + PER_RULE * r
        add_to(s, lanes, added)
        add_to(s, lanes + WIDTH, squares)
        count_to(s, lanes + 2 * WIDTH, touched)


@inline
def _probability(x: Vector) -> Vector:
    """Return exp(x), x held within [-708, 709], with a relative error of 1e-13."""
    held = greatest(-708.0, least(709.0, x))
    shifted = fma(held, LOG2_E, ROUNDER)
    r = fma(shifted - ROUNDER, -LN2_HIGH, held)
    q = fma(fma(P7, r, P6), r, P5)
    q = fma(fma(q, r, P4), r, P3)
    q = fma(fma(q, r, P2), r, P1)
    q = fma(fma(q, r, P0), r, 1.0)
    return from_bits((bits(shifted) - BIAS) << MANTISSA) * fma(q, r, 1.0)


@inline
def _set_centres(s: int) -> None:
    """Set the centres of the two probabilities, which are values where a side is constant."""
    store_one(s, CENTRE_A, _probability_of(load_one(s, FIRST_A)))
    store_one(s, CENTRE_B, _probability_of(load_one(s, FIRST_B)))


@inline
def _probability_of(x: float) -> float:
    """Return the same of one number."""
    return lowest(_probability(broadcast(x)))


@inline
def _next_run(addresses: Ints, doubles: int, start: int) -> tuple[int, int]:
    """Return where the columns of the run at `start` begin."""
    return (
        addresses[A] + start * (4 + 4 * (doubles >> A & 1)),
        addresses[B] + start * (4 + 4 * (doubles >> B & 1)),
    )


@inline
def _add_probabilities(s: int, n: int, live: int, ahead: tuple[int, int]) -> None:
    """exp(b), and the gap exp(a) - exp(b) = exp(b) expm1(diff), which keeps its digits where it is small."""
    probs_a = probs_b = aa = bb = ab = widest = broadcast(0.0)
    middle_a, middle_b = load_one(s, CENTRE_A), load_one(s, CENTRE_B)
    confident = 0
    for i in range(0, n, WIDTH):
        # Ask for the columns of the next run while this one is worked on.
        prefetch(ahead[0] + 8 * i)
        prefetch(ahead[1] + 8 * i)
        on = load_flags(live, i)
        prob = _probability(load(s, SIDE_B + i))
        gap = prob * load(s, EXPM1 + i)
        off_a, off_b = where(on, (prob - middle_a) + gap, 0.0), where(on, prob - middle_b, 0.0)
        probs_a += off_a
        probs_b += off_b
        aa, bb, ab = fma(off_a, off_a, aa), fma(off_b, off_b, bb), fma(off_a, off_b, ab)
        size = abs(gap)
        widest = greatest(size, widest)
        confident += number_of(size > CONFIDENT)
    add_to(s, L_PROB_A, probs_a)
    add_to(s, L_PROB_B, probs_b)
    add_to(s, Q_AA, aa)
    add_to(s, Q_BB, bb)
    add_to(s, Q_AB, ab)
    raise_to(s, X_GAP + WIDTH, widest)
    count_to(s, L_CONFIDENT, confident)


@inline
def _add_class(s: int, k: int, inside: int, added: Vector, sizes: Vector) -> None:
    """Add the sums of a run to those of the block."""
    lanes = L_CLASS + PER_CLASS * k
    count_to(s, lanes, inside)
    add_to(s, lanes + WIDTH, added)
    add_to(s, lanes + 2 * WIDTH, sizes)


@inline
def _add_classes(s: int, n: int, live: int) -> None:
    """Add sums over the tokens below each bound of the probability."""
    added_0 = added_1 = added_2 = added_3 = sizes_0 = sizes_1 = sizes_2 = sizes_3 = broadcast(0.0)
    n_0 = n_1 = n_2 = n_3 = 0
    for i in range(0, n, WIDTH):
        on = load_flags(live, i)
        b, x = load(s, SIDE_B + i), load(s, DIFF + i)
        size = abs(x)
        in_0, in_1, in_2, in_3 = (
            on & (b < CLASS_0),
            on & (b < CLASS_1),
            on & (b < CLASS_2),
            on & (b < CLASS_3),
        )
        added_0, sizes_0 = where(in_0, added_0 + x, added_0), where(in_0, sizes_0 + size, sizes_0)
        added_1, sizes_1 = where(in_1, added_1 + x, added_1), where(in_1, sizes_1 + size, sizes_1)
        added_2, sizes_2 = where(in_2, added_2 + x, added_2), where(in_2, sizes_2 + size, sizes_2)
        added_3, sizes_3 = where(in_3, added_3 + x, added_3), where(in_3, sizes_3 + size, sizes_3)
        n_0, n_1 = n_0 + number_of(in_0), n_1 + number_of(in_1)
        n_2, n_3 = n_2 + number_of(in_2), n_3 + number_of(in_3)
    _add_class(s, 0, n_0, added_0, sizes_0)
    _add_class(s, 1, n_1, added_1, sizes_1)
    _add_class(s, 2, n_2, added_2, sizes_2)
    _add_class(s, 3, n_3, added_3, sizes_3)


# ------------------------------------------------------------------------------------------- blocks


@inline
def _add_pieces(
    s: int, live: int, run: int, n: int, starts: Ints, first: int, last: int, pieces: Floats
) -> None:
    """Write number and sums of each piece of a sequence inside the run; the first starts with it."""
    for j in range(first, last):
        begin, end = starts[j] - run, starts[j + 1] - run if j + 1 < last else n
        added = sizes = k3 = broadcast(0.0)
        counted = 0
        for i in range(begin & -WIDTH, end, WIDTH):
            on = within(begin, end, i, live)
            x = load(s, DIFF + i)
            added, sizes = where(on, added + x, added), where(on, sizes + abs(x), sizes)
            k3 = where(on, k3 + load(s, K3 + i), k3)
            counted += number_of(on)
        pieces[j, P_N], pieces[j, P_DIFF] = counted, total(added)
        pieces[j, P_ABS], pieces[j, P_K3] = total(sizes), total(k3)


@inline
def _begin(s: int) -> None:
    """Clear the lanes and centres."""
    for i in range(_LANES, SCRATCH, WIDTH):
        store(s, i, 0.0)
    for e in range(N_EXTREMES):
        store(s, _EXTREMES + 2 * WIDTH * e, np.inf)
        store(s, _EXTREMES + 2 * WIDTH * e + WIDTH, -np.inf)


@inline
def _finish(
    s: int, b: int, counted: int, sums: Floats, by_rule: Floats, moments: Floats, extremes: Floats
) -> bool:
    """Fold the lanes into the rows of block b; whether a value is not finite."""
    clean, clean_sq = total(load(s, CLEAN)), total(load(s, CLEAN_SQ))
    for r in range(by_rule.shape[1]):
        lanes = CLEAN + 2 * WIDTH + PER_RULE * r
        by_rule[b, r, 0] = clean + total(load(s, lanes))
        by_rule[b, r, 1] = clean_sq + total(load(s, lanes + WIDTH))
        by_rule[b, r, 2] = total(load(s, lanes + 2 * WIDTH))
    for q in range(N_LANES):
        sums[b, q] = total(load(s, _LANES + WIDTH * q))
    sums[b, COUNT] = counted
    moments[b, 0], moments[b, 1] = load_one(s, CENTRE_A), load_one(s, CENTRE_B)
    for m in range(N_MOMENTS):
        moments[b, 2 + m] = total(load(s, _MOMENTS + WIDTH * m))
    for e in range(extremes.shape[1]):
        extremes[b, e, 0] = lowest(load(s, _EXTREMES + 2 * WIDTH * e))
        extremes[b, e, 1] = highest(load(s, _EXTREMES + 2 * WIDTH * e + WIDTH))
    return not abs(total(load(s, L_DIFF))) < np.inf


@parallel
def _evaluate(
    worker: int,
    n_workers: int,
    addresses: Ints,
    doubles: int,
    mask: int,
    tails: Floats,
    edge: Bytes,
    n_tokens: int,
    wanted: Ints,
    starts: Ints,
    block_pieces: Ints,
    rules: Floats,
    reach: Floats,
    scratch: Floats,
    places: Places,
    bins: Ints,
    sums: Floats,
    by_rule: Floats,
    moments: Floats,
    extremes: Floats,
    pieces: Floats,
    bad: Ints,
) -> None:
    """Evaluate one worker's share of the blocks."""
    s, kept, tail = row_address(scratch, worker), row_address(places, worker), row_address(tails, 0)
    whole, ones = n_tokens & -WIDTH, row_address(edge, 0)
    for k in range(worker * wanted.size // n_workers, (worker + 1) * wanted.size // n_workers):
        b = wanted[k]
        _begin(s)
        piece, at, counted = block_pieces[b], 0, 0
        for run in range(b * BLOCK, stop_of(b * BLOCK, BLOCK, n_tokens), RUN):
            n = stop_of(run, RUN, n_tokens) - run
            live = flags_of(mask, run, n, ones)
            n_live = n if mask == 0 else count_flags(live, n)
            if counted == 0 and n_live > 0:
                _set_first(addresses, doubles, tail, whole, run, live, s)
                _set_centres(s)
            far, wide = _add_difference(addresses, doubles, tail, whole, run, n, live, s, kept, at, reach)
            _add_weights(s, n, live, far, wide)
            if wide:
                _add_rules(s, n, live, rules)
            _add_probabilities(s, n, live, _next_run(addresses, doubles, run + RUN))
            _add_classes(s, n, live)
            at += (n + WIDTH - 1) & -WIDTH
            counted += n_live
            first, piece = piece, pieces_until(starts, piece, block_pieces[b + 1], run + n)
            _add_pieces(s, live, run, n, starts, first, piece, pieces)
        bad[b] = _finish(s, b, counted, sums, by_rule, moments, extremes)
        if not bad[b]:
            add_histogram(kept, at, row_address(bins, worker))
            bins[worker, 0] -= at - counted  # tokens that do not count stand at 0


def evaluate_pairs(
    workspace: PairWorkspace,
    columns: Sequence[NDArray[Any]],
    mask: Bytes,
    n_tokens: int,
    wanted: Ints,
    starts: Ints,
    block_pieces: Ints,
    rules: Floats,
    sums: Floats,
    by_rule: Floats,
    moments: Floats,
    extremes: Floats,
    pieces: Floats,
    bad: Ints,
) -> None:
    """Compare two columns over some blocks of a span, in parallel.

    Parameters
    ----------
    workspace : PairWorkspace
        `bins` is added to, for blocks without a value that is not finite.
    columns : two contiguous arrays, (n_tokens,) float32 or float64
        a and b. Nulls are NaN.
    mask : (n_tokens,) or (0,) uint8
    n_tokens : int
    wanted : (n,) int64
        Blocks to evaluate.
    starts : (n_pieces,) int64; block_pieces : (n_blocks + 1,) int64
        Where pieces of sequences start, and the first piece of each block. A piece ends with its run.
    rules : (n_rules, 4) float64
        At most MAX_RULES: bounds of the weight, and what weights below and above them are replaced by.
    sums : (n_blocks, len(SUMS)) float64
        Written: the first N_LANES columns and the last.
    by_rule : (n_blocks, n_rules, len(RULE_SUMS)) float64
    moments : (n_blocks, 2 + N_MOMENTS) float64
        Written: centres of the two probabilities, and second moments about them.
    extremes : (n_blocks, N_EXTREMES, 2) float64
    pieces : (n_pieces, len(PIECE)) float64
    bad : (n_blocks,) int64
        Written: 1 where a value is not finite; the other rows of such a block mean nothing.
    """
    _evaluate(
        workspace.workers_for(wanted.size), *stored(columns, mask, n_tokens), wanted, starts, block_pieces,
        rules, _reach(rules), workspace.scratch, workspace.kept, workspace.bins,
        sums, by_rule, moments, extremes, pieces, bad,
    )  # fmt: skip


def _reach(rules: Floats) -> Floats:
    """Return the two differences between which no rule changes a weight, for certain."""
    low, high = np.append(rules[:, R_LOW], 0.0).max(), np.append(rules[:, R_HIGH], np.inf).min()
    with np.errstate(divide="ignore"):
        # Exponentials are right to 2^-52: weights this close to a bound are looked at.
        return np.array([np.log(low) + 1e-12, np.log(high) - 1e-12])


# ------------------------------------------------------------------------------------------- merging


@jit
def merge_moments(n: Floats, sums: Floats, moments: Floats, state: Floats) -> None:
    """Merge the second moments of the probabilities, block by block (Chan, Golub, LeVeque 1979).

    Parameters
    ----------
    n : (n_blocks,) float64
        Tokens of each block.
    sums : (n_blocks, 2) float64
        Sums of the two probabilities.
    moments : (n_blocks, 2 + N_MOMENTS) float64
        Centres, and second moments about them.
    state : (9,) float64
        n, the two sums as pairs, and the three moments about the means as single numbers; added to.
    """
    for b in range(n.size):
        if n[b] > 0.0:
            off_a, off_b = sums[b, 0] - n[b] * moments[b, 0], sums[b, 1] - n[b] * moments[b, 1]
            aa = max(moments[b, 2] - off_a * off_a / n[b], 0.0)
            bb = max(moments[b, 3] - off_b * off_b / n[b], 0.0)
            ab = moments[b, 4] - off_a * off_b / n[b]
            if state[0] > 0.0:
                share = state[0] / (state[0] + n[b]) * n[b]
                delta_a = (sums[b, 0] / n[b] - state[1] / state[0]) - state[2] / state[0]
                delta_b = (sums[b, 1] / n[b] - state[3] / state[0]) - state[4] / state[0]
                aa += delta_a * delta_a * share
                bb += delta_b * delta_b * share
                ab += delta_a * delta_b * share
            state[0] += n[b]
            state[1], state[2] = dd_add(state[1], state[2], sums[b, 0], 0.0)
            state[3], state[4] = dd_add(state[3], state[4], sums[b, 1], 0.0)
            state[5] += aa
            state[6] += bb
            state[7] += ab
