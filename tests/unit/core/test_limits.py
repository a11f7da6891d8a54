"""Limits as they are written."""

from __future__ import annotations

import math

import pytest

from ppocli.core.drift_metrics import DRIFT_METRICS
from ppocli.core.limits import Limit, is_metric, limits_from, profile_limits, tolerances_from
from ppocli.core.metrics import METRICS
from ppocli.core.profiles import PROFILES
from ppocli.errors import UsageProblem


def test_limits_are_read_as_they_are_written() -> None:
    assert limits_from("--max", "max", ["clip_frac=0.3", "approx_kl_k1=-1e-3"]) == [
        Limit("clip_frac", "max", 0.3, source="--max"),
        Limit("approx_kl_k1", "max", -0.001, source="--max"),
    ]
    assert limits_from("--expect", "expect", ["policy_loss=-2.5~1e-4"]) == [
        Limit("policy_loss", "expect", -2.5, 1e-4, "--expect")
    ]
    # 2 % of |-2.5| is 0.05.
    [share] = limits_from("--expect", "expect", ["policy_loss=-2.5~2%"])
    assert share.tolerance == pytest.approx(0.05, rel=1e-15)


def test_tolerances_are_absolute_or_a_share_of_the_baseline() -> None:
    absolute, share = tolerances_from("--tolerance", ["approx_kl_k3=1e-4", "clip_frac=5%"])
    assert (absolute.around(7.0), share.around(-0.4)) == (1e-4, pytest.approx(0.02, rel=1e-15))
    assert (absolute.text, share.text) == ("1e-4", "5%")


@pytest.mark.parametrize(
    ("kind", "pair", "said"),
    [
        ("max", "clip_fraq=0.1", "metric 'clip_fraq' is not known\nhelp: did you mean 'clip_frac'?"),
        ("max", "clip_frac", "takes METRIC=VALUE, not 'clip_frac'"),
        ("max", "=0.1", "takes METRIC=VALUE"),
        ("max", "clip_frac=", "takes METRIC=VALUE"),
        ("max", "clip_frac=much", "'much' is not a number"),
        ("max", "clip_frac=nan", "must be finite, not nan"),
        ("max", "clip_frac=inf", "must be finite, not inf"),
        ("max", "clip_frac=-Infinity", "must be finite, not -Infinity"),
        ("max", "clip_frac=1e999", "must be finite, not 1e999"),
        ("max", "clip_frac=0.1~0.2", "takes METRIC=VALUE, not 'clip_frac=0.1~0.2'"),
        (
            "max",
            "policy_loss_by_agg=1",
            "is a table, not a number\nhelp: it has one value for each aggregation",
        ),
        ("expect", "clip_frac=0.1", "takes METRIC=VALUE~TOLERANCE, not 'clip_frac=0.1'"),
        ("expect", "clip_frac=0.1~-1", "a tolerance is not negative"),
        ("expect", "clip_frac=0.1~nan", "must be finite, not nan"),
        ("expect", "clip_frac=nan~0.1", "must be finite, not nan"),
        ("expect", "clip_frac=0.1~inf%", "must be finite, not inf"),
    ],
)
def test_what_is_no_limit_is_refused(kind: str, pair: str, said: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        limits_from(f"--{kind}", kind, [pair])  # type: ignore[arg-type]
    assert said in str(caught.value)
    assert f"--{kind}" in str(caught.value)


@pytest.mark.parametrize("pair", ["clip_frac=nan", "clip_frac=-5%", "clip_frac=five", "clip_fraq=5%"])
def test_what_is_no_tolerance_is_refused(pair: str) -> None:
    with pytest.raises(UsageProblem):
        tolerances_from("--tolerance", [pair])


@pytest.mark.parametrize(
    "reader", [lambda p: limits_from("--max", "max", p), lambda p: tolerances_from("-t", p)]
)
def test_a_metric_twice_is_refused(reader: object) -> None:
    with pytest.raises(UsageProblem, match="twice for clip_frac"):
        reader(["clip_frac=0.1", "clip_frac=0.2"])  # type: ignore[operator]


def test_every_number_of_a_report_can_be_named() -> None:
    names = set(METRICS) - {"policy_loss_by_agg"} | {f"drift.{name}" for name in DRIFT_METRICS}
    names |= {
        "drift.diff_mean_finite",
        "policy_loss_finite",
        "policy_loss_by_agg.token-mean",
        "policy_loss_by_agg_finite.group-mean",
    }
    assert all(map(is_metric, names))
    assert not any(
        map(is_metric, ["", "policy_loss_by_agg", "n_tokens_finite", "drift.", "drift.loss", "run"])
    )
    assert limits_from("--max", "max", ["actor/ppo_kl=1"], extra=["actor/ppo_kl"])[0].metric == "actor/ppo_kl"


def test_profiles_are_limits_with_their_source() -> None:
    assert profile_limits(()) == []
    for name, profile in PROFILES.items():
        limits = profile_limits([name, name])
        assert [(one.metric, one.kind, one.value) for one in limits] == list(profile.limits)
        assert {(one.source, one.profile) for one in limits} == {(f"profile {name}", name)}
        assert all(is_metric(one.metric) and math.isfinite(one.value) for one in limits)
    with pytest.raises(UsageProblem, match="'verk' is not known"):
        profile_limits(["verk"])
