"""The kernel of the optional columns: values, returns, rewards, entropy and the reference policy.

The same blocks, runs and rows as `ppocli.kernels.ppo`; apart, so that nobody compiles or pays for it who has
none of these columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core.partials import PIECE
from ppocli.kernels._jit import inline, parallel
from ppocli.kernels.blocks import (
    Workspace,
    add_pieces,
    begin,
    finish,
    flags_of,
    is_spoiled,
    stop_of,
    stored,
)
from ppocli.kernels.layout import (
    BLOCK,
    P_VALUE_CLIP,
    RUN,
    SELECTION,
    WIDTH,
    Bytes,
    Floats,
    Ints,
    centre,
    lane,
    row,
)
from ppocli.kernels.load import count_flags, load_columns, set_centres
from ppocli.kernels.math import expm1_minus_x
from ppocli.kernels.memory import (
    add_to,
    count_to,
    load,
    load_flags,
    load_one,
    lower_to,
    raise_to,
    row_address,
    store,
    store_one,
)
from ppocli.kernels.vector import broadcast, fma, greatest, least, number_of, where

if TYPE_CHECKING:
    from numpy.typing import NDArray

OF_VALUE, OF_EV, OF_EV_OLD, OF_ENTROPY, OF_REF = (
    SELECTION[name] for name in ("value", "ev", "ev_old", "entropy", "ref")
)
VALUE, OLD_VALUE, RETURN, ENTROPY, NEW, REF = (
    row(name) for name in ("values", "old_values", "returns", "entropy", "log_probs", "ref_log_probs")
)
VALUE_TERM, REF_K3 = row("value_term"), row("ref_k3")
A_VALUE, A_OUTSIDE, A_ACTIVE = (lane(name) for name in ("value", "value_outside", "value_active"))
A_REF_K1, A_REF_K2, A_REF_K3 = (lane(name) for name in ("ref_k1", "ref_k2", "ref_k3"))
LOW_REF_K1, HIGH_REF_K1 = lane("ref_k1 low"), lane("ref_k1 high")
A_ERROR, Q_ERROR, C_ERROR = lane("ev_error"), lane("ev_error square"), centre("ev_error")
A_OLD_ERROR, Q_OLD_ERROR, C_OLD_ERROR = (
    lane("ev_old_error"),
    lane("ev_old_error square"),
    centre("ev_old_error"),
)
C_RETURN, C_VALUE, C_OLD_VALUE = (centre(name) for name in ("returns", "values", "old_values"))
REF_POSITIVE = lane("ref_log_probs positive")
TERMS = np.array(
    [
        (row_of, owner, PIECE.index(f"n_{name}"), PIECE.index(name))
        for row_of, owner, name in (
            (VALUE_TERM, OF_VALUE, "value"),
            (ENTROPY, OF_ENTROPY, "entropy"),
            (REF_K3, OF_REF, "ref_k3"),
        )
    ]
)


@inline
def _add_value(s: int, n: int, clip: float) -> None:
    """Squared value error; with a clip the larger of it and that of the value clipped around the old one."""
    added = broadcast(0.0)
    outside = active = 0
    for i in range(0, n, WIDTH):
        value, target = load(s, VALUE + i), load(s, RETURN + i)
        error = value - target
        term = error * error
        if clip < np.inf:
            old = load(s, OLD_VALUE + i)
            moved = value - old
            error = old + least(greatest(moved, -clip), clip) - target
            clipped = error * error
            outside += number_of(abs(moved) > clip)
            active += number_of(clipped > term)
            term = greatest(clipped, term)
        store(s, VALUE_TERM + i, term)
        added += term
    add_to(s, A_VALUE, added)
    count_to(s, A_OUTSIDE, outside)
    count_to(s, A_ACTIVE, active)


@inline
def _add_errors(s: int, n: int, live: int, prediction: int, lanes: int, squares: int, middle: float) -> None:
    """Sum and second moment of returns - prediction, for the explained variance."""
    added = moment = broadcast(0.0)
    for i in range(0, n, WIDTH):
        error = load(s, RETURN + i) - load(s, prediction + i)
        added += error
        off = where(load_flags(live, i), error - middle, 0.0)
        moment = fma(off, off, moment)
    add_to(s, lanes, added)
    add_to(s, squares, moment)


@inline
def _add_reference(s: int, n: int, live: int) -> None:
    """Add the three estimates of KL(new || ref), and the extremes of the first."""
    k1 = k2 = k3 = broadcast(0.0)
    low, high = broadcast(np.inf), broadcast(-np.inf)
    for i in range(0, n, WIDTH):
        on = load_flags(live, i)
        x = load(s, NEW + i) - load(s, REF + i)
        term = expm1_minus_x(-x)
        store(s, REF_K3 + i, term)
        k1 += x
        k2 = fma(0.5 * x, x, k2)
        k3 += term
        low = least(where(on, x, np.inf), low)
        high = greatest(where(on, x, -np.inf), high)
    add_to(s, A_REF_K1, k1)
    add_to(s, A_REF_K2, k2)
    add_to(s, A_REF_K3, k3)
    lower_to(s, LOW_REF_K1, low)
    raise_to(s, HIGH_REF_K1, high)


@inline
def _add_run(s: int, n: int, live: int, uses: int, p: Floats) -> None:
    """Add the terms of a run whose columns stand in their rows."""
    if uses >> OF_VALUE & 1:
        _add_value(s, n, p[P_VALUE_CLIP])
    if uses >> OF_EV & 1:
        _add_errors(s, n, live, VALUE, A_ERROR, Q_ERROR, load_one(s, C_ERROR))
    if uses >> OF_EV_OLD & 1:
        _add_errors(s, n, live, OLD_VALUE, A_OLD_ERROR, Q_OLD_ERROR, load_one(s, C_OLD_ERROR))
    if uses >> OF_REF & 1:
        _add_reference(s, n, live)


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
    uses: int,
    has: int,
    starts: Ints,
    run_pieces: Ints,
    p: Floats,
    scratch: Floats,
    sums: Floats,
    squares: Floats,
    extremes: Floats,
    pieces: Floats,
    bad: Ints,
    positive: Ints,
) -> None:
    """Evaluate one worker's share of the blocks."""
    s, tail, ones = row_address(scratch, worker), row_address(tails, 0), row_address(edge, 0)
    whole = n_tokens & -WIDTH
    for k in range(worker * wanted.size // n_workers, (worker + 1) * wanted.size // n_workers):
        b = wanted[k]
        begin(s, extremes)
        counted = 0
        for run in range(b * BLOCK, stop_of(b * BLOCK, BLOCK, n_tokens), RUN):
            n = stop_of(run, RUN, n_tokens) - run
            live = flags_of(mask, run, n, ones)
            n_live = n if mask == 0 else count_flags(live, n)
            if counted == 0 and n_live > 0:
                set_centres(addresses, doubles, tail, whole, has, run, live, s)
                store_one(s, C_ERROR, load_one(s, C_RETURN) - load_one(s, C_VALUE))
                store_one(s, C_OLD_ERROR, load_one(s, C_RETURN) - load_one(s, C_OLD_VALUE))
            load_columns(addresses, doubles, tail, whole, has, run, n, live, s)
            _add_run(s, n, live, uses, p)
            counted += n_live
            for way in range(run_pieces.shape[0]):
                first, last = run_pieces[way, run // RUN], run_pieces[way, run // RUN + 1]
                add_pieces(s, live, run, n, starts, first, last, uses, TERMS, pieces)
        finish(s, b, uses, counted, sums, squares, extremes)
        bad[b] = is_spoiled(s, addresses, has)
        positive[b] = 0 if bad[b] else int(load_one(s, REF_POSITIVE))


def evaluate_extras(
    workspace: Workspace, columns: Sequence[NDArray[Any]], mask: Bytes, n_tokens: int, wanted: Ints,
    uses: int, has: int, starts: Ints, run_pieces: Ints, p: Floats,
    sums: Floats, squares: Floats, extremes: Floats, pieces: Floats, bad: Ints, positive: Ints,
) -> None:  # fmt: skip
    """Evaluate blocks of a span in parallel; parameters as in `ppocli.kernels.ppo.evaluate_base`."""
    _evaluate(
        workspace.workers_for(wanted.size), *stored(columns, mask, n_tokens), wanted,
        uses, has, starts, run_pieces, p, workspace.scratch,
        sums, squares, extremes, pieces, bad, positive,
    )  # fmt: skip
