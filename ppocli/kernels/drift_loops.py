"""The loops over the pairs of one run: each adds to the lanes of the block, as in `ppocli.kernels.loops`."""

from __future__ import annotations

import numpy as np

from ppocli.core.drift_partials import (
    CONFIDENT,
    ODD_GAP,
)
from ppocli.kernels._jit import inline
from ppocli.kernels.drift_layout import (
    BASE,
    CEILING,
    CENTRE_A,
    CENTRE_B,
    CLASS_0,
    CLASS_1,
    CLASS_2,
    CLASS_3,
    CLEAN,
    CLEAN_SQ,
    DIFF,
    FIRST_A,
    FIRST_B,
    FLOOR,
    FOR_NEGATIVE,
    HALF_0,
    HALF_1,
    HALF_2,
    HALF_3,
    K3,
    L_ABS,
    L_BAND,
    L_CLASS,
    L_CONFIDENT,
    L_DIFF,
    L_DIFF_SQ,
    L_EQUAL,
    L_K3,
    L_MULT,
    L_ODD,
    L_PROB_A,
    L_PROB_B,
    L_VARIES_A,
    L_VARIES_B,
    L_WEIGHT,
    L_WEIGHT_SQ,
    LARGER,
    MIDDLE_0,
    ONE,
    P0,
    P1,
    P2,
    P3,
    P4,
    P5,
    P6,
    P7,
    PER_CLASS,
    PER_RULE,
    Q_AA,
    Q_AB,
    Q_BB,
    R_ABOVE,
    R_BELOW,
    R_HIGH,
    R_LOW,
    SHARE,
    SIDE_B,
    TOP_BITS,
    WEIGHT,
    X_DIFF,
    X_GAP,
    A,
    B,
)
from ppocli.kernels.layout import (
    WIDTH,
    Floats,
    Ints,
)
from ppocli.kernels.load import read
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
    exp,
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
    where,
    without,
)


@inline
def _place(x: Vector, size: Vector) -> Words:
    """Return the bin of a difference; only the lowest 16 bits mean something."""
    inside = bits(least(CEILING, greatest(FLOOR, size))) - ONE
    return (inside >> TOP_BITS) - BASE + bits(where(x < 0.0, FOR_NEGATIVE, 0.0))


@inline
def set_first(addresses: Ints, doubles: int, tails: int, whole: int, start: int, live: int, s: int) -> None:
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
def add_difference(
    addresses: Ints, doubles: int, tails: int, whole: int, start: int, n: int, live: int, s: int,
    kept: int, at: int, reach: Floats,
) -> tuple[bool, bool]:  # fmt: skip
    """Differences of a run, their sums, extremes and bins.

    Returns whether one is further than `NEAR` from 0, and whether one is outside of `reach`.
    """
    added = squares = sizes = broadcast(0.0)
    low, high = broadcast(np.inf), broadcast(-np.inf)
    a_address, a_double = addresses[A], doubles >> A & 1
    b_address, b_double = addresses[B], doubles >> B & 1
    first_a, first_b = load_one(s, FIRST_A), load_one(s, FIRST_B)
    equal = odd = varies_a = varies_b = 0
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
        larger = greatest(a, b)
        store(s, LARGER + i, larger)
        odd += number_of(without(size > ODD_GAP, larger < 0.0))
        varies_a += number_of(without(on, a == first_a))
        varies_b += number_of(without(on, b == first_b))
        low = least(where(on, x, np.inf), low)
        high = greatest(where(on, x, -np.inf), high)
        store_low16(kept, at + i, _place(x, size))
    add_to(s, L_DIFF, added)
    add_to(s, L_DIFF_SQ, squares)
    add_to(s, L_ABS, sizes)
    count_to(s, L_EQUAL, equal)
    count_to(s, L_ODD, odd)
    count_to(s, L_VARIES_A, varies_a)
    count_to(s, L_VARIES_B, varies_b)
    lower_to(s, X_DIFF, low)
    raise_to(s, X_DIFF + WIDTH, high)
    return any_of((low < -NEAR) | (high > NEAR)), any_of((low < reach[0]) | (high > reach[1]))


@inline
def _exponentials(x: Vector) -> tuple[Vector, Vector, Vector, Vector, Vector]:
    """Return exp(x), exp(x) - 1 - x, exp(x) - 1, exp(|x|) and 1 - exp(-|x|)."""
    weight, term = exp_and_expm1_minus_x(x)
    inverse = 1.0 / weight
    # Below -40 exp(x) is less than half a step of 1; below -2^53 the sum would lose the 1 that it is about.
    expm1 = where(x < -40.0, -1.0, x + term)
    return weight, term, expm1, greatest(weight, inverse), 1.0 - least(weight, inverse)


@inline
def _exponentials_near_0(x: Vector) -> tuple[Vector, Vector, Vector, Vector, Vector]:
    """Return the same for |x| <= `NEAR`: q from its even and its odd part serves x, |x| and -|x|.

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
    mult = 1.0 + fma(fma(odd, size, even), y, size)
    return 1.0 + expm1, term, expm1, mult, fma(-y, fma(odd, -size, even), size)


@inline
def _add_weight(
    s: int, i: int, live: int, values: tuple[Vector, Vector, Vector, Vector, Vector],
    sums: tuple[Vector, Vector, Vector, Vector], bands: tuple[int, int, int, int],
) -> tuple[tuple[Vector, Vector, Vector, Vector], tuple[int, int, int, int]]:  # fmt: skip
    """Store k3 and 1 - exp(-|diff|) of eight tokens; return the sums and counts of the bands with them."""
    on = load_flags(live, i)
    weight, term, expm1, mult, share = values
    store(s, K3 + i, term)
    store(s, SHARE + i, share)
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
def add_weights(s: int, n: int, live: int, far: bool, wide: bool) -> None:
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
def add_rules(s: int, n: int, live: int, rules: Floats) -> None:
    """Add what each rule makes of the weights of a run: those outside its bounds are replaced."""
    for i in range(0, n, WIDTH):
        # Not 1 + expm1(diff), which has lost the digits of small weights.
        store(s, WEIGHT + i, exp(load(s, DIFF + i)))
    for r in range(rules.shape[0]):
        low, high, below, above = rules[r, R_LOW], rules[r, R_HIGH], rules[r, R_BELOW], rules[r, R_ABOVE]
        added = squares = broadcast(0.0)
        touched = 0
        for i in range(0, n, WIDTH):
            on = load_flags(live, i)
            weight = load(s, WEIGHT + i)
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
def set_centres(s: int) -> None:
    """Set the centres of the two probabilities, which are values where a side is constant."""
    store_one(s, CENTRE_A, _probability_of(load_one(s, FIRST_A)))
    store_one(s, CENTRE_B, _probability_of(load_one(s, FIRST_B)))


@inline
def _probability_of(x: float) -> float:
    """Return the same of one number."""
    return lowest(_probability(broadcast(x)))


@inline
def next_run(addresses: Ints, doubles: int, start: int) -> tuple[int, int]:
    """Return where the columns of the run at `start` begin."""
    return (
        addresses[A] + start * (4 + 4 * (doubles >> A & 1)),
        addresses[B] + start * (4 + 4 * (doubles >> B & 1)),
    )


@inline
def add_probabilities(s: int, n: int, live: int, ahead: tuple[int, int]) -> None:
    """Add probabilities and their gap |exp(a) - exp(b)| = exp(max(a, b)) (1 - exp(-|diff|)).

    So the gap keeps its digits where it is small, and nothing overflows where one side is a placeholder.
    """
    probs_a = probs_b = aa = bb = ab = widest = broadcast(0.0)
    middle_a, middle_b = load_one(s, CENTRE_A), load_one(s, CENTRE_B)
    confident = 0
    for i in range(0, n, WIDTH):
        # Ask for the columns of the next run while this one is worked on.
        prefetch(ahead[0] + 8 * i)
        prefetch(ahead[1] + 8 * i)
        on = load_flags(live, i)
        x = load(s, DIFF + i)
        prob = _probability(load(s, LARGER + i))
        gap = prob * load(s, SHARE + i)
        off_a, off_b = prob - middle_a, prob - middle_b
        off_a = where(on, where(x < 0.0, off_a - gap, off_a), 0.0)
        off_b = where(on, where(x > 0.0, off_b - gap, off_b), 0.0)
        probs_a += off_a
        probs_b += off_b
        aa, bb, ab = fma(off_a, off_a, aa), fma(off_b, off_b, bb), fma(off_a, off_b, ab)
        widest = greatest(gap, widest)
        confident += number_of(gap > CONFIDENT)
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
def add_classes(s: int, n: int, live: int) -> None:
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
