from __future__ import annotations

import csv
import json
from io import StringIO

import inspected
import pytest
import reports

from ppocli.render.console import Look
from ppocli.render.formats import inspect_text


def table(name: str, form: str = "csv") -> list[dict[str, str]]:
    text = inspect_text(inspected.BY_NAME[name](), form, Look())
    return list(csv.DictReader(StringIO(text), delimiter="," if form == "csv" else "\t"))


def test_json_is_the_document() -> None:
    made = inspected.BY_NAME["several"]()
    assert json.loads(inspect_text(made, "json", Look())) == json.loads(json.dumps(made.to_dict()))


def test_jsonl_has_a_line_for_each_file_and_one_for_the_rest() -> None:
    made = inspected.BY_NAME["several"]()
    first, second, third, total = map(json.loads, inspect_text(made, "jsonl", Look()).splitlines())
    document = json.loads(json.dumps(made.to_dict()))
    for line, one in zip((first, second, third), document["files"], strict=True):
        assert line == {"schema_version": "1", "kind": "file", **one}
    assert total == {**{key: one for key, one in document.items() if key != "files"}, "kind": "total"}


def test_csv_has_a_row_for_each_column() -> None:
    rows = table("several")
    assert [(row["path"], row["name"]) for row in rows[:7]] == [
        *(("rollouts.parquet", name) for name in ("log_probs", "old_logp", "a", "keep", "seq", "text")),
        ("dump.npz", "log_probs"),
    ]
    assert table("several", "tsv") == rows


def test_csv_cells() -> None:
    first, second, third, mask = table("one")[:4]
    assert (first["min"], first["max"], first["n_null"]) == ("-38.125", "0.0", "0")
    assert (first["format"], first["rows"], first["ready"], first["schema"]) == ("parquet", "12", "true", "1")
    assert (second["min"], second["max"], second["found_by"]) == ("-inf", "-0.5", "alias")
    assert (third["n_null"], third["min"], third["shape"]) == ("", "", "")
    assert (mask["min"], mask["max"]) == ("false", "true")
    array, scalar, broken = table("npz")
    assert (array["shape"], scalar["shape"], broken["values"], array["ready"]) == ("2 3", "", "", "false")


def test_csv_with_a_scan() -> None:
    assert not any(name.startswith("scan.") for name in table("one")[0])
    rows = {row["name"]: row for row in table("scanned")}
    assert rows["old_logp"]["scan.n_neginf"] == "4"
    assert rows["old_logp"]["scan.zero_frac"] == "0.0625"
    assert rows["old_logp"]["scan.exact_in"] == "bfloat16 float16"
    assert rows["a"]["scan.min"] == ""
    assert rows["text"]["scan.n_null"] == ""


def test_a_file_without_columns_has_a_row() -> None:
    made = inspected.report(inspected.parquet_file(columns=(), plan=None))
    rows = list(csv.DictReader(StringIO(inspect_text(made, "csv", Look()))))
    assert [(row["path"], row["name"]) for row in rows] == [("rollouts.parquet", "")]


@pytest.mark.parametrize("form", ["csv", "tsv"])
def test_odd_names(form: str) -> None:
    text = inspect_text(inspected.odd_names(), form, Look())
    assert "\x1b" not in text
    assert len(text.splitlines()) == 2
    assert json.loads(inspect_text(inspected.odd_names(), "json", Look()))["files"][0]["path"] == (
        reports.ODD_NAME
    )
