from __future__ import annotations

from ppocli.core.report import Group
from ppocli.core.trend import TREND, label_of, trends, with_changes


def group(key: int, **metrics: float | int | None) -> Group:
    return Group({"step": key}, metrics, {})


def test_a_change_is_the_value_less_the_one_before() -> None:
    first, second, third = with_changes(
        [group(1, policy_loss=0.5, n_tokens=9), group(2, policy_loss=0.25), group(3, policy_loss=1.0)]
    )
    assert first.change == {}
    assert second.change == {"policy_loss": -0.25}
    assert third.change == {"policy_loss": 0.75}


def test_beside_a_null_there_is_no_change_and_without_a_metric_no_entry() -> None:
    made = with_changes(
        [group(1, policy_loss=None), group(2, policy_loss=1.0, ess_frac=0.5), group(3, policy_loss=None)]
    )
    assert [one.change for one in made] == [{}, {"policy_loss": None}, {"policy_loss": None}]


def test_a_loss_that_stays_negative_zero_changes_by_zero() -> None:
    _, second = with_changes([group(1, policy_loss=0.0), group(2, policy_loss=-0.0)])
    assert str(second.change["policy_loss"]) == "0.0"


def test_a_trend_has_both_ends_and_the_largest_change_with_its_place() -> None:
    groups = with_changes(
        [group(k, clip_frac=value) for k, value in ((4, None), (5, 0.25), (6, 0.125), (7, 0.875), (8, None))]
    )
    (one,) = trends(groups)
    assert (one.name, one.values) == ("clip_frac", (None, 0.25, 0.125, 0.875, None))
    assert one.ends == (0.25, 0.875)
    assert (one.largest, one.at) == (0.75, {"step": 7})


def test_a_drop_counts_by_its_size_and_keeps_its_sign() -> None:
    (one,) = trends(with_changes([group(1, adv_mean=4.0), group(2, adv_mean=5.0), group(3, adv_mean=-2.0)]))
    assert (one.largest, one.at) == (-7.0, {"step": 3})


def test_a_trend_of_nulls_has_no_ends_and_no_change() -> None:
    (one,) = trends(with_changes([group(1, value_loss=None), group(2, value_loss=None)]))
    assert one.ends == (None, None)
    assert (one.largest, one.at) == (None, None)


def test_metrics_are_followed_in_one_order_and_others_are_not() -> None:
    made = with_changes([group(1, ess_frac=1.0, policy_loss=1.0, n_rows=3), group(2, ess_frac=1.0)])
    assert [one.name for one in trends(made)] == ["policy_loss", "ess_frac"]
    assert len(set(TREND)) == len(TREND)


def test_a_key_shows_its_value() -> None:
    assert label_of({"step": 7}) == "7"
    assert label_of({"run": "a b"}) == "a b"
    assert label_of({"step": None}) == "null"
