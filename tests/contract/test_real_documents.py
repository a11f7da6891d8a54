"""Documents of the real engine on the sample data: they validate, and every format tells the same numbers."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from contract.command import ppocli
from jsonschema import Draft202012Validator

from ppocli.core.schema import document_schema

SAMPLES = Path(__file__).resolve().parents[2] / "sample_data"
OPTIONS = [
    [],
    ["--worst", "3", "--adv-norm", "batch", "--dual-clip", "3", "--clip-high", "0.28", "--horizon", "512"],
    ["--by", "total", "--log-ratio-clamp", "20", "--agg", "seq-mean-token-mean"],
]


def strict(text: bytes | str) -> dict[str, Any]:
    def refuse(word: str) -> None:
        raise AssertionError(f"bare {word}")

    document: dict[str, Any] = json.loads(text, parse_constant=refuse)
    return document


def nulls_of(metrics: dict[str, Any]) -> list[str]:
    absent = [name for name, value in metrics.items() if value is None]
    by_agg = metrics.get("policy_loss_by_agg") or {}
    return sorted([*absent, *(f"policy_loss_by_agg.{name}" for name, one in by_agg.items() if one is None)])


@pytest.mark.parametrize("options", OPTIONS)
def test_real_documents_validate_and_explain_their_nulls(options: list[str]) -> None:
    done = ppocli("eval", str(SAMPLES), "-f", "json", *options, engine=False)
    assert done.returncode == 0
    document = strict(done.stdout)
    Draft202012Validator(document_schema()).validate(document)
    for part in (document, *document.get("groups", [])):
        assert nulls_of(part["metrics"]) == sorted(part["nulls"])
    assert len(document["inputs"]) == len(list(SAMPLES.glob("*.parquet")) + list(SAMPLES.glob("*.npz")))


def test_every_format_tells_the_same_numbers(tmp_path: Path) -> None:
    names = ["a.json", "a.jsonl", "a.csv", "a.tsv", "a.md"]
    exports = [word for name in names for word in ("--export", str(tmp_path / name))]
    files = [str(SAMPLES / name) for name in ("healthy.parquet", "padded.npz")]
    done = ppocli("eval", *files, "--digits", "17", *exports, engine=False)
    assert done.returncode == 0
    document = strict((tmp_path / "a.json").read_text())
    lines = [strict(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [line["metrics"] for line in lines] == [
        *(one["metrics"] for one in document["groups"]),
        document["metrics"],
    ]
    with (tmp_path / "a.csv").open(newline="") as stream:
        table = list(csv.DictReader(stream))
    with (tmp_path / "a.tsv").open(newline="") as stream:
        assert list(csv.DictReader(stream, delimiter="\t")) == table
    screen, markdown = done.stdout.decode(), (tmp_path / "a.md").read_text()
    for name in ("policy_loss", "clip_frac", "approx_kl_k3", "ratio_max", "ess_frac"):
        value = document["metrics"][name]
        assert float(table[-1][name]) == value
        [row] = [line for line in screen.splitlines() if line.startswith(f"{name} ")]
        assert float(row.split()[1]) == value
        escaped = name.replace("_", r"\_")
        [row] = [line for line in markdown.splitlines() if line.startswith(f"| {escaped} |")]
        assert float(row.split("|")[2]) == value


def test_a_missing_file_is_an_input_error_and_an_empty_pattern_nothing_to_do(tmp_path: Path) -> None:
    missing = ppocli("eval", str(tmp_path / "a.parquet"), engine=False)
    assert (missing.returncode, missing.stdout) == (3, b"")
    assert b"a.parquet" in missing.stderr
    nothing = ppocli("eval", str(tmp_path / "*.parquet"), engine=False)
    assert (nothing.returncode, nothing.stdout) == (5, b"")


@pytest.mark.parametrize("options", [[], ["--scan"]])
def test_inspect_describes_every_sample(options: list[str]) -> None:
    done = ppocli("inspect", str(SAMPLES), "-f", "json", *options, engine=False)
    assert (done.returncode, done.stderr) == (0, b"")
    document = strict(done.stdout)
    Draft202012Validator(document_schema()).validate(document)
    assert all(one["ready"] for one in document["files"])
    assert len(document["files"]) == len(list(SAMPLES.glob("*.parquet")) + list(SAMPLES.glob("*.npz")))


def test_inspect_and_eval_agree_about_roles_rows_and_counts() -> None:
    looked = strict(ppocli("inspect", str(SAMPLES), "-f", "json", "--scan", engine=False).stdout)
    evaluated = strict(ppocli("eval", str(SAMPLES), "-f", "json", engine=False).stdout)
    for file, one in zip(looked["files"], evaluated["inputs"], strict=True):
        assert {key: file[key] for key in ("path", "format", "layout", "rows", "bytes")} == {
            key: one[key] for key in ("path", "format", "layout", "rows", "bytes")
        }
        played = {column["role"]: column["name"] for column in file["columns"] if "role" in column}
        assert played == {role: column["column"] for role, column in one["columns"].items()}
        assert (file["scan"]["tokens"], file["scan"]["masked"]) == (one["tokens"], one["masked"])
        for role, counted in file["scan"]["columns"].items():
            kinds = ("n_null", "n_nan", "n_posinf", "n_neginf")
            if role not in ("group_id", "sequence_id", "step", "rollout_log_probs"):
                assert [counted[kind] for kind in kinds] == [one["columns"][role][kind] for kind in kinds]


def test_inspect_refuses_what_is_damaged_as_eval_does(tmp_path: Path) -> None:
    for name in ("healthy.parquet", "padded.npz"):
        cut = tmp_path / name
        cut.write_bytes((SAMPLES / name).read_bytes()[:-20])
        said = [ppocli(command, str(cut), engine=False) for command in ("eval", "inspect")]
        assert [(one.returncode, one.stdout) for one in said] == [(3, b"")] * 2
        assert said[0].stderr == said[1].stderr


def test_real_gates_validate_and_judge_the_numbers_of_eval() -> None:
    limits = ["--max", "clip_frac=0.3", "--min", "ess_frac=0.8", "--max", "drift.diff_abs_mean=0.1"]
    done = ppocli("check", str(SAMPLES), "-f", "json", "--by", "file", *limits, engine=False)
    assert done.returncode == 1
    document = strict(done.stdout)
    Draft202012Validator(document_schema()).validate(document)
    metrics = {one["key"]["file"]: one["metrics"] for one in document["groups"]}
    for check in document["checks"]:
        if "key" in check and not check["metric"].startswith("drift."):
            value = metrics[check["key"]["file"]][check["metric"]]
            assert check["value"] == value
            kept = value is not None and (value <= 0.3 if check["kind"] == "max" else value >= 0.8)
            assert (check["status"] == "pass") == kept
    assert {one["name"] for one in document["checks"] if one["kind"] == "finding"} == {"PPO101"}


@pytest.mark.parametrize(("form", "word"), [("junit", "<error "), ("github", "::error "), ("json", "")])
def test_an_unreadable_shard_in_a_gate_is_3_and_ci_is_told(tmp_path: Path, form: str, word: str) -> None:
    whole = (SAMPLES / "healthy.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(whole)
    (tmp_path / "b.parquet").write_bytes(whole[:-20])
    for more in ([], ["--exit-zero"], ["--max", "clip_frac=0"]):
        done = ppocli("check", str(tmp_path), "-f", form, *more, engine=False)
        assert done.returncode == 3
        assert b"b.parquet" in done.stderr
        assert bool(done.stdout) == bool(word)
        assert word in done.stdout.decode()


def test_a_saved_report_is_judged_as_the_data_are(tmp_path: Path) -> None:
    data, saved = str(SAMPLES / "overflow.npz"), str(tmp_path / "report.json")
    limits = ["--max", "approx_kl_k3=0.05", "--max", "approx_kl_k3_finite=1e60", "--expect-on-policy"]
    fresh = ppocli("check", data, *limits, "-f", "json", engine=False)
    assert ppocli("eval", data, "--export", saved, engine=False).returncode == 0
    again = ppocli("check", saved, *limits, "-f", "json", engine=False)
    assert fresh.returncode == again.returncode == 1
    assert strict(fresh.stdout)["checks"] == strict(again.stdout)["checks"]


def test_limits_are_judged_for_each_step(tmp_path: Path) -> None:
    old = [-1.0] * 6
    # Ratios 1 at steps 1 and 3, 1.5 at the second token of step 2.
    new = [-1.0, -1.0, -1.0, -1.0 + math.log(1.5), -1.0, -1.0]
    columns = {
        "log_probs": new,
        "old_log_probs": old,
        "advantages": [1.0] * 6,
        "iteration": [1, 1, 2, 2, 3, 3],
    }
    data, saved = str(tmp_path / "a.parquet"), str(tmp_path / "report.json")
    pq.write_table(pa.table(columns), data)
    by_step = ["--by", "step", "--max", "clip_frac=0.25"]
    found = ["--col", "step=iteration", "--export", saved]
    done = ppocli("check", data, *by_step, *found, "-f", "json", engine=False)
    assert (done.returncode, done.stderr) == (1, b"")
    document = strict(done.stdout)
    Draft202012Validator(document_schema()).validate(document)
    judged = [(one["key"], one["value"], one["status"]) for one in document["checks"] if "key" in one]
    assert judged == [({"step": 1}, 0.0, "pass"), ({"step": 2}, 0.5, "fail"), ({"step": 3}, 0.0, "pass")]
    screen = ppocli("check", data, *by_step, *found[:2], engine=False).stdout.decode()
    assert re.search(r"^2 +clip_frac <= 0.25 +0.5 +FAIL", screen, re.MULTILINE)
    github = ppocli("check", data, *by_step, *found[:2], "-f", "github", engine=False).stdout.decode()
    assert github.startswith(
        "::error title=ppocli clip_frac <= 0.25::step 2: clip_frac: 0.5 is more than 0.25%0A"
    )
    junit = ppocli("check", data, *by_step, *found[:2], "-f", "junit", engine=False).stdout.decode()
    assert re.findall(r'<testsuite name="([^"]*)"', junit) == ["step 1", "step 2", "step 3", data]
    again = ppocli("check", saved, "--by", "step", "--max", "clip_frac=0.5", engine=False)
    assert again.returncode == 0
    assert ppocli("check", data, *by_step, engine=False).returncode == 3
    masked = {**columns, "mask": [0] * 6}
    pq.write_table(pa.table(masked), data)
    assert ppocli("check", data, *by_step, *found[:2], engine=False).returncode == 5


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--formats", "float8_e4m3fn,float8_e5m2_saturating,int8,int8_per_sequence", "--accumulate", "same"],
        ["--with-advantages", "--adv-norm", "batch", "--dual-clip", "3", "--log-ratio-clamp", "20"],
    ],
)
def test_real_audits_validate_and_explain_their_nulls(options: list[str]) -> None:
    done = ppocli("audit", str(SAMPLES), "-f", "json", *options, engine=False)
    assert done.returncode == 0
    document = strict(done.stdout)
    Draft202012Validator(document_schema()).validate(document)
    absent = [
        f"audit.{name}.{question}.{metric}"
        for name, questions in document["audit"].items()
        for question, values in questions.items()
        for metric, value in values.items()
        if value is None
    ]
    assert sorted([*nulls_of(document["metrics"]), *absent]) == sorted(document["nulls"])


def test_an_evaluation_with_an_audit_validates() -> None:
    done = ppocli("eval", str(SAMPLES), "-f", "json", "--audit-formats", "bfloat16,int8", engine=False)
    assert done.returncode == 0
    Draft202012Validator(document_schema()).validate(strict(done.stdout))
