from __future__ import annotations

import audited
import checked
import compared
import inspected
import reports

from ppocli.core.report import Group, LikeReport, NullNote
from ppocli.core.rows import Row, flat, rows_of


def test_nested_names_are_dotted() -> None:
    assert list(flat({"a": 1.5, "by": {"x": 2, "y": None}})) == [("a", 1.5), ("by.x", 2), ("by.y", None)]


def test_groups_come_first_then_the_whole_with_units_and_reasons() -> None:
    rows = list(rows_of(reports.several().to_dict()))
    assert [one.group for one in rows[:7]] == ["a.parquet"] * 7
    second = next(one for one in rows if one.group == "b.parquet" and one.name == "policy_loss")
    assert (second.by, second.value, second.reason, second.nonfinite) == (
        "file", None, "1 NaN in advantages", "nan",
    )  # fmt: skip
    whole = [one for one in rows if one.by is None]
    assert rows[-len(whole) :] == whole
    assert next(one for one in whole if one.name == "n_rows") == Row(
        None, None, "n_rows", 3, "count", "rows stored"
    )


def test_changes_drift_and_a_framework_s_numbers_are_rows_too() -> None:
    note = NullNote("1 NaN", "inf")
    drift = {"a": "old_log_probs", "b": "rollout_log_probs", "metrics": {"diff_mean": None}}
    group = Group(
        {"step": 7}, {"policy_loss": 0.5}, {}, {**drift, "nulls": {"diff_mean": note}}, {"policy_loss": 0.25}
    )
    like = LikeReport(
        "verl", "verl", "1", {"actor/pg_loss": None}, {"actor/pg_loss": note}, {"actor/pg_loss": "said"}
    )
    rows = list(rows_of(reports.report(groups=(group,), like=like).to_dict()))
    assert [(one.by, one.group, one.name, one.value, one.nonfinite) for one in rows[:3]] == [
        ("step", "7", "policy_loss", 0.5, None),
        ("step", "7", "drift.diff_mean", None, "inf"),
        ("step", "7", "change.policy_loss", 0.25, None),
    ]
    assert rows[2].definition.startswith("against the group before: ")
    assert rows[-1] == Row(None, None, "actor/pg_loss", None, "", "said", "1 NaN", "inf")


def test_twins_say_what_they_are_twins_of() -> None:
    rows = {one.name: one for one in rows_of(reports.with_nulls().to_dict())}
    assert rows["policy_loss"].definition in rows["policy_loss_finite"].definition
    assert rows["policy_loss_finite"].unit == rows["policy_loss"].unit
    assert rows["policy_loss_by_agg_finite.token-sum"].definition.endswith(": token-sum")


def test_an_audit_has_a_row_for_each_answer() -> None:
    rows = {one.name: one for one in rows_of(audited.report().to_dict())}
    made = audited.result()
    for form, one in made.formats.items():
        for question, answer in one.answers():
            for name, value in answer.metrics.items():
                assert rows[f"audit.{form}.{question}.{name}"].value == value
    null = rows["audit.float16.arithmetic.policy_loss"]
    assert (null.value, null.reason, null.nonfinite) == (None, "not finite in this format", "inf")


def test_a_gate_has_the_rows_of_what_it_judged() -> None:
    made = checked.mixed()
    of_eval = list(rows_of({**made.to_dict(), "kind": "eval"}))
    assert list(rows_of(made.to_dict())) == of_eval
    assert of_eval


def test_parity_has_a_row_for_each_framework_and_quantity() -> None:
    rows = list(rows_of(compared.parity().to_dict()))
    assert [(one.by, one.group, one.name, one.value) for one in rows] == [
        ("framework", "trl 1.0", "loss", -0.375),
        ("framework", "trl 1.0", "clip fraction", 0.25),
        ("framework", "trl 1.0", "approx KL", 0.0625),
        ("framework", "trl 1.0", "value loss", 0.5),
        ("framework", "verl 0.7.0", "loss", -0.125),
        ("framework", "verl 0.7.0", "clip fraction", None),
    ]
    assert (rows[-1].reason, rows[-1].nonfinite) == ("1 NaN", "nan")


def test_drift_has_the_definitions_of_drift() -> None:
    rows = {one.name: one for one in rows_of(compared.drift().to_dict())}
    assert rows["ess_frac"].value == compared.drift().metrics["ess_frac"]
    assert rows["tis_weight_mean"].reason == "tis_cap is not given"
    assert all(one.definition for one in rows.values())


def test_documents_without_metrics_have_no_rows() -> None:
    assert list(rows_of(inspected.report().to_dict())) == []
