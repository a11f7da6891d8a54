from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from ppocli.core.audit_metrics import AUDIT_METRICS
from ppocli.core.drift_metrics import DRIFT_METRICS
from ppocli.core.glossary import AGGREGATION_TEXTS, SETTINGS, explain
from ppocli.core.metrics import METRICS
from ppocli.core.precision import PRECISIONS
from ppocli.core.presets import all_presets
from ppocli.core.profiles import PROFILES
from ppocli.core.roles import AMBIGUOUS, NEGATED, PROBABILITIES, ROLES
from ppocli.core.rules import RULES
from ppocli.core.spec import AGGREGATIONS, OBJECTIVES, LossSpec
from ppocli.errors import UsageProblem


def test_a_metric(run: Any) -> None:
    assert run("explain", "approx_kl_k3") == (
        0,
        "approx_kl_k3: metric, nats\n"
        "  mean(expm1(log_ratio) - log_ratio), estimates KL(old || new), never negative.\n"
        "  Taken over valid tokens: those that the mask does not exclude.\n"
        "  Needs: log_probs, old_log_probs.\n",
        "",
    )


def test_a_role(run: Any) -> None:
    code, out, err = run("explain", "rewards")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "rewards: role of a column",
        "  reward.",
        "  Values: real numbers, floating point.",
        "  Also found as: reward, rew.",
        "  Set by hand: --col rewards=COLUMN.",
    ]


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("policy_loss_finite", "policy_loss, taken over the tokens whose columns for it are all finite."),
        ("group-mean", "mean over groups of the mean over the group's valid tokens."),
        ("adv-norm", "adv_norm: setting of the loss"),
        ("clip-eps", "the ratio is clipped to [1 - clip_eps, 1 + clip_eps]."),
        ("clip_eps", "Set with --clip-eps VALUE."),
        ("New_LogProbs", "Read as log_probs: "),
        ("logprobs", "May mean log_probs or old_log_probs or rollout_log_probs."),
        ("neglogp", "Holds minus the log-prob, so it is never taken."),
        ("probs", "Holds probabilities, so it is never taken."),
        ("seq_ratio_geo", "Taken over sequences: reported where the input has sequences."),
    ],
)
def test_other_names(run: Any, name: str, part: str) -> None:
    code, out, _ = run("explain", name)
    assert code == 0
    assert part in " ".join(out.split())


@pytest.mark.parametrize("spelling", ["PPO101", "ppo101"])
def test_a_finding(run: Any, spelling: str) -> None:
    code, out, _ = run("explain", spelling)
    rule = RULES["PPO101"]
    assert code == 0
    assert " ".join(out.split()) == (
        f"PPO101: finding, error {rule.title}. What to do: {rule.advice}. False alarm: {rule.false_alarm}. "
        "Fails 'ppocli check'."
    )


def test_a_finding_that_can_be_graver(run: Any) -> None:
    out = " ".join(run("explain", "PPO305")[1].split())
    assert out.startswith("PPO305: finding, info, at worst warning")
    assert "Found where: 5 % of the tokens" in out
    assert out.endswith("Fails 'ppocli check' with --fail-on warning.")


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_names_its_limits_and_its_source(run: Any, name: str) -> None:
    code, out, _ = run("explain", name)
    profile, text = PROFILES[name], " ".join(out.split())
    assert code == 0
    assert f"Source: {profile.source}." in text
    for metric, kind, value in profile.limits:
        assert f"{metric}: {'at most' if kind == 'max' else 'at least'} {value:g}" in text


def test_everything_in_the_catalogues_can_be_explained() -> None:
    assert set(AGGREGATION_TEXTS) == set(AGGREGATIONS)
    names = [*METRICS, *ROLES, *AGGREGATIONS, *RULES, *PROFILES, *AMBIGUOUS, *NEGATED, *PROBABILITIES]
    names += [*AUDIT_METRICS, *PRECISIONS]
    names += [alias for role in ROLES.values() for alias in role.aliases]
    for name in names:
        title, *text = explain(name)
        assert title.startswith(f"{name}: ")
        assert text


def test_the_list_names_everything(run: Any) -> None:
    code, out, err = run("explain", "--list")
    assert (code, err) == (0, "")
    listed = [line.split()[0] for line in out.splitlines() if line.startswith("  ") and line[2] != " "]
    presets = [one.name for one in all_presets()]
    of_drift = [f"drift.{name}" for name in DRIFT_METRICS]
    known = [*METRICS, *of_drift, *ROLES, *AGGREGATIONS, *OBJECTIVES, *presets]
    known += [*SETTINGS, *RULES, *PROFILES]
    audit = [name for name in AUDIT_METRICS if name not in METRICS]
    assert listed == [*known, *audit, *PRECISIONS]
    assert set(SETTINGS) == {one.name for one in fields(LossSpec)}
    assert max(map(len, out.splitlines())) <= 80


def test_an_unknown_name_is_a_usage_error(run: Any) -> None:
    assert run("explain", "clip_fracs") == (
        2,
        "",
        "error: nothing is known by the name 'clip_fracs'\n"
        "help: did you mean 'clip_frac'? 'ppocli explain --list' lists all names\n",
    )
    with pytest.raises(UsageProblem):
        explain("nothing_finite")


@pytest.mark.parametrize("arguments", [["clip_frac", "--list"]])
def test_a_name_or_the_list(run: Any, arguments: list[str]) -> None:
    assert run("explain", *arguments)[0] == 2
