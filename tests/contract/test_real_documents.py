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
