from __future__ import annotations

import json

import ppocli
from ppocli.core.report import ColumnReport, EvalReport, Finding, Group, InputReport, NullNote, Place


def report(**more: object) -> EvalReport:
    column = ColumnReport("lp", "float32")
    parts: dict[str, object] = {
        "settings": {"clip_low": 0.2, "dual_clip": None},
        "inputs": (InputReport("a.npz", "npz", "flat", 2, 100, columns={"log_probs": column}),),
        "skipped": (),
        "metrics": {"policy_loss": None, "clip_frac": 0.5, "policy_loss_by_agg": {"token-mean": None}},
        "nulls": {"policy_loss": NullNote("1 NaN", "nan", Place("a.npz", 1))},
        "run": {"threads": 2},
    }
    return EvalReport(**{**parts, **more})  # type: ignore[arg-type]


def test_the_document_has_its_head_and_its_keys() -> None:
    document = report().to_dict()
    assert document["schema_version"] == "1"
    assert document["tool"] == "ppocli"
    assert document["version"] == ppocli.__version__
    assert document["kind"] == "eval"
    assert document["status"] == "ok"
    assert document["exit_code"] == 0
    assert list(document)[-1] == "run"
    assert "worst" not in document
    assert "groups" not in document
    assert document["findings"] == []
    json.dumps(document, allow_nan=False)


def test_a_null_metric_and_an_unset_setting_stay_absent_fields_go() -> None:
    document = report().to_dict()
    assert document["metrics"]["policy_loss"] is None
    assert document["metrics"]["policy_loss_by_agg"] == {"token-mean": None}
    assert document["settings"]["dual_clip"] is None
    assert document["nulls"]["policy_loss"] == {
        "reason": "1 NaN",
        "nonfinite": "nan",
        "where": {"path": "a.npz", "row": 1},
    }


def test_null_metrics_of_groups_stay() -> None:
    group = Group({"path": "a.npz"}, {"clip_frac": None}, {"clip_frac": NullNote("no valid token")})
    (written,) = report(groups=(group,)).to_dict()["groups"]
    assert written["metrics"] == {"clip_frac": None}
    assert written["nulls"] == {"clip_frac": {"reason": "no valid token"}}


def test_status_follows_the_findings() -> None:
    def with_severity(severity: str) -> str:
        return report(findings=(Finding("PPO101", severity, 1, "m", "a"),)).status  # type: ignore[arg-type]

    assert with_severity("info") == "ok"
    assert with_severity("warning") == "findings"
    assert with_severity("error") == "findings"


def test_another_exit_code_changes_nothing_else() -> None:
    one = report()
    assert one.with_exit_code(5).to_dict() == {**one.to_dict(), "exit_code": 5}
