from __future__ import annotations

import math
from typing import Any

import pytest

from ppocli.core.spec import AGGREGATIONS, LossSpec, choose
from ppocli.errors import ExitCode, UsageProblem


def test_defaults_are_those_of_the_paper() -> None:
    spec = LossSpec()
    assert (spec.objective, spec.clip_low, spec.clip_high, spec.agg) == ("ppo", 0.2, 0.2, "token-mean")
    assert spec.dual_clip is spec.delta is spec.log_ratio_clamp is spec.value_clip is None
    assert (spec.adv_norm, spec.adv_norm_form) == ("none", "add")
    assert (spec.adv_norm_ddof, spec.adv_norm_eps) == (0, 1e-8)


def test_every_field_is_echoed() -> None:
    assert LossSpec(clip_low=0.1).to_dict()["clip_low"] == 0.1
    assert list(LossSpec().to_dict()) == list(LossSpec.__dataclass_fields__)


@pytest.mark.parametrize(
    "bad",
    [
        {"objective": "trpo"},
        {"clip_low": -0.1},
        {"clip_low": 1.1},
        {"clip_low": math.nan},
        {"clip_high": -1e-9},
        {"clip_high": math.inf},
        {"clip_high": math.nan},
        {"dual_clip": 1.0},
        {"dual_clip": math.nan},
        {"dual_clip": math.inf},
        {"delta": 1.2},
        {"delta": 1.25, "clip_high": 0.28},
        {"delta": math.nan},
        {"log_ratio_clamp": 0.0},
        {"log_ratio_clamp": math.inf},
        {"value_clip": -0.2},
        {"value_clip": math.nan},
        {"horizon": 0},
        {"micro_batch": 0},
        {"adv_norm_ddof": 2},
        {"adv_norm_eps": -1e-8},
        {"adv_norm_eps": math.nan},
        {"vf_coef": math.nan},
        {"ent_coef": math.inf},
        {"kl_coef": -math.inf},
        {"agg": "mean"},
        {"adv_norm": "whiten"},
        {"adv_norm_form": "sum"},
    ],
    ids=str,
)
def test_values_out_of_range_are_usage_errors(bad: dict[str, Any]) -> None:
    with pytest.raises(UsageProblem) as caught:
        LossSpec(**bad)
    # The message names the flag that was given, as it is typed.
    flag = "--" + next(iter(bad)).replace("_", "-")
    assert flag in caught.value.message
    assert caught.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    "good",
    [
        {"clip_low": 0.0, "clip_high": 0.0},
        {"clip_low": 1.0, "clip_high": 50.0},
        {"dual_clip": 1.0001},
        {"delta": 1.21},
    ],
    ids=str,
)
def test_the_ends_of_the_ranges_are_allowed(good: dict[str, float]) -> None:
    assert {name: getattr(LossSpec(**good), name) for name in good} == good


@pytest.mark.parametrize(
    "bad",
    [
        {"ratio_level": "group"},
        {"off_policy_anchor": "reference"},
        {"rollout_rs_mode": "keep"},
        {"ref_kl": "k4"},
        {"ref_kl_clamp": 0.0},
        {"ref_kl_cap": -1.0},
        {"ratio_eps": -1e-8},
        {"log_ratio_penalty": math.nan},
        {"off_policy_threshold": math.inf},
        {"vespo_log_low": -math.inf},
        {"count_empty": 0.5},
    ],
    ids=str,
)
def test_settings_of_frameworks_are_checked(bad: dict[str, Any]) -> None:
    with pytest.raises(UsageProblem) as caught:
        LossSpec(**bad)
    assert next(iter(bad)) in caught.value.message


def test_a_near_miss_is_guessed() -> None:
    with pytest.raises(UsageProblem) as caught:
        choose("--agg", "seq-mean-token-men", AGGREGATIONS)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("did you mean 'seq-mean-token-mean'?")
    assert choose("--agg", "token-sum", AGGREGATIONS) == "token-sum"
