"""Blocks that hold a null, a NaN or an infinity at a valid token.

Which tokens still count in which terms, what is wrong where, and what float64 arithmetic would have made of
it: counted here with NumPy over the blocks concerned, apart from the kernels, which only see finite values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ppocli.core import partials
from ppocli.core.partials import SELECTIONS
from ppocli.kernels import layout

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

NULL, NAN, POSINF, NEGINF = 0, 1, 2, 3


def kinds_of(values: Floats, null: Bools) -> tuple[int, int, int, int]:
    """Count nulls, NaN, +inf and -inf."""
    nan = np.isnan(values) & ~null
    return int(null.sum()), int(nan.sum()), int((values == np.inf).sum()), int((values == -np.inf).sum())


def terms_of(
    values: Mapping[str, Floats], null: Mapping[str, Bools], p: Floats, skip: Collection[str] = ()
) -> Iterator[tuple[str, Floats]]:
    """Yield each sum's terms at tokens that may hold anything, without those that miss a value.

    Parameters
    ----------
    values : mapping of role to (n,) float64
    null : mapping of role to (n,) bool
        Where the file holds no value.
    p : (N_PARAMETERS,) float64
    skip : collection of str
        Selections whose terms are known already.
    """
    for name in SELECTIONS:
        if name in skip:
            continue
        roles = [role for role in SELECTIONS[name] if role in values]
        if len(roles) < len(SELECTIONS[name]):
            continue
        if name == "value" and p[layout.P_VALUE_CLIP] < np.inf:
            if "old_values" not in values:
                continue
            roles.append("old_values")
        there = ~np.logical_or.reduce([null[role] for role in roles])
        picked = {role: values[role][there] for role in roles}
        with np.errstate(all="ignore"):
            yield from _TERMS[name](picked, p)


def _ratio_terms(v: Mapping[str, Floats], p: Floats) -> Iterator[tuple[str, Floats]]:
    log_ratio = v["log_probs"] - v["old_log_probs"]
    yield "log_ratio", log_ratio
    yield "log_ratio_sq", log_ratio * log_ratio
    yield "log_ratio_abs", np.abs(log_ratio)
    yield "kl_k3", np.expm1(log_ratio) - log_ratio
    yield "ratio", np.exp(np.clip(log_ratio, -p[layout.P_CLAMP], p[layout.P_CLAMP]))
    yield "raw_ratio", np.exp(log_ratio)


def losses_of(log_ratio: Floats, adv: Floats, p: Floats) -> Floats:
    """Return the loss of each token; NaN where float64 arithmetic gives NaN."""
    ratio = np.exp(np.clip(log_ratio, -p[layout.P_CLAMP], p[layout.P_CLAMP]))
    clipped = np.clip(ratio, p[layout.P_CLIP_FLOOR], p[layout.P_CLIP_CEILING])
    surrogate = np.minimum(np.minimum(ratio, p[layout.P_DELTA]) * adv, clipped * adv)
    loss = -np.where(adv < 0.0, np.maximum(surrogate, p[layout.P_DUAL] * adv), surrogate)
    return np.where(adv == 0.0, 0.0, loss)


def _policy_terms(v: Mapping[str, Floats], p: Floats) -> Iterator[tuple[str, Floats]]:
    log_ratio = v["log_probs"] - v["old_log_probs"]
    adv = (v["advantages"] - p[layout.P_SHIFT]) / p[layout.P_SCALE]
    ratio = np.exp(np.clip(log_ratio, -p[layout.P_CLAMP], p[layout.P_CLAMP]))
    yield "loss", losses_of(log_ratio, adv, p)
    yield "unclipped", np.where(adv == 0.0, 0.0, -(ratio * adv))
    yield "grad_abs", np.where(_is_flat(log_ratio, ratio, adv, p), 0.0, np.abs(ratio * adv))


def _is_flat(log_ratio: Floats, ratio: Floats, adv: Floats, p: Floats) -> Bools:
    """Return where the loss does not depend on log_probs."""
    floor, ceiling = p[layout.P_CLIP_FLOOR], p[layout.P_CLIP_CEILING]
    held = np.minimum(ratio, p[layout.P_DELTA])
    behind = (ratio < floor) | (held > p[layout.P_DUAL]) | (ratio > p[layout.P_DELTA])
    clamped = (np.abs(log_ratio) > p[layout.P_CLAMP]) & ~np.isnan(adv)
    flat: Bools = (adv == 0.0) | clamped | ((adv > 0.0) & (ratio > ceiling)) | ((adv < 0.0) & behind)
    return flat


def _value_terms(v: Mapping[str, Floats], p: Floats) -> Iterator[tuple[str, Floats]]:
    term = (v["values"] - v["returns"]) ** 2
    clip = p[layout.P_VALUE_CLIP]
    if clip < np.inf:
        moved = np.clip(v["values"] - v["old_values"], -clip, clip)
        term = np.maximum(term, (v["old_values"] + moved - v["returns"]) ** 2)
    yield "value", term


def _ev_terms(v: Mapping[str, Floats], p: Floats) -> Iterator[tuple[str, Floats]]:
    yield "ev_return", v["returns"]
    yield "ev_error", v["returns"] - v["values"]


def _ev_old_terms(v: Mapping[str, Floats], p: Floats) -> Iterator[tuple[str, Floats]]:
    yield "ev_old_return", v["returns"]
    yield "ev_old_error", v["returns"] - v["old_values"]


def _ref_terms(v: Mapping[str, Floats], p: Floats) -> Iterator[tuple[str, Floats]]:
    x = v["log_probs"] - v["ref_log_probs"]
    yield "ref_k1", x
    yield "ref_k2", x * x
    yield "ref_k3", np.expm1(-x) + x


def _rollout_terms(v: Mapping[str, Floats], p: Floats) -> Iterator[tuple[str, Floats]]:
    yield "rollout_log_prob", v["rollout_log_probs"]


_TERMS = {
    "ratio": _ratio_terms,
    "policy": _policy_terms,
    "adv": lambda v, p: iter([("adv", v["advantages"])]),
    "log_prob": lambda v, p: iter([("log_prob", v["log_probs"])]),
    "value": _value_terms,
    "ev": _ev_terms,
    "ev_old": _ev_old_terms,
    "return": lambda v, p: iter([("return", v["returns"])]),
    "reward": lambda v, p: iter([("reward", v["rewards"])]),
    "entropy": lambda v, p: iter([("entropy", v["entropy"])]),
    "ref": _ref_terms,
    "rollout": _rollout_terms,
}


def flags_of(
    values: Mapping[str, Floats], null: Mapping[str, Bools], p: Floats, loss: Floats | None = None
) -> NDArray[np.int64]:
    """Return for each token what its sequence has to remember: log-ratio or loss NaN, +inf or -inf."""
    n = next(iter(values.values())).size
    flags = np.zeros(n, dtype=np.int64)
    if not {"log_probs", "old_log_probs"} <= values.keys():
        return flags
    with np.errstate(all="ignore"):
        log_ratio = values["log_probs"] - values["old_log_probs"]
        there = ~(null["log_probs"] | null["old_log_probs"])
        flags |= _flags(
            log_ratio, there, partials.FLAG_RATIO_NAN, partials.FLAG_RATIO_POSINF, partials.FLAG_RATIO_NEGINF
        )
        if "advantages" in values:
            if loss is None:
                adv = (values["advantages"] - p[layout.P_SHIFT]) / p[layout.P_SCALE]
                loss = losses_of(log_ratio, adv, p)
            there &= ~null["advantages"]
            flags |= np.where(there, loss_flags(loss), 0)
    return flags


def loss_flags(loss: Floats) -> NDArray[np.int64]:
    """Return for each loss what its sequence has to remember: that it is NaN, +inf or -inf."""
    everywhere = np.ones(loss.shape, dtype=np.bool_)
    kinds = partials.FLAG_LOSS_NAN, partials.FLAG_LOSS_POSINF, partials.FLAG_LOSS_NEGINF
    return _flags(loss, everywhere, *kinds)


def _flags(x: Floats, there: Bools, nan: int, posinf: int, neginf: int) -> NDArray[np.int64]:
    """Return one flag per token."""
    found = np.where(np.isnan(x), nan, np.where(x == np.inf, posinf, np.where(x == -np.inf, neginf, 0)))
    return np.where(there, found, 0)
