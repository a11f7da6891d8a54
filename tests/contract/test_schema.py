"""Every document validates against the schema, and the schema refuses what is wrong."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import audited
import checked
import inspected
import pytest
import reports
from contract.command import ppocli
from jsonschema import Draft202012Validator

from ppocli.core.audit_metrics import AUDIT_METRICS
from ppocli.core.metrics import METRICS
from ppocli.core.schema import document_schema

VALIDATOR = Draft202012Validator(document_schema())


def document(name: str = "full") -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(reports.BY_NAME[name]().to_dict()))
    return made


def test_the_schema_is_a_schema_and_the_command_prints_it() -> None:
    Draft202012Validator.check_schema(document_schema())
    done = ppocli("schema")
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout) == document_schema()


@pytest.mark.parametrize("name", reports.BY_NAME)
def test_documents_validate(name: str) -> None:
    VALIDATOR.validate(document(name))
    printed = ppocli("eval", name, "-f", "json").stdout
    VALIDATOR.validate(json.loads(printed))


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_is_described(name: str) -> None:
    properties = document_schema()["$defs"]["metrics"]["properties"]
    assert properties[name]["description"] == METRICS[name].text
    assert (f"{name}_finite" in properties) == bool(METRICS[name].needs)


Change = Callable[[dict[str, Any]], Any]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda d: d["metrics"].update(clip_fraction=0.1), id="unknown metric"),
        pytest.param(lambda d: d["metrics"].update(clip_frac="0.1"), id="text for a number"),
        pytest.param(lambda d: d["metrics"].update(clip_frac=True), id="bool for a number"),
        pytest.param(lambda d: d["metrics"].update(n_tokens=1.5), id="fraction for a count"),
        pytest.param(lambda d: d["metrics"].update(n_tokens=-1), id="negative count"),
        pytest.param(lambda d: d["metrics"].update(n_tokens=None), id="null for a count of tokens"),
        pytest.param(
            lambda d: d["metrics"].update(overflow_float16=0.5), id="fraction for an overflow count"
        ),
        pytest.param(lambda d: d["metrics"].update(n_tokens_finite=1), id="twin of a metric that has none"),
        pytest.param(lambda d: d["metrics"].update(policy_loss_by_agg=0.5), id="number for a mapping"),
        pytest.param(lambda d: d["metrics"]["policy_loss_by_agg"].update(mean=0.5), id="unknown aggregation"),
        pytest.param(lambda d: d["metrics"].pop("n_masked"), id="no count of masked tokens"),
        pytest.param(lambda d: d["nulls"].update(policy_loss={}), id="no reason"),
        pytest.param(lambda d: d["nulls"].update(policy_loss={"reason": ""}), id="empty reason"),
        pytest.param(lambda d: d["nulls"].update(loss={"reason": "x"}), id="null note of an unknown metric"),
        pytest.param(
            lambda d: d["nulls"].update(policy_loss={"reason": "x", "nonfinite": "NaN"}), id="other spelling"
        ),
        pytest.param(lambda d: d["settings"].pop("clip_low"), id="a setting is missing"),
        pytest.param(lambda d: d["settings"].update(clip_eps=0.2), id="unknown setting"),
        pytest.param(lambda d: d["settings"].update(agg="mean"), id="unknown choice"),
        pytest.param(lambda d: d["settings"].update(horizon=1.5), id="fraction for a length"),
        pytest.param(lambda d: d["inputs"][0].update(layout="ragged"), id="unknown layout"),
        pytest.param(lambda d: d["inputs"][0]["columns"].update(logp={}), id="unknown role"),
        pytest.param(lambda d: d["inputs"][0]["columns"]["mask"].pop("n_nan"), id="a count is missing"),
        pytest.param(lambda d: d["findings"][0].update(code="PPO999"), id="other code"),
        pytest.param(lambda d: d["findings"][0].update(severity="fatal"), id="unknown severity"),
        pytest.param(lambda d: d["findings"][0]["where"].pop("row"), id="place without a row"),
        pytest.param(lambda d: d["worst"][0].update(by="ratio"), id="unknown ranking"),
        pytest.param(lambda d: d.update(kind="check"), id="another kind"),
        pytest.param(lambda d: d.update(status="fine"), id="unknown status"),
        pytest.param(lambda d: d.update(exit_code=7), id="unknown exit code"),
        pytest.param(lambda d: d.update(schema_version=1), id="number for the version"),
        pytest.param(lambda d: d.pop("run"), id="no run"),
        pytest.param(lambda d: d.update(extra=1), id="unknown key"),
    ],
)
def test_what_is_wrong_does_not_validate(change: Change) -> None:
    good = document()
    bad = copy.deepcopy(good)
    change(bad)
    assert bad != good
    assert VALIDATOR.is_valid(good)
    assert not VALIDATOR.is_valid(bad)


@pytest.mark.parametrize("name", ["nulls", "empty"])
def test_every_null_has_its_reason(name: str) -> None:
    made = document(name)
    absent = [key for key, value in made["metrics"].items() if value is None]
    absent += [
        f"policy_loss_by_agg.{key}"
        for key, one in made["metrics"]["policy_loss_by_agg"].items()
        if one is None
    ]
    assert sorted(absent) == sorted(made["nulls"])


def test_settings_of_reading_and_of_the_data_are_allowed() -> None:
    made = document()
    made["settings"] |= {"columns": {"mask": "m"}, "layout": "time", "sum_dims": True, "bits": ["log_probs"]}
    made["settings"] |= {"adv_norm_mean": 0.5, "adv_norm_std": 1.0, "adv_norm_note": "x"}
    VALIDATOR.validate(made)
    made["settings"]["columns"] = {"m": "mask"}
    assert not VALIDATOR.is_valid(made)


def inspect_document(name: str = "several") -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(inspected.BY_NAME[name]().to_dict()))
    return made


@pytest.mark.parametrize("name", inspected.BY_NAME)
def test_documents_of_inspect_validate(name: str) -> None:
    VALIDATOR.validate(inspect_document(name))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda d: d.update(kind="eval"), id="another kind"),
        pytest.param(lambda d: d.update(metrics={}), id="a key of eval"),
        pytest.param(lambda d: d.pop("n_schemas"), id="no count of schemas"),
        pytest.param(lambda d: d["files"][0].update(rows=-1), id="negative rows"),
        pytest.param(lambda d: d["files"][0].pop("ready"), id="readiness missing"),
        pytest.param(lambda d: d["files"][0].update(layout="rows"), id="unknown layout"),
        pytest.param(lambda d: d["files"][0]["columns"][0].update(role="reward"), id="unknown role"),
        pytest.param(lambda d: d["files"][0]["columns"][0].update(min="-1"), id="text for a number"),
        pytest.param(
            lambda d: d["files"][0]["columns"][0].update(nonfinite={"min": "nan"}), id="a NaN limit"
        ),
        pytest.param(lambda d: d["files"][0]["columns"][0].pop("n_null"), id="nulls missing"),
        pytest.param(lambda d: d["files"][0]["plan"].update(batch_rows=[1]), id="one end of a range"),
        pytest.param(lambda d: d["files"][2]["scan"].update(tokens=None), id="no count of tokens"),
        pytest.param(
            lambda d: d["files"][2]["scan"]["columns"]["log_probs"].update(exact_in=["int8"]),
            id="unknown number format",
        ),
        pytest.param(lambda d: d["settings"].pop("scan"), id="scan not echoed"),
    ],
)
def test_wrong_documents_of_inspect_do_not_validate(change: Change) -> None:
    wrong = copy.deepcopy(inspect_document())
    change(wrong)
    assert not VALIDATOR.is_valid(wrong)


def check_document(name: str = "mixed") -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(checked.BY_NAME[name]().to_dict()))
    return made


@pytest.mark.parametrize("name", checked.BY_NAME)
def test_documents_of_check_validate(name: str) -> None:
    VALIDATOR.validate(check_document(name))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda d: d.update(kind="eval"), id="another kind"),
        pytest.param(lambda d: d.pop("checks"), id="no checks"),
        pytest.param(lambda d: d.pop("gate"), id="no gate"),
        pytest.param(lambda d: d.pop("settings"), id="no settings"),
        pytest.param(lambda d: d["checks"][0].update(status="failed"), id="unknown status"),
        pytest.param(lambda d: d["checks"][0].pop("reason"), id="a failure without a reason"),
        pytest.param(lambda d: d["checks"][0].update(kind="limit"), id="unknown kind of check"),
        pytest.param(lambda d: d["checks"][0].update(value="0.1"), id="text for a value"),
        pytest.param(lambda d: d["checks"][0].update(limit=None), id="no limit"),
        pytest.param(lambda d: d["checks"][0].update(key={}), id="an empty key"),
        pytest.param(lambda d: d["checks"][0].update(extra=1), id="unknown key"),
        pytest.param(lambda d: d["gate"].update(fail_on="info"), id="unknown severity"),
        pytest.param(lambda d: d["gate"].pop("notes"), id="no notes"),
        pytest.param(lambda d: d["gate"].update(on_policy_tol=-1), id="negative tolerance"),
    ],
)
def test_wrong_documents_of_check_do_not_validate(change: Change) -> None:
    wrong = copy.deepcopy(check_document())
    change(wrong)
    assert wrong != check_document()
    assert not VALIDATOR.is_valid(wrong)


def audit_document() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(audited.report().to_dict()))
    return made


def test_documents_of_audit_validate() -> None:
    VALIDATOR.validate(audit_document())


@pytest.mark.parametrize("name", AUDIT_METRICS)
def test_every_number_of_an_audit_is_described(name: str) -> None:
    answers = document_schema()["$defs"]["audit"]["additionalProperties"]["properties"]
    for question, answer in answers.items():
        described = answer["properties"].get(name, {}).get("description")
        wanted = question in AUDIT_METRICS[name].questions
        assert described == (AUDIT_METRICS[name].text if wanted else None)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda d: d.update(kind="eval"), id="another kind"),
        pytest.param(lambda d: d.pop("audit"), id="no audit"),
        pytest.param(lambda d: d.update(groups=[]), id="a key of eval"),
        pytest.param(lambda d: d["audit"].update(float31={}), id="unknown format"),
        pytest.param(lambda d: d["audit"]["int8"].pop("storage"), id="a question is missing"),
        pytest.param(lambda d: d["audit"]["int8"]["storage"].pop("clip_flips"), id="a metric is missing"),
        pytest.param(
            lambda d: d["audit"]["int8"]["storage"].update(clip_flips=0.5), id="fraction for a count"
        ),
        pytest.param(lambda d: d["audit"]["int8"]["storage"].update(loss=1.0), id="unknown metric"),
        pytest.param(
            lambda d: d["audit"]["bfloat16"]["arithmetic"].update(step_p50=1.0), id="other question"
        ),
        pytest.param(lambda d: d["audit"]["int8"]["storage"].update(verdict="fine"), id="unknown verdict"),
        pytest.param(
            lambda d: d["nulls"].update({"audit.int8.storage.loss": {"reason": "x"}}), id="other null"
        ),
        pytest.param(lambda d: d["recommendation"].update(storage="int4"), id="unknown storage"),
        pytest.param(lambda d: d["settings"].update(accumulate="float16"), id="unknown accumulation"),
        pytest.param(
            lambda d: d["reduction"]["stops"].update(naive=1.5), id="fraction for a number of tokens"
        ),
        pytest.param(lambda d: d["holds"].update(log_probs=["float32"]), id="a format that is not narrow"),
    ],
)
def test_wrong_documents_of_audit_do_not_validate(change: Change) -> None:
    wrong = copy.deepcopy(audit_document())
    change(wrong)
    assert VALIDATOR.is_valid(audit_document())
    assert not VALIDATOR.is_valid(wrong)
