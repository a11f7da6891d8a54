"""Advantages normalised within scopes over several files, each evaluated by itself: the report of one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import partial_files
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ppocli.core.progress import NoProgress
from ppocli.core.spec import LossSpec
from ppocli.engine.by_file import ByFile
from ppocli.engine.evaluate import evaluate_files
from ppocli.engine.where import Here
from ppocli.errors import InputError


def by_file(run: Any, worst: int) -> ByFile:
    return ByFile(run, worst, Here(NoProgress()), keep=False)


def answer(report: Any) -> str:
    document = report.to_dict()
    del document["run"]
    return json.dumps(document, sort_keys=True)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Groups 0 to 4, by number or by name, stand in several of them."""
    folder = tmp_path_factory.mktemp("files")
    kinds = ("list", "text", "flat", "text", "list")
    made = [partial_files.write(kind, folder / f"{k}.parquet", k, 60 + k) for k, kind in enumerate(kinds)]
    return [str(path) for path in made]


@pytest.mark.parametrize(
    "spec",
    [
        LossSpec(adv_norm="group"),
        LossSpec(adv_norm="minibatch:7"),
        LossSpec(adv_norm="group", adv_norm_unit="sequence", adv_norm_ddof=1),
        LossSpec(adv_norm="batch", adv_norm_unit="sequence"),
        LossSpec(adv_norm="group", objective="gspo"),
    ],
    ids=["group", "minibatch", "sequences of a group", "sequences", "gspo"],
)
def test_it_is_the_report_of_one_run(files: list[str], spec: LossSpec) -> None:
    for paths in (files, files[2:3], files[::-1]):
        one = evaluate_files(paths, spec, worst=2)
        assert one.metrics["n_tokens"] > 1000
        assert answer(evaluate_files(paths, spec, worst=2, engine=by_file)) == answer(one)


@pytest.mark.parametrize("engine", [None, by_file], ids=["one run", "by file"])
@pytest.mark.parametrize("adv_norm", ["group", "minibatch:3"])
def test_scopes_go_over_files(tmp_path: Path, adv_norm: str, engine: Any) -> None:
    """Inside the clip interval the loss is -mean(ratio (A - m) / (s + 1e-8)), m and s by scope, by hand."""
    advantages = [[1.0, 2.0, 4.0, 7.0], [3.0, 5.0, 11.0, 13.0, 17.0]]
    groups = [["a", "a", "b", "b"], ["b", "b", "a", "c", "c"]]
    ratios = [[1.0, 1.1, 0.9, 1.0], [1.15, 1.0, 0.95, 1.0, 1.05]]
    paths = []
    for k, (adv, group, ratio) in enumerate(zip(advantages, groups, ratios, strict=True)):
        paths.append(str(tmp_path / f"{k}.parquet"))
        new, old = np.log(ratio), np.zeros(len(adv))
        columns = {"log_probs": new, "old_log_probs": old, "advantages": adv, "group_id": group}
        pq.write_table(pa.table(columns), paths[-1])
    flat = np.concatenate(advantages)
    scope = np.arange(9) // 3 if adv_norm != "group" else np.array([*"aabbbbacc"])
    normal = np.empty(9)
    for one in np.unique(scope):
        values = flat[scope == one]
        normal[scope == one] = (values - values.mean()) / (values.std() + 1e-8)
    report = evaluate_files(paths, LossSpec(adv_norm=adv_norm), engine=engine)
    expected = -np.mean(np.concatenate(ratios) * normal)
    assert report.metrics["policy_loss"] == pytest.approx(expected, rel=1e-12)


def test_a_file_left_out_leaves_no_trace_in_the_scopes(files: list[str], tmp_path: Path) -> None:
    bad = tmp_path / "bad.parquet"
    pq.write_table(pq.read_table(files[0]), bad, write_page_checksum=True)
    whole = bytearray(bad.read_bytes())
    whole[len(whole) // 3] ^= 255
    bad.write_bytes(whole)
    paths, spec = [files[2], str(bad), files[4]], LossSpec(adv_norm="minibatch:7")
    with pytest.raises(InputError, match=r"bad\.parquet"):
        evaluate_files(paths, spec, engine=by_file)
    left = evaluate_files(paths, spec, skip_bad=True, engine=by_file)
    assert [one.path for one in left.skipped] == [str(bad)]
    assert left.metrics == evaluate_files([files[2], files[4]], spec).metrics
