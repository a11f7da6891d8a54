"""What a peer's metric is in our terms: for each function of a peer, how `evaluate` gives its outputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from goldens.rows import Arrays, NotExpressed, Row

Evaluate = Callable[..., dict[str, Any]]
"""Arrays by role and settings by name in, metrics out."""


# ---- verl 0.9.1 ------------------------------------------------------------------------------------------

VERL_EPS = 1e-8
"""verl adds this to the number of tokens in a masked mean, and to a sequence's length."""

VERL_LOG_RATIO_CLAMP = 20.0
VERL_KL_CAP = 10.0


def verl_vanilla(row: Row, arrays: Arrays, evaluate: Evaluate) -> dict[str, Any]:
    """The clipped surrogate with dual clip; the log-ratio is clamped to +-20 for the KL as well."""
    settings = row["settings"]
    weights = arrays.pop("rollout_is_weights", None)
    rollout = arrays.pop("rollout_log_probs", None)
    if (weights is None) != (rollout is None):
        raise NotExpressed("verl: rollout weights without their array")
    if weights is not None:
        # A weight multiplies a token's loss; weights are positive, and so it may multiply the advantage.
        arrays["advantages"] = arrays["advantages"] * np.where(arrays["mask"] != 0, weights, 1.0)
    spec = {
        "clip_low": verl_bound(settings, "clip_ratio_low"),
        "clip_high": verl_bound(settings, "clip_ratio_high"),
        "dual_clip": settings["clip_ratio_c"],
        "log_ratio_clamp": VERL_LOG_RATIO_CLAMP,
    }
    ours = evaluate(**arrays, **spec)
    bounded = np.clip(
        arrays["log_probs"] - arrays["old_log_probs"], -VERL_LOG_RATIO_CLAMP, VERL_LOG_RATIO_CLAMP
    )
    clamped = {**arrays, "log_probs": arrays["old_log_probs"] + bounded}
    share = ours["n_tokens"] / (ours["n_tokens"] + VERL_EPS)

    def loss(agg: str, horizon: int | None, columns: Arrays) -> dict[str, Any]:
        return evaluate(**columns, **spec, agg=agg, horizon=horizon)

    batch = settings.get("global_batch_info") or {}
    out = {
        "loss": verl_aggregate(settings, batch, arrays, loss, "policy_loss"),
        "actor/ppo_kl": evaluate(**clamped)["approx_kl_k1"] * share,
        "actor/pg_clipfrac": ours["clip_frac_active"] * share,
        "actor/pg_clipfrac_lower": ours["dual_clip_frac"] * share,
    }
    if weights is None and not batch:
        out["sum |grad_log_probs|"] = verl_gradient(settings["loss_agg_mode"], ours)
    return out


def verl_bound(settings: Row, name: str) -> float:
    """One side of the interval; without a value of its own it is `clip_ratio`."""
    own = settings.get(name)
    return float(settings["clip_ratio"] if own is None else own)


def verl_gradient(agg: str, ours: dict[str, Any]) -> float | None:
    """The sum of |d loss / d log_probs|, where all tokens have the same weight in the loss."""
    per_token = {"token-mean": 1.0, "token-sum": ours["n_tokens"]}.get(agg)
    return None if per_token is None else per_token * ours["grad_abs_mean"]


def verl_aggregate(
    settings: Row,
    batch: Row,
    arrays: Arrays,
    evaluate: Callable[[str, int | None, Arrays], dict[str, Any]],
    name: str,
) -> float:
    """Our aggregation of the same name, with verl's denominators where it brings its own.

    With a global batch given, sums are divided by its sizes and multiplied by the number of workers.
    """
    agg, scale = settings["loss_agg_mode"], batch.get("loss_scale_factor")
    workers, sequences = batch.get("dp_size", 1), batch.get("global_batch_size")
    if agg.startswith("seq") and not all(np.isfinite(values).all() for values in arrays.values()):
        # verl multiplies by the mask here, so that NaN in the padding gives NaN. Ours must not.
        assert evaluate(agg, scale, arrays)[name] is not None
        return math.nan
    if agg == "seq-mean-token-mean":
        return verl_mean_of_means(arrays, evaluate, name, sequences) * workers
    if agg == "token-mean" and "batch_num_tokens" in batch:
        return evaluate("token-sum", None, arrays)[name] / batch["batch_num_tokens"] * workers
    if sequences and agg in ("seq-mean-token-sum", "seq-mean-token-sum-norm"):
        divisor = sequences * ((scale or arrays["mask"].shape[1]) if agg.endswith("norm") else 1)
        return evaluate("token-sum", None, arrays)[name] / divisor * workers
    return evaluate(agg, scale, arrays)[name] * (workers if agg == "token-sum" else 1)


def verl_mean_of_means(
    arrays: Arrays,
    evaluate: Callable[[str, int | None, Arrays], dict[str, Any]],
    name: str,
    sequences: int | None,
) -> float:
    """The mean over sequences of sum / (length + 1e-8), from our means of single sequences."""
    means = []
    for i in np.flatnonzero(arrays["mask"].any(axis=1)):
        one = {role: values[i : i + 1] for role, values in arrays.items()}
        n = float(one["mask"].sum())
        means.append(evaluate("token-mean", None, one)[name] * n / (n + VERL_EPS))
    own = evaluate("seq-mean-token-mean", None, arrays)[name]
    # Ours has no epsilon: the two differ by 1e-8 of the largest mean at most.
    assert abs(own - math.fsum(means) / len(means)) <= 2e-8 * max(map(abs, means))
    return math.fsum(means) / (sequences or len(means))


def verl_value_loss(row: Row, arrays: Arrays, evaluate: Evaluate) -> dict[str, Any]:
    """Half the larger square; our total loss has every aggregation of it, beside a policy loss of 0."""
    settings = row["settings"]
    zero = np.zeros(arrays["values"].shape)
    columns = {**arrays, "log_probs": zero, "old_log_probs": zero, "advantages": zero}
    spec = {"value_clip": settings["cliprange_value"], "vf_coef": 0.5}

    def loss(agg: str, horizon: int | None, part: Arrays) -> dict[str, Any]:
        return evaluate(**part, **spec, agg=agg, horizon=horizon)

    ours = loss("token-mean", None, columns)
    share = ours["n_tokens"] / (ours["n_tokens"] + VERL_EPS)
    assert ours["total_loss"] == 0.5 * ours["value_loss"]
    batch = {"loss_scale_factor": settings["loss_scale_factor"]}
    return {
        "vf_loss": verl_aggregate(settings, batch, columns, loss, "total_loss"),
        "vf_clipfrac": ours["value_clip_frac_active"] * share,
    }


def verl_kl_penalty(row: Row, arrays: Arrays, evaluate: Evaluate) -> dict[str, Any]:
    """Estimates of the reference KL; verl clamps the k3 argument to +-20 and its value to 10."""
    kind = row["settings"]["kl_penalty"].removesuffix("+")
    steps = row["settings"].get("ref_minus_logprob")
    if steps is not None:
        return {"kl": [verl_kl(kind, np.zeros(1), np.array([x]), evaluate) for x in steps]}
    mask = arrays["mask"] != 0
    n = int(mask.sum())
    mean = verl_kl(kind, arrays["log_probs"][mask], arrays["ref_log_probs"][mask], evaluate)
    whole = verl_kl(kind, arrays["log_probs"].ravel(), arrays["ref_log_probs"].ravel(), evaluate)
    return {"masked_mean": mean * n / (n + VERL_EPS), "sum_all": whole * mask.size}


KL_NAMES = {
    "kl": "ref_kl_k1",
    "k1": "ref_kl_k1",
    "abs": "log_ratio_abs_mean",  # with the reference as the old policy
    "mse": "ref_kl_k2",
    "k2": "ref_kl_k2",
    "low_var_kl": "ref_kl_k3",
    "k3": "ref_kl_k3",
}


def verl_kl(kind: str, log_probs: np.ndarray, ref_log_probs: np.ndarray, evaluate: Evaluate) -> float:
    """The mean over tokens."""
    if KL_NAMES[kind] == "ref_kl_k3":
        # Where k3 passes 10 the argument is held at the point where it is 10: the same as capping the value.
        low, high = k3_reaches(VERL_KL_CAP, -20.0, -1.0), k3_reaches(VERL_KL_CAP, 20.0, 1.0)
        ref_log_probs = log_probs + np.clip(ref_log_probs - log_probs, low, high)
    columns = {
        "log_probs": log_probs,
        "old_log_probs": ref_log_probs,
        "ref_log_probs": ref_log_probs,
        "advantages": np.zeros(log_probs.shape),
    }
    return float(evaluate(**columns)[KL_NAMES[kind]])


def k3_reaches(value: float, outside: float, inside: float) -> float:
    """The x between the two at which expm1(x) - x is `value`, by bisection."""
    for _ in range(200):
        middle = 0.5 * (outside + inside)
        if math.expm1(middle) - middle > value:
            outside = middle
        else:
            inside = middle
    return inside


FUNCTIONS: dict[str, Callable[[Row, Arrays, Evaluate], dict[str, Any]]] = {
    "verl.trainer.ppo.core_algos.POLICY_LOSS_REGISTRY['vanilla']": verl_vanilla,
    "verl.trainer.ppo.core_algos.compute_value_loss": verl_value_loss,
    "verl.trainer.ppo.core_algos.kl_penalty": verl_kl_penalty,
}
"""By peer and function."""
