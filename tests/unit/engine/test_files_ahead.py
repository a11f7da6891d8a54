"""Files in flight: the same chunks, reports and errors as one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ppocli
from ppocli.core.chunk import IdCoder, ReadOptions
from ppocli.engine import files_ahead
from ppocli.engine.files_ahead import in_flight
from ppocli.engine.pipeline import Ready
from ppocli.errors import InputError
from ppocli.io.source import open_input

ROLES = ("log_probs", "old_log_probs", "advantages")


def write(folder: Path, n_files: int, **more: Any) -> list[str]:
    rng = np.random.default_rng(4)
    paths = []
    for k in range(n_files):
        columns = {name: -rng.random(30 + k) for name in ROLES}
        columns |= {name: make(k, 30 + k) for name, make in more.items()}
        paths.append(str(folder / f"{k:02}.parquet"))
        pq.write_table(pa.table(columns), paths[-1])
    return paths


def openers(paths: list[str], opened: list[str]) -> list[Any]:
    coders = {"sequence_id": IdCoder()}

    def opener(path: str) -> Any:
        def open_one() -> Any:
            opened.append(path)
            return open_input(path, ReadOptions(), coders)

        return open_one

    return [opener(path) for path in paths]


def test_chunks_are_those_of_the_file_whose_turn_it_is(tmp_path: Path) -> None:
    paths, opened, ready = write(tmp_path, 20), list[str](), 0
    for path, open_one in zip(paths, in_flight(paths, openers(paths, opened)), strict=True):
        reader = open_one()
        assert reader.report.path == path
        chunks = reader.chunks(frozenset(ROLES), 1 << 16)
        ready += isinstance(chunks, Ready)
        found = np.concatenate([one.columns["advantages"].values for one in chunks])
        assert found.tolist() == pq.read_table(path)["advantages"].to_pylist()
        reader.close()
    assert sorted(opened) == paths
    assert ready >= 8, "files are read in advance"


def test_other_roles_than_those_foreseen_are_read(tmp_path: Path) -> None:
    paths = write(tmp_path, 12)
    for k, open_one in enumerate(in_flight(paths, openers(paths, []))):
        wanted = frozenset(ROLES[: 1 + k % 3])
        (chunk,) = open_one().chunks(wanted, 1 << 16)
        assert frozenset(chunk.columns) == wanted


def test_files_are_foreseen_only_in_turn(tmp_path: Path) -> None:
    paths, opened = write(tmp_path, 12), list[str]()
    open_each = in_flight(paths, openers(paths, opened))
    for index in (5, 2, 9, 2):
        assert open_each[index]().report.path == paths[index]
    assert opened == [paths[index] for index in (5, 2, 9, 2)]
    assert open_each[3]().report.path == paths[3]
    assert open_each[4]().report.path == paths[4]


@pytest.mark.parametrize("bad", [0, 3, 10])
def test_the_first_bad_file_is_the_one_reported(tmp_path: Path, bad: int) -> None:
    paths = write(tmp_path, 16)
    for index in (bad, bad + 2, bad + 3):
        Path(paths[index]).write_bytes(Path(paths[index]).read_bytes()[:-9])
    with pytest.raises(InputError) as failure:
        ppocli.evaluate(paths)
    assert failure.value.where == paths[bad]
    report = ppocli.evaluate(paths, skip_bad=True)
    assert [one.path for one in report.skipped] == [paths[bad + k] for k in (0, 2, 3)]
    assert len(report.inputs) == 13


def test_text_ids_get_their_codes_in_order(tmp_path: Path) -> None:
    paths = write(tmp_path, 10, sequence_id=lambda k, n: [f"{(7 * k + i) % 11}" for i in range(n)])
    for open_one in in_flight(paths, openers(paths, [])):
        assert not isinstance(open_one().chunks(frozenset((*ROLES, "sequence_id")), 1 << 16), Ready)


def test_the_result_is_that_of_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = write(tmp_path, 20, group_id=lambda k, n: np.arange(n) % (3 + k))
    reports = []
    for fewest in (4, 1000):
        monkeypatch.setattr(files_ahead, "FEWEST_FILES", fewest)
        document = ppocli.evaluate(paths, adv_norm="batch", worst=3).to_dict()
        document.pop("run")
        reports.append(document)
    assert reports[0] == reports[1]
