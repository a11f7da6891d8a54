"""Saved reports: what is refused, and which baselines are comparable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import reports

from ppocli.core.check_report import CheckReport
from ppocli.core.gate import Gate
from ppocli.core.limits import Limit
from ppocli.core.report import ColumnReport, Skipped
from ppocli.core.spec import LossSpec
from ppocli.engine.check import judge
from ppocli.engine.saved import (
    is_saved_report,
    load,
    refuse_other_definitions,
    refuse_other_options,
    refuse_other_settings,
)
from ppocli.errors import InputError, UsageProblem
from ppocli.render.json import to_json


def written(tmp_path: Path, document: Any) -> str:
    path = tmp_path / "report.json"
    path.write_text(document if isinstance(document, str) else to_json(document))
    return str(path)


def test_a_report_comes_back_as_it_was(tmp_path: Path) -> None:
    for made in (reports.with_nulls(), reports.several(), reports.full(), reports.odd_names()):
        document = json.loads(to_json(made.to_dict()))
        assert load(written(tmp_path, made.to_dict())) == document


def test_a_judged_report_is_judged_afresh(tmp_path: Path) -> None:
    strict = judge(reports.report().to_dict(), Gate(limits=(Limit("clip_frac", "max", 0.0),)))
    assert isinstance(strict, CheckReport)
    document = load(written(tmp_path, strict.to_dict()))
    assert not {"checks", "gate"} & document.keys()
    assert judge(document, Gate(limits=(Limit("clip_frac", "max", 1.0),))).exit_code == 0


def test_findings_of_an_earlier_gate_do_not_stay() -> None:
    moved = {
        "log_ratio_abs_max": 0.3,
        "log_ratio_abs_mean": 0.1,
        "zero_log_ratio_frac": 0.5,
        "approx_kl_k1": 0.0,
    }
    first = judge(reports.report(moved).to_dict(), Gate(expect_on_policy=True))
    assert [one["code"] for one in first.document["findings"]] == ["PPO302"]
    assert judge(first.document, Gate()).document["findings"] == []


def changed(change: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(to_json(reports.several().to_dict()))
    change(document)
    return document


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("", "not a JSON document"),
        ("[1, 2]", "no report of ppocli"),
        ('{"metrics": {"clip_frac": NaN}}', "NaN is not JSON"),
        ("{" * 3000, "not a JSON document"),
        ("[" * 300000, "not a JSON document"),
        ({"tool": "other", "kind": "eval"}, "no report of ppocli cannot be judged"),
        (changed(lambda d: d.update(kind="inspect")), "a document of kind 'inspect' cannot be judged"),
        (changed(lambda d: d.update(schema_version="2")), "schema version '2', not '1'"),
        (changed(lambda d: d.pop("metrics")), "no 'metrics'"),
        (changed(lambda d: d.update(findings={})), "no 'findings'"),
        (changed(lambda d: d.update(findings=[{"code": "X"}])), "an entry of 'findings' is not complete"),
        (changed(lambda d: d["inputs"].append(3)), "an entry of 'inputs' is not complete"),
        (changed(lambda d: d["groups"].append({"key": {}})), "a group is not complete"),
        (changed(lambda d: d["metrics"].pop("n_tokens")), "no count of tokens"),
        (changed(lambda d: d["groups"][0]["metrics"].pop("n_tokens")), "no count of tokens"),
        (changed(lambda d: d["metrics"].update(clip_frac="0.1")), "clip_frac is '0.1', not a finite number"),
        (changed(lambda d: d["metrics"].update(clip_frac=True)), "clip_frac is True, not a finite number"),
        (
            changed(lambda d: d["metrics"].update(policy_loss_by_agg={"group-mean": []})),
            "not a finite number",
        ),
        (
            to_json(reports.report({"clip_frac": 0.5}).to_dict()).replace(": 0.5,", ": 1e999,"),
            "clip_frac is inf, not a finite number",
        ),
    ],
)
def test_what_is_no_report_is_refused(tmp_path: Path, document: Any, said: str) -> None:
    path = written(tmp_path, document)
    with pytest.raises(InputError) as caught:
        load(path)
    assert said in caught.value.message
    assert caught.value.where == path


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        load(str(tmp_path / "none.json"))
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(InputError, match="UTF-8"):
        load(str(tmp_path / "binary.json"))


def test_a_report_that_leaves_files_out_is_refused(tmp_path: Path) -> None:
    # Files of another kind in a folder are no data; unreadable ones are data that nobody has seen.
    foreign = reports.report(skipped=(Skipped("README.md", "not named *.parquet or *.npz"),))
    load(written(tmp_path, foreign.to_dict()))
    missed = reports.report(skipped=(Skipped("rank7.parquet", "unreadable: not a Parquet file"),))
    with pytest.raises(
        InputError, match=r"leaves out 1 files that could not be read, such as 'rank7.parquet'"
    ):
        load(written(tmp_path, missed.to_dict()))


def test_only_json_files_are_reports(tmp_path: Path) -> None:
    (tmp_path / "a.JSON").write_text("{}")
    (tmp_path / "folder.json").mkdir()
    assert is_saved_report(str(tmp_path / "a.JSON"))
    assert not is_saved_report(str(tmp_path / "folder.json"))
    assert not is_saved_report(str(tmp_path / "b.json"))
    assert not is_saved_report("rollouts.parquet")


def test_options_that_would_change_numbers_are_refused() -> None:
    document = {"settings": {**LossSpec(clip_low=0.1).to_dict(), "horizon": 176}}
    refuse_other_options(document, LossSpec().to_dict(), "r.json")
    refuse_other_options(document, LossSpec(clip_low=0.1, horizon=176).to_dict(), "r.json")
    asked = {**LossSpec(clip_low=0.3, agg="token-sum").to_dict(), "layout": "time"}
    with pytest.raises(UsageProblem) as caught:
        refuse_other_options(document, asked, "r.json")
    for said in (
        "clip_low is 0.1 there, 0.3 is asked for",
        "agg is 'token-mean' there",
        "layout is None there",
    ):
        assert said in caught.value.message


def base(spec: LossSpec | None = None, **changes: Any) -> dict[str, Any]:
    made = reports.report(
        settings={**(spec or LossSpec()).to_dict(), **changes.pop("settings", {})}, **changes
    )
    return made.to_dict()


def test_a_baseline_with_other_settings_is_refused_by_name() -> None:
    same = base(settings={"horizon": 9, "adv_norm_mean": 0.5})
    refuse_other_definitions(
        base(settings={"horizon": 12, "adv_norm_mean": 0.1}), same, ["clip_frac"], "b.json"
    )
    with pytest.raises(InputError) as caught:
        refuse_other_definitions(base(LossSpec(clip_high=0.28, dual_clip=3.0)), same, ["clip_frac"], "b.json")
    assert "clip_high is 0.28, in the baseline 0.2" in caught.value.message
    assert "dual_clip is 3.0, in the baseline None" in caught.value.message
    assert caught.value.where == "b.json"
    with pytest.raises(InputError, match="columns is None, in the baseline"):
        refuse_other_settings(LossSpec().to_dict(), base(settings={"columns": {"mask": "m"}}), (), "b.json")


@pytest.mark.parametrize(
    ("metric", "agg", "refused"),
    [
        ("policy_loss_by_agg.seq-mean-token-sum-norm", "token-mean", True),
        ("policy_loss", "seq-mean-token-sum-norm", True),
        ("total_loss_finite", "seq-mean-token-sum-norm", True),
        ("policy_loss", "token-mean", False),
        ("clip_frac", "seq-mean-token-sum-norm", False),
    ],
)
def test_another_horizon_matters_where_it_divides(metric: str, agg: str, refused: bool) -> None:
    spec = LossSpec(agg=agg)
    now, then = base(spec, settings={"horizon": 12}), base(spec, settings={"horizon": 9})
    if refused:
        with pytest.raises(InputError, match="horizon is 12, in the baseline 9"):
            refuse_other_definitions(now, then, [metric], "b.json")
    else:
        refuse_other_definitions(now, then, [metric], "b.json")


def test_a_baseline_from_other_roles_or_another_framework_is_refused() -> None:
    columns = {**reports.one_input().columns, "values": ColumnReport("v", "float32")}
    more = base(inputs=(reports.one_input(columns=columns),))
    with pytest.raises(InputError, match="values only in the baseline"):
        refuse_other_definitions(base(), more, [], "b.json")
    with pytest.raises(InputError, match="values only here"):
        refuse_other_definitions(more, base(), [], "b.json")
    ids = {**reports.one_input().columns, "token_id": ColumnReport("ids", "int64")}
    refuse_other_definitions(base(), base(inputs=(reports.one_input(columns=ids),)), [], "b.json")
    like = {**base(), "like": {"name": "verl", "version": "0.9.1", "metrics": {}, "definitions": {}}}
    with pytest.raises(InputError, match="another framework's definitions: None and verl"):
        refuse_other_definitions(base(), like, [], "b.json")
