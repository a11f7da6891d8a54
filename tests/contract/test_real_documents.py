"""Documents of the real engine on the sample data: they validate, and every format tells the same numbers."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

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
