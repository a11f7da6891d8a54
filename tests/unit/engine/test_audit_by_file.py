"""Files audited each by itself, with the sums in stored order handed on: the audit of one run over them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import partial_files
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ppocli.core.audit_spec import AuditOptions
from ppocli.core.progress import NoProgress
from ppocli.core.spec import LossSpec
from ppocli.engine.audit import audit_files
from ppocli.engine.by_file import ByFile
from ppocli.engine.where import Here
from ppocli.errors import InputError


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("files")
    kinds = ("list", "text", "flat", "padded")
    made = [
        partial_files.write(kind, folder / f"{k}.parquet", k, 90, dirty=k == 1)
        for k, kind in enumerate(kinds)
    ]
    return [str(path) for path in made]


def by_file(run: Any, worst: int) -> ByFile:
    return ByFile(run, worst, Here(NoProgress()), keep=False)


def answer(report: Any) -> str:
    document = report.to_dict()
    del document["run"]
    return json.dumps(document, sort_keys=True)


@pytest.mark.parametrize("adv_norm", ["none", "batch"])
@pytest.mark.parametrize(
    "options",
    [
        AuditOptions(),
        AuditOptions(formats=("int8", "int8_per_sequence", "bfloat16")),
        AuditOptions(accumulate="same"),
        AuditOptions(accumulate="pairwise", with_advantages=True),
    ],
    ids=["formats", "scales", "same", "pairwise"],
)
def test_it_is_the_audit_of_one_run(files: list[str], options: AuditOptions, adv_norm: str) -> None:
    spec = LossSpec(adv_norm=adv_norm)
    one = audit_files(files, spec, None, options)
    assert one.audit.n_tokens > 5000
    assert answer(audit_files(files, spec, None, options, engine=by_file)) == answer(one)


def test_sums_go_on_from_file_to_file(tmp_path: Path) -> None:
    """The first file has 2^24 losses of 1: from its end on the naive sum in float32 stands still."""
    half = 1 << 24
    paths = []
    for k, n in enumerate((half, 5000)):
        zeros = pa.array(np.zeros(n, dtype=np.float32))
        paths.append(str(tmp_path / f"{k}.parquet"))
        columns = {
            "log_probs": zeros,
            "old_log_probs": zeros,
            "advantages": pa.array(np.full(n, -1, np.float32)),
        }
        pq.write_table(pa.table(columns), paths[-1])
    report = audit_files(paths, None, None, AuditOptions(formats=("float32",)), engine=by_file)
    assert report.audit.reduction is not None
    assert report.audit.reduction.sums["naive"] == half
    assert report.audit.reduction.stops["naive"] == half
    assert report.audit.reduction.idle["naive"] == 5000
    assert report.audit.reduction.exact == half + 5000


def test_a_file_that_cannot_be_read_leaves_the_sums_alone(files: list[str], tmp_path: Path) -> None:
    bad = tmp_path / "bad.parquet"
    pq.write_table(pq.read_table(files[0]), bad, write_page_checksum=True)
    whole = bytearray(bad.read_bytes())
    whole[len(whole) // 3] ^= 255
    bad.write_bytes(whole)
    paths, options = [files[0], str(bad), files[2]], AuditOptions(formats=("bfloat16", "int8"))
    with pytest.raises(InputError, match=r"bad\.parquet"):
        audit_files(paths, None, None, options, engine=by_file)
    left = audit_files(paths, None, None, options, skip_bad=True, engine=by_file)
    assert [one.path for one in left.evaluation.skipped] == [str(bad)]
    assert left.audit == audit_files([files[0], files[2]], None, None, options).audit
