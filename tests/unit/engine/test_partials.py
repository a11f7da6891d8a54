"""Partial documents: exact to the bit, checked for damage, and refused where a merge would not be one run."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import partial_files
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jsonschema import Draft202012Validator

import ppocli
from ppocli.core.partial_document import as_float, digest, number, packed, unpacked
from ppocli.core.schema import document_schema
from ppocli.errors import InputError, PpoCliError, UsageProblem


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [partial_files.write(kind, tmp_path / f"{kind}.parquet", 3, 20) for kind in ("list", "flat")]


def saved(folder: Path, name: str, document: dict[str, Any]) -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(document, allow_nan=False), encoding="utf-8")
    return path


# ------------------------------------------------------------------------------------------ values


@pytest.mark.parametrize("value", [0.1, -0.0, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan])
def test_floats_come_back_with_their_bits(value: float) -> None:
    back = as_float(json.loads(json.dumps(number(value), allow_nan=False)))
    assert np.float64(back).tobytes() == np.float64(value).tobytes()


@pytest.mark.parametrize("raw", [1, "1.0", True, None, "Infinity", [1.0]])
def test_what_is_no_float_is_refused(raw: Any) -> None:
    with pytest.raises(ValueError, match="not a number"):
        as_float(raw)


@pytest.mark.parametrize(
    "values",
    [
        np.array([[np.nan, -0.0, np.inf], [1.0, 2.0, 5e-324]]),
        np.array([-(2**63), 2**63 - 1]),
        np.array([True, False]),
        np.zeros((0, 2)),
        np.array([1.5, 2.5]).astype(">f8"),
    ],
    ids=["floats", "whole numbers", "truth", "nothing", "other byte order"],
)
def test_arrays_come_back_with_their_bits(values: np.ndarray) -> None:
    back = unpacked(json.loads(json.dumps(packed(values))))
    assert back.shape == values.shape
    assert back.tobytes() == values.astype(values.dtype.newbyteorder("=")).tobytes()
    assert back.dtype.isnative
    assert back.flags.writeable


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "|O"},
        {"dtype": "<f4"},
        {"shape": [3]},
        {"shape": [-1]},
        {"shape": [2.0]},
        {"shape": [1 << 40]},
        {"zlib": "AAAA"},
        {"zlib": "?"},
        {"zlib": 7},
        {"more": 1},
    ],
)
def test_damaged_arrays_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"array|shape"):
        unpacked({**packed(np.array([1.0, 2.0])), **change})


# ---------------------------------------------------------------------------------------- documents


def test_the_sums_of_a_file_are_in_its_entry_as_they_are(tmp_path: Path) -> None:
    """Two tokens whose log-ratios are 0.5 and -0.25: sums, squares and extremes by hand."""
    path = tmp_path / "two.parquet"
    columns = {"log_probs": [-0.5, -1.25], "old_log_probs": [-1.0, -1.0], "advantages": [2.0, -4.0]}
    pq.write_table(pa.table(columns), path)
    document = json.loads(json.dumps(ppocli.partials(path, worst=1)))
    Draft202012Validator(document_schema()).validate(document)
    (entry,) = document["files"]
    totals = entry["state"]["totals"]
    from ppocli.core.partials import EXTREMES, SUM

    assert unpacked(totals["hi"])[SUM["log_ratio"]] == 0.25
    assert unpacked(totals["hi"])[SUM["adv"]] == -2.0
    assert unpacked(totals["extremes"])[EXTREMES.index("log_ratio")].tolist() == [-0.25, 0.5]
    assert totals["n_tokens"] == 2
    assert [["log_ratio", 1], [0, None, None]] in totals["places"]
    assert entry["bytes"] == path.stat().st_size
    assert entry["sha256"] == digest(entry)
    assert document["n_paths"] == 1


def test_partials_stay_small(files: list[Path], tmp_path: Path) -> None:
    for path in files:
        document = ppocli.partials(path)
        assert saved(tmp_path, "small", document).stat().st_size < 100_000


def test_documents_validate(files: list[Path]) -> None:
    document = json.loads(json.dumps(ppocli.partials(files, like="verl", worst=2)))
    Draft202012Validator(document_schema()).validate(document)


def test_unreadable_files_are_counted_and_named(files: list[Path], tmp_path: Path) -> None:
    bad = tmp_path / "bad.parquet"
    bad.write_bytes(b"PAR1 and nothing more")
    with pytest.raises(InputError) as caught:
        ppocli.partials([files[0], bad])
    assert caught.value.where == str(bad)
    document = ppocli.partials([bad, files[0]], skip_bad=True)
    report = ppocli.merge([saved(tmp_path, "a", document)])
    assert [one.path for one in report.skipped] == [str(bad)]
    one = ppocli.evaluate([bad, files[0]], skip_bad=True)
    assert report.metrics == one.metrics
    assert report.groups == one.groups  # two paths, so that the one file has its row


# ----------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"micro_batch": 4}, "--micro-batch"),
        ({"adv_norm": "batch"}, "--adv-norm batch"),
        ({"adv_norm": "group"}, "--adv-norm group"),
        ({"adv_norm": "minibatch:8"}, "--adv-norm minibatch:8"),
        ({"like": "sb3"}, "--adv-norm"),
    ],
)
def test_what_goes_over_several_files_is_refused(
    files: list[Path], settings: dict[str, Any], what: str
) -> None:
    with pytest.raises(UsageProblem, match=what):
        ppocli.partials(files, **settings)


def test_standard_input_is_refused() -> None:
    with pytest.raises(UsageProblem, match="standard input"):
        ppocli.partials("-")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"clip_eps": 0.3}, "clip_high 0.3, not 0.2; clip_low 0.3, not 0.2"),
        ({"columns": {"advantages": "values"}}, "columns {'advantages': 'values'}, not None"),
        ({"worst": 2}, "worst 2, not 0"),
        ({"like": "verl"}, "like 'verl', not None"),
    ],
)
def test_other_settings_are_refused(
    files: list[Path], tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    a = saved(tmp_path, "a", ppocli.partials(files[0]))
    b = saved(tmp_path, "b", ppocli.partials(files[1], **settings))
    with pytest.raises(InputError) as caught:
        ppocli.merge([a, b])
    assert said in caught.value.message
    assert caught.value.where == str(b)


def test_a_file_counts_once(files: list[Path], tmp_path: Path) -> None:
    a = saved(tmp_path, "a", ppocli.partials(files))
    b = saved(tmp_path, "b", ppocli.partials(files[1]))
    with pytest.raises(InputError, match="would count twice: it has one path"):
        ppocli.merge([a, b])
    with pytest.raises(InputError, match="given twice"):
        ppocli.merge([a, a])
    copied = tmp_path / "copy.parquet"
    copied.write_bytes(files[1].read_bytes())
    c = saved(tmp_path, "c", ppocli.partials(copied))
    with pytest.raises(InputError, match="one size and one content"):
        ppocli.merge([a, c])
    # One run counts a copy beside its original, and so does the merge of its document.
    both = saved(tmp_path, "both", ppocli.partials([files[1], copied]))
    assert ppocli.merge([both]).metrics["n_tokens"] == 2 * ppocli.evaluate(copied).metrics["n_tokens"]


def test_files_without_rows_look_alike(tmp_path: Path) -> None:
    names = [tmp_path / f"{k}.parquet" for k in range(2)]
    for name in names:
        columns = {role: pa.array([], pa.float64()) for role in ("log_probs", "old_log_probs", "advantages")}
        pq.write_table(pa.table(columns), name)
    parts = [saved(tmp_path, str(k), ppocli.partials(name)) for k, name in enumerate(names)]
    report = ppocli.merge(parts)
    assert (report.exit_code, report.metrics["n_tokens"], report.metrics["n_files"]) == (5, 0, 2)
    assert ppocli.merge(parts, allow_empty=True).exit_code == 0


def paths_in(value: Any, trail: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [trail, *(one for key, inner in items for one in paths_in(inner, (*trail, key)))]


def changed(document: dict[str, Any], trail: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A copy with one value replaced, or left out."""
    out = copy.deepcopy(document)
    inner: Any = out
    for key in trail[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[trail[-1]]
    else:
        inner[trail[-1]] = value
    return out


def test_any_damage_is_noticed_by_the_checksum(files: list[Path], tmp_path: Path) -> None:
    document = json.loads(json.dumps(ppocli.partials(files[0], worst=1)))
    trails = [trail for trail in paths_in(document["files"], ("files",)) if len(trail) > 2]
    assert len(trails) > 100
    for trail in trails[::7]:
        with pytest.raises(InputError, match=r"damaged|not complete"):
            ppocli.merge([saved(tmp_path, "damaged", changed(document, trail, "x"))])


def test_what_was_written_by_something_else_is_refused_in_words(files: list[Path], tmp_path: Path) -> None:
    """Values of other types with a checksum that fits: an error with the file, never a traceback."""
    document = json.loads(json.dumps(ppocli.partials(files[0], worst=1)))
    rng = np.random.default_rng(4)
    trails = [trail for trail in paths_in(document) if trail and trail[0] != "run"]
    odd = [None, -1, "x", [], {}, True, 1.5, 1 << 70, ...]
    codes = []
    for k in rng.permutation(len(trails))[:150]:
        made = changed(document, trails[k], odd[int(k) % len(odd)])
        for entry in made["files"] if isinstance(made.get("files"), list) else ():
            if isinstance(entry, dict):
                entry["sha256"] = digest(entry)
        try:
            ppocli.merge([saved(tmp_path, "odd", made)])
        except PpoCliError as problem:
            codes.append((int(problem.exit_code), trails[k]))
    assert len(codes) > 50
    assert [one for one in codes if one[0] not in (2, 3)] == []


@pytest.mark.parametrize("name", ["version", "partials_version", "schema_version"])
def test_other_versions_are_refused(files: list[Path], tmp_path: Path, name: str) -> None:
    document = {**ppocli.partials(files[0]), name: "0.0.0"}
    with pytest.raises(InputError, match=r"'0\.0\.0'"):
        ppocli.merge([saved(tmp_path, "old", document)])


def test_other_documents_are_refused(files: list[Path], tmp_path: Path) -> None:
    report = saved(tmp_path, "report", ppocli.evaluate(files[0]).to_dict())
    with pytest.raises(InputError, match="kind 'eval' cannot be merged"):
        ppocli.merge([report])
    with pytest.raises(UsageProblem, match="no document"):
        ppocli.merge([])
