"""CleanRL, Spinning Up, RLlib, Tianshou, rl_games, rsl_rl and skrl."""

from __future__ import annotations

import re

import numpy as np
from goldens.presets.asked import Asked, Mapping, inputs, metrics_of
from goldens.presets.sb3 import COLUMNS, mean_size
from goldens.rows import Arrays, NotExpressed, Row

from ppocli.core.spec import LossSpec
from ppocli.core.terms import TERMS
from ppocli.core.tokens import Tokens


def clip_of(chosen: bool, width: float) -> float | None:
    """A value clip, or none."""
    return width if chosen else None


def norm_of(chosen: bool) -> dict[str, str]:
    """The preset's own normalisation, or none."""
    return {} if chosen else {"adv_norm": "none"}


def cleanrl(row: Row, arrays: Arrays) -> Asked:
    """One minibatch."""
    settings = row["settings"]
    asked = Asked("cleanrl", inputs(arrays, *COLUMNS))
    asked.settings = {
        "clip_eps": settings["clip_coef"],
        "ent_coef": settings["ent_coef"],
        "vf_coef": settings["vf_coef"],
        **norm_of(settings["norm_adv"]),
    }
    if not settings["clip_vloss"]:
        asked.settings["value_clip"] = None
    return asked


def spinup(row: Row, arrays: Arrays) -> Asked:
    """The whole epoch; the buffer normalises in float32 whatever the rest runs in."""
    settings = row["settings"]
    asked = Asked("spinup", inputs(arrays, *COLUMNS))
    asked.settings = {"clip_eps": settings["clip_ratio"], **norm_of(settings["normalised_advantages"])}
    if settings["normalised_advantages"]:
        asked.float32 = ("LossPi",)
        asked.scale["LossPi"] = mean_size(asked)
    return asked


def rllib(row: Row, arrays: Arrays) -> Asked:
    """A minibatch with its loss mask; the advantages are normalised before, by the connector."""
    settings = row["settings"]
    asked = Asked("rllib", inputs(arrays, *COLUMNS))
    if settings["loss_mask"] is not None:
        found = re.fullmatch(r"row index modulo (\d+) != (\d+)", settings["loss_mask"])
        if found is None:
            raise NotExpressed(f"a loss mask described as '{settings['loss_mask']}'")
        index = np.arange(arrays["log_probs"].shape[0])
        asked.arrays["mask"] = index % int(found[1]) != int(found[2])
    asked.settings = {
        "clip_eps": settings["clip_param"],
        "adv_norm": "none",
        "value_error_cap": settings["vf_clip_param"],
        "vf_coef": settings["vf_loss_coeff"],
        "ent_coef": settings["entropy_coeff"],
    }
    if settings["use_kl_loss"]:
        asked.missing = {"mean_kl_loss": "the exact KL needs the distributions"}
        kl = settings["kl_coeff"] * row["outputs"]["mean_kl_loss"]
        asked.values["total_loss"] = metrics_of(asked)["total_loss"] + kl
    else:
        asked.values["mean_kl_loss"] = 0.0
    return asked


def tianshou(row: Row, arrays: Arrays) -> Asked:
    """One minibatch."""
    settings = row["settings"]
    asked = Asked("tianshou", inputs(arrays, *COLUMNS))
    asked.settings = {
        "clip_eps": settings["eps_clip"],
        "dual_clip": settings["dual_clip"],
        "value_clip": clip_of(settings["value_clip"], settings["eps_clip"]),
        "adv_norm_eps": settings["eps"],
        "vf_coef": settings["vf_coef"],
        "ent_coef": settings["ent_coef"],
        **norm_of(settings["advantage_normalization"]),
    }
    if settings["advantage_normalization"]:
        asked.scale = dict.fromkeys(("actor_loss", "loss"), mean_size(asked))
    return asked


def rl_games_actor(row: Row, arrays: Arrays) -> Asked:
    """The hard clip."""
    asked = Asked("rl-games", inputs(arrays, *COLUMNS), names={"a_loss_mean": "losses/a_loss"})
    asked.settings = {"clip_eps": row["settings"]["curr_e_clip"], "adv_norm": "none"}
    asked.terms["a_loss"] = terms_of("loss", row, arrays)
    return asked


def rl_games_smooth(row: Row, arrays: Arrays) -> Asked:
    """The sigmoid."""
    asked = rl_games_actor(row, arrays)
    asked.like = "rl-games:smooth"
    asked.terms["a_loss"] = terms_of("smooth_loss", row, arrays)
    return asked


def terms_of(name: str, row: Row, arrays: Arrays) -> np.ndarray:
    """A term of every step."""
    eps = row["settings"]["curr_e_clip"]
    columns = {role: arrays[role].reshape(-1) for role in ("log_probs", "old_log_probs", "advantages")}
    values: np.ndarray = TERMS[name].compute(Tokens(columns), LossSpec(clip_low=eps, clip_high=eps))
    return values


def rl_games_critic(row: Row, arrays: Arrays) -> Asked:
    """The value loss."""
    settings = row["settings"]
    asked = Asked("rl-games", inputs(arrays, *COLUMNS), names={"c_loss_mean": "losses/c_loss"})
    asked.settings = {"clip_eps": settings["curr_e_clip"]}
    if not settings["clip_value"]:
        asked.settings["value_clip"] = None
    return asked


def rsl_rl(row: Row, arrays: Arrays) -> Asked:
    """One minibatch; the rollout's own normalisation happens before."""
    settings = row["settings"]
    asked = Asked("rsl-rl", inputs(arrays, *COLUMNS))
    asked.names = {name: f"Loss/{name}" for name in ("value", "surrogate", "entropy")}
    asked.settings = {
        "clip_eps": settings["clip_param"],
        "vf_coef": settings["value_loss_coef"],
        "ent_coef": settings["entropy_coef"],
        **norm_of(settings["normalize_advantage_per_mini_batch"]),
    }
    if not settings["use_clipped_value_loss"]:
        asked.settings["value_clip"] = None
    return asked


def skrl(row: Row, arrays: Arrays) -> Asked:
    """One minibatch, whose losses are not recorded where its KL is above the threshold."""
    settings = row["settings"]
    asked = Asked("skrl", inputs(arrays, *COLUMNS))
    asked.settings = {
        "clip_eps": settings["ratio_clip"],
        "value_clip": settings["value_clip"] or None,
        "vf_coef": settings["value_loss_scale"],
        "ent_coef": settings["entropy_loss_scale"],
        "adv_norm": "none",
    }
    if settings["kl_threshold"] and metrics_of(asked)["kl_divergence"] > settings["kl_threshold"]:
        asked.values = dict.fromkeys(row["outputs"], 0.0)
    return asked


LOSSES = "rl_games.common.common_losses"
MAPPINGS: dict[str, Mapping] = {
    "cleanrl/ppo.py update block": cleanrl,
    "spinup.algos.pytorch.ppo.ppo compute_loss_pi / compute_loss_v / PPOBuffer.get": spinup,
    "ray.rllib.algorithms.ppo.torch.ppo_torch_learner.PPOTorchLearner.compute_loss_for_module": rllib,
    "tianshou.algorithm.modelfree.ppo.PPO._update_with_batch": tianshou,
    f"{LOSSES}.actor_loss": rl_games_actor,
    f"{LOSSES}.smoothed_actor_loss": rl_games_smooth,
    f"{LOSSES}.critic_loss": rl_games_critic,
    "rsl_rl.algorithms.PPO.update": rsl_rl,
    "skrl.agents.torch.ppo.PPO.update": skrl,
}
