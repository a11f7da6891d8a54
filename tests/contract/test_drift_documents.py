"""Documents of `ppocli drift` on real files: they validate, whatever is in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from contract.command import ppocli
from jsonschema import Draft202012Validator, ValidationError

from ppocli.core.drift_metrics import DRIFT_METRICS
from ppocli.core.schema import document_schema

SCHEMA = document_schema()
DRIFT = Draft202012Validator({**SCHEMA, "oneOf": [{"$ref": "#/$defs/drift"}]})


def save(path: Path, **changes: Any) -> Path:
    rng = np.random.default_rng(0)
    b = -rng.exponential(1.0, (5, 30))
    columns = {
        "old_log_probs": b + rng.normal(0, 0.1, b.shape),
        "rollout_log_probs": b,
        "log_probs": b + rng.normal(0, 0.1, b.shape),
        "advantages": rng.normal(0, 1, b.shape),
        "step": np.arange(5),
    }
    np.savez(path, **{**columns, **changes})
    return path


def printed(*arguments: str) -> dict[str, Any]:
    done = ppocli("drift", *arguments, "-f", "json", engine=False)
    assert done.returncode == 0, done.stderr

    def refuse(word: str) -> None:
        raise AssertionError(f"bare {word}")

    made: dict[str, Any] = json.loads(done.stdout, parse_constant=refuse)
    return made


@pytest.mark.parametrize("kind", ["plain", "nan", "far", "zero fill", "two files", "floor", "everything off"])
def test_documents_validate_and_explain_their_nulls(tmp_path: Path, kind: str) -> None:
    rollout = -np.random.default_rng(1).exponential(1.0, (5, 30))
    if kind == "nan":
        rollout[2, 3] = np.nan
    if kind == "far":
        rollout[2, 3] = -5000.0
    if kind == "zero fill":
        rollout[:, ::7] = 0.0
    path = save(tmp_path / "a.npz", rollout_log_probs=rollout)
    arguments = [str(path)]
    if kind == "two files":
        arguments = [str(path), str(path), "--roles", "advantages,log_probs"]
    elif kind == "floor":
        saved = tmp_path / "floor.json"
        ppocli("drift", str(path), "-f", "json", "-o", str(saved), engine=False)
        arguments += ["--floor", str(saved), "--tis-cap", "2", "--mask-low", "0.5", "--mask-high", "2"]
    elif kind == "everything off":
        arguments += ["--worst", "0", "--detail", "main", "--by", "total"]
    else:
        arguments += ["--by", "step"]
    document = printed(*arguments)
    DRIFT.validate(document)
    Draft202012Validator(SCHEMA).validate(document)
    for part in (document, *document.get("groups", []), *document.get("comparisons", [])):
        assert sorted(name for name, value in part["metrics"].items() if value is None) == sorted(
            part["nulls"]
        )


def test_documents_of_a_gate_validate(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz")
    limits = ("--max", "diff_abs_max=0", "--min", "chi2_seq=-1", "--max", "tis_frac_capped=1")
    done = ppocli("drift", str(path), *limits, "-f", "json", engine=False)
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    DRIFT.validate(document)
    assert [one["status"] for one in document["checks"]] == ["fail", "fail", "pass"]
    del document["checks"][0]["reason"]
    with pytest.raises(ValidationError):
        DRIFT.validate(document)


def test_documents_with_notes_validate(tmp_path: Path) -> None:
    mask = np.ones((5, 30), dtype=bool)
    one = save(tmp_path / "a.npz", mask=mask)
    mask[2, 3] = False
    document = printed(str(one), str(save(tmp_path / "b.npz", mask=mask)))
    DRIFT.validate(document)
    assert [note[:28] for note in document["notes"]] == ["the masks differ at 1 token:"]


def test_documents_with_steps_of_text_and_without_a_step_validate(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    steps = pa.array(["a", None, "b"])
    pq.write_table(
        pa.table({"old_log_probs": [-1.0] * 3, "rollout_log_probs": [-1.0] * 3, "step": steps}), path
    )
    document = printed(str(path), "--by", "step")
    DRIFT.validate(document)
    assert [part["step"] for part in document["by_step"]] == ["a", "b", None]


@pytest.mark.parametrize("name", DRIFT_METRICS)
def test_every_metric_is_described(name: str) -> None:
    properties = SCHEMA["$defs"]["drift_metrics"]["properties"]
    assert properties[name]["description"] == DRIFT_METRICS[name].text
    assert (f"{name}_finite" in properties) == bool(DRIFT_METRICS[name].needs)


def test_the_schema_refuses_what_is_wrong(tmp_path: Path) -> None:
    document = printed(str(save(tmp_path / "a.npz")))
    for change in (
        {"metrics": {**document["metrics"], "drift": 1.0}},
        {"kind": "eval"},
        {"histogram": [{"low": 0.0, "n": 1}]},
        {"corrections": [{"level": "row", "mode": "mask"}]},
    ):
        with pytest.raises(ValidationError):
            DRIFT.validate({**document, **change})


def test_the_command_says_nothing_but_the_document(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz")
    ppocli("drift", str(path), engine=False)
    done = ppocli("drift", str(path), engine=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\x1b" not in done.stdout
