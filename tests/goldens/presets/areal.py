"""AReaL 1.0.4."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from goldens.presets.asked import Asked, Mapping, inputs, metrics_of, term

from ppocli.core.sequence_objectives import Sequences
from ppocli.core.spec import LossSpec
from ppocli.core.terms import value_error
from ppocli.core.tokens import Tokens

if TYPE_CHECKING:
    from goldens.rows import Arrays, Row

COLUMNS = ("log_probs", "old_log_probs", "advantages", "mask")
ACTOR, OVER_MASK = "ppo_actor/update/", "/avg_over_original_mask"
PEERS = {"loss": "actor_loss", "clip_mask": "clip_ratio", "dual_clip_mask": "dual_clip_ratio"}
OURS = ("importance_weight", "approx_kl", "sapo_soft_gate", "sapo_scaled_gate_pos", "sapo_scaled_gate_neg")


def actor(row: Row, arrays: Arrays) -> Asked:
    """The clipped surrogate of tokens or sequences, or the decoupled one with its rules."""
    settings = row["settings"]
    high, sequence = settings["eps_clip_higher"], settings.get("importance_sampling_level") == "sequence"
    asked = Asked("areal:gspo" if sequence else "areal", inputs(arrays, *COLUMNS), names=names())
    asked.settings = {
        "clip_low": settings["eps_clip"],
        "clip_high": settings["eps_clip"] if high is None else high,
        "dual_clip": settings["c_clip"],
    }
    valid = arrays["mask"] != 0
    difference = np.abs(arrays["log_probs"] - arrays["old_log_probs"])[valid]
    asked.scale[f"approx_kl{OVER_MASK}"] = float(difference.mean())
    asked.bounds = (
        1.0 - asked.settings["clip_low"], 1.0 + asked.settings["clip_high"], settings["c_clip"] or 0.0
    )  # fmt: skip
    asked.decided = (f"clip_mask{OVER_MASK}", f"dual_clip_mask{OVER_MASK}")
    if settings["decoupled"]:
        decoupled(settings["rejection_sampling"], arrays, asked)
    sure = boundary(asked, arrays, sequence)
    for name, kind in (("clip_mask", "active"), ("dual_clip_mask", "dual")):
        # A decision that may go either way is taken from the peer.
        ours = term(asked, "clip", kind=kind, kept=True)
        asked.terms[name] = np.where(sure, ours, arrays[name][valid])
    return asked


def boundary(asked: Asked, arrays: Arrays, sequence: bool) -> np.ndarray:
    """The valid tokens whose ratio is not within rounding of a bound, (n,) bool."""
    valid = arrays["mask"] != 0
    log_ratio = (arrays["log_probs"] - arrays["old_log_probs"])[valid]
    together = Sequences.from_ids(np.nonzero(valid)[0])
    if sequence:
        log_ratio = together.spread(together.mean(log_ratio))
    sure = np.ones(log_ratio.size, bool)
    for bound in asked.bounds:
        if bound > 0.0:
            width = max(4.0 * float(np.spacing(abs(math.log(bound)))), 1e-12 if sequence else 0.0)
            sure &= (np.abs(log_ratio - math.log(bound)) > width) | (log_ratio == 0.0)
    return sure


def names() -> dict[str, str]:
    """The preset's metrics by the peer's outputs."""
    by_stat = {**PEERS, **{name: name for name in OURS}}
    out = {f"{peer}{OVER_MASK}": f"{ACTOR}{ours}/avg" for peer, ours in by_stat.items()}
    return {**out, "loss": f"{ACTOR}actor_loss/avg", "filtered_fraction": f"{ACTOR}rs_filtered_fraction"}


def decoupled(rules: Row, arrays: Arrays, asked: Asked) -> None:
    """The weight of the old over the rollout policy, after the rules."""
    asked.like = "areal:decoupled"
    asked.arrays |= inputs(arrays, "rollout_log_probs")
    asked.settings |= correction(rules)
    left = arrays["behave_imp_weight"][arrays["mask"] != 0] > 0.0
    share = float(left.mean())
    for name in ("behave_imp_weight", "behave_approx_kl"):
        # The row has the mean over all tokens, AReaL logs that over the tokens that are left.
        asked.names[f"{name}{OVER_MASK}"] = f"{ACTOR}{name}/avg"
        asked.factors[f"{name}{OVER_MASK}"] = share
        if not left.any():
            asked.values[f"{name}{OVER_MASK}"] = 0.0
    asked.values[f"behave_mask{OVER_MASK}"] = 1.0 - metrics_of(asked)[f"{ACTOR}rs_filtered_fraction"]  # type: ignore[operator]
    if rules["action"] == "clamp":
        asked.values[f"behave_mask{OVER_MASK}"] = 1.0
    asked.terms["behave_imp_weight"] = term(asked, "weight", kept=True)
    drift = np.abs(arrays["old_log_probs"] - arrays["rollout_log_probs"])[arrays["mask"] != 0]
    asked.scale[f"behave_approx_kl{OVER_MASK}"] = float(drift.mean())


def correction(rules: Row) -> dict[str, Any]:
    """A configuration of rejection sampling as settings of ours."""
    low, high = rules["lower"] or 0.0, rules["upper"]
    out: dict[str, Any] = {"rollout_is": "token"}
    level = "token" if rules["level"] == "token" else f"seq_{rules['agg']}"
    if rules["metric"] == "ratio" and rules["level"] == "sequence":
        out["rollout_is"] = "geometric"
    if rules["action"] == "clamp":
        out |= {"rollout_is_low": low, "rollout_is_cap": high, "rollout_rs_mode": "clamp"}
    statistic = {"ratio": "ratio", "kl_k1": "ratio", "kl_k2": "k2", "kl_k3": "k3_reverse"}[rules["metric"]]
    if rules["metric"] == "kl_k1":
        low, high = 0.0 if rules["lower"] is None else math.exp(rules["lower"]), math.exp(high)
    return {**out, "rollout_rs": (f"{level}_{statistic}:{low!r}_{high!r}",)}


def sapo(row: Row, arrays: Arrays) -> Asked:
    """The soft gate on the token's ratio or on the sequence's."""
    settings = row["settings"]
    asked = Asked("areal:sapo", inputs(arrays, *COLUMNS), names=names())
    level = settings["importance_sampling_level"]
    asked.settings = {
        "sapo_tau_pos": settings["tau_pos"],
        "sapo_tau_neg": settings["tau_neg"],
        "ratio_level": level,
        "adv_level": level,
    }
    difference = np.abs(arrays["log_probs"] - arrays["old_log_probs"])[arrays["mask"] != 0]
    asked.scale[f"approx_kl{OVER_MASK}"] = float(difference.mean())
    return asked


def critic(row: Row, arrays: Arrays) -> Asked:
    """Half the larger square, beside a policy loss of 0; the columns are float32."""
    settings = row["settings"]
    given = {role: arrays[role].astype(np.float32) for role in ("values", "old_values", "returns")}
    zero = {role: np.zeros(given["values"].shape) for role in COLUMNS[:3]}
    columns = inputs({**given, **zero, "mask": arrays["mask"]}, *COLUMNS, *given)
    asked = Asked("areal", columns, {"value_clip": settings["value_eps_clip"]})
    asked.names = {"loss": "ppo_critic/critic_loss/avg", "clip_ratio_over_mask": "ppo_critic/clip_ratio/avg"}
    valid = arrays["mask"] != 0
    # In float32 old + (v - old) need not be v again: there the clipped error may be the larger one.
    moved = given["old_values"] + (given["values"] - given["old_values"])
    asked.slack["clip_ratio_over_mask"] = float((moved != given["values"])[valid].mean())
    if settings["loss_fn_type"] == "huber":
        # The trainer never asks for it: the formula alone.
        tokens = Tokens({role: values[valid].astype(np.float64) for role, values in given.items()})
        spec = LossSpec(value_clip=settings["value_eps_clip"])
        asked.values["loss"] = float(value_error(tokens, spec, error="huber", delta=10.0).mean())
    return asked


MAPPINGS: dict[str, Mapping] = {
    "areal.utils.functional.ppo_actor_loss_fn": actor,
    "areal.utils.functional.sapo_loss_fn": sapo,
    "areal.utils.functional.ppo_critic_loss_fn": critic,
}
