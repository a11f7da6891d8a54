"""The catalogues of metrics and roles hold together."""

from __future__ import annotations

import re

import naive

from ppocli.core.metrics import METRICS, _catalogue
from ppocli.core.roles import AMBIGUOUS, MAIN_ROLES, NEGATED, PROBABILITIES, ROLES


def test_the_catalogue_and_the_loops_name_the_same_metrics() -> None:
    reals = [role.name for role in ROLES.values() if role.kind in ("log_prob", "real")]
    token = dict.fromkeys(reals, -1.0) | {"sequence": 0, "group": 0, "row": 0}
    settings = {"dual_clip": 3.0, "delta": 2.0, "log_ratio_clamp": 20.0, "value_clip": 0.2, "micro_batch": 1}
    # The loops know plain ppo; corrections have tests of their own (tests/unit/engine/test_correction.py).
    known = {name for name, one in METRICS.items() if one.section != "correction"}
    assert naive.evaluate([token], **settings).metrics.keys() == known


def test_each_metric_is_entered_once() -> None:
    assert len(_catalogue()) == len(METRICS)


def test_metrics_need_roles_that_exist() -> None:
    for name, metric in METRICS.items():
        assert name == metric.name
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name)
        assert set(metric.needs) <= ROLES.keys(), name
        counted = name.startswith(("n_", "overflow_", "underflow_", "log_ratio_beyond", "log_ratio_on"))
        assert (metric.unit == "count") == counted, name


def test_fractions_and_counts_say_so() -> None:
    for name, metric in METRICS.items():
        assert (metric.unit == "fraction") == ("frac" in name), name


def test_no_name_of_a_column_means_two_roles() -> None:
    seen: dict[str, str] = {}
    for role in ROLES.values():
        for name in (role.name, *role.aliases):
            assert name not in seen, f"{name}: {seen.get(name)} and {role.name}"
            assert name == name.lower()
            assert name == role.name or name not in AMBIGUOUS, name
            seen[name] = role.name
    for name in (*NEGATED, *PROBABILITIES):
        assert name not in seen
        assert name not in AMBIGUOUS


def test_ambiguous_names_could_be_at_least_two_roles() -> None:
    for name, roles in AMBIGUOUS.items():
        assert len(roles) >= 2, name
        assert all(ROLES[role].kind == "log_prob" for role in roles)


def test_the_names_of_the_formula_are_aliases() -> None:
    assert "log_probs_new" in ROLES["log_probs"].aliases
    assert "log_probs_old" in ROLES["old_log_probs"].aliases
    assert set(MAIN_ROLES) <= ROLES.keys()
