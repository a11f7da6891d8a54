"""On a cluster of two workers every report is the local one; lost workers and bad files are told apart."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import partial_files
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ppocli
from ppocli.cli.app import main
from ppocli.core.spec import LossSpec
from ppocli.engine.by_file import ByFile, evaluate_with_partials
from ppocli.engine.evaluate import evaluate_files, split_settings
from ppocli.errors import InputError, UsageProblem
from ppocli.kernels._jit import COMPILE_NOTICE

if find_spec("ray") is not None:
    import ray

pytestmark = [
    pytest.mark.ray,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(find_spec("ray") is None, reason="the extra ppocli[ray] is not installed"),
]

MEMORY = 400 << 20
"""The budget of a worker, as of any run."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two workers of one processor each; every Cluster of these tests finds this one running."""
    from ppocli.engine.ray_engine import Cluster

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=128 << 20)
    yield Cluster
    ray.shutdown()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("files")
    kinds = ("list", "text", "flat", "padded", "text", "plain", "list")
    rows = (120, 90, 150, 40, 70, 30, 1)
    made = [
        partial_files.write(kind, folder / f"{k}.parquet", k + 1, n, dirty=k in (1, 3))
        for k, (kind, n) in enumerate(zip(kinds, rows, strict=True))
    ]
    return [str(path) for path in made]


def write_many(path: Path, seed: int, millions: int) -> str:
    """Write so many million tokens, the same in every row group; of few values, so that the file is small."""
    rng = np.random.default_rng(seed)
    old = np.round(-rng.exponential(1.0, 1_000_000), 2).astype(np.float32)
    new = old + np.round(rng.normal(0, 0.1, old.size), 2).astype(np.float32)
    adv = np.round(rng.normal(0, 1, old.size), 2).astype(np.float32)
    table = pa.table({"log_probs": new, "old_log_probs": old, "advantages": adv})
    with pq.ParquetWriter(path, table.schema) as writer:
        for _ in range(millions):
            writer.write_table(table)
    return str(path)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Files that keep two workers busy for some tenths of a second in all."""
    folder = tmp_path_factory.mktemp("large")
    return [write_many(folder / f"{k}.parquet", k, 5) for k in range(8)]


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file that keeps a worker busy for much longer than workers are looked for, 0.02 s."""
    return write_many(tmp_path_factory.mktemp("heavy") / "heavy.parquet", 5, 80)


def text_of(report: Any) -> str:
    """The whole document but its run."""
    document = report.to_dict()
    del document["run"]
    return json.dumps(document, sort_keys=True)


def on(cluster: Any, paths: list[str], **settings: Any) -> Any:
    """Evaluate on the cluster."""
    spec, options, others = split_settings(dict(settings))
    with cluster() as where:
        return evaluate_files(
            paths, spec, options, **others, engine=lambda run, worst: ByFile(run, worst, where, keep=False)
        )


@pytest.mark.parametrize(
    ("kinds", "settings"),
    [
        (slice(None), {"worst": 3}),
        (slice(0, 5), {"like": "verl", "worst": 1}),
        (slice(1, 3), {"agg": "group-mean"}),
        (slice(0, 3), {"objective": "gspo", "worst": 2}),
        (slice(None), {"adv_norm": "batch", "worst": 2}),
        (slice(0, 3), {"rollout_is": "token", "rollout_is_cap": 2.0}),
        (slice(0, 3), {"by": "total"}),
        (slice(0, 3), {"adv_norm": "group", "worst": 2}),
        (slice(None), {"adv_norm": "minibatch:16"}),
    ],
    ids=[
        "all layouts",
        "framework",
        "groups",
        "sequences",
        "normalised",
        "corrected",
        "total",
        "by group",
        "by rows",
    ],
)
def test_every_report_is_the_local_one(
    cluster: Any, files: list[str], kinds: slice, settings: dict[str, Any]
) -> None:
    local = ppocli.evaluate(files[kinds], **settings)
    assert local.metrics["n_tokens"] > 1000
    assert text_of(on(cluster, files[kinds], **settings)) == text_of(local)


def test_partials_are_made_on_a_cluster_too(cluster: Any, files: list[str], tmp_path: Path) -> None:
    with cluster() as where:
        report, document = evaluate_with_partials(files, worst=2, where=where)
    mine = ppocli.partials(files, worst=2)
    assert document["files"] == mine["files"]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document))
    assert ppocli.merge([path]).metrics == report.metrics


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Run a command line in this process; its exit code, document and messages."""
    code = main([*arguments, "-f", "json"])
    out, err = capsys.readouterr()
    document = json.loads(out) if out else {}
    document.pop("run", None)
    return code, document, err.replace(f"{COMPILE_NOTICE}\n", "")


@pytest.mark.parametrize(
    "command",
    [
        ["eval", "--worst", "2"],
        ["check", "--max", "clip_frac=0.01", "--by", "file"],
        ["drift", "--tis-cap", "1.01"],
        ["audit", "--formats", "bfloat16,int8,int8_per_sequence"],
        ["eval", "--audit", "--adv-norm", "batch"],
    ],
    ids=lambda one: " ".join(one[:2]),
)
def test_commands(
    cluster: Any, files: list[str], capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    name, *options = command
    paths = [str(Path(files[0]).parent)] if name == "drift" else files[:3]
    local = said(capsys, name, *paths, *options)
    assert said(capsys, name, *paths, *options, "--engine", "ray") == local
    assert local[0] == (1 if name == "check" else 0)


def workers() -> set[int]:
    """The processes that work on a unit of these tests' cluster: below this one, and not idle."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if b"ppocli" in (folder / "cmdline").read_bytes() and _is_below(int(folder.name), os.getpid()):
                found.add(int(folder.name))
    return found


def _is_below(process: int, ancestor: int) -> bool:
    """Whether a process is a descendant of another one."""
    while process > 1:
        status = Path(f"/proc/{process}/stat").read_text()
        process = int(status.rpartition(")")[2].split()[1])
        if process == ancestor:
            return True
    return False


class Killer(threading.Thread):
    """Kills workers while they are at work: one of them, or each that comes."""

    def __init__(self, *, every: bool) -> None:
        super().__init__(daemon=True)
        self.every, self.killed, self.done = every, [], threading.Event()

    def run(self) -> None:
        while not self.done.is_set() and (self.every or not self.killed):
            for pid in list(workers())[: None if self.every else 1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self.killed.append(pid)
            time.sleep(0.02)

    def __enter__(self) -> Killer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.join()


def test_a_lost_worker_changes_nothing(cluster: Any, large: list[str]) -> None:
    local = text_of(ppocli.evaluate(large, worst=2))
    with Killer(every=False) as killer:
        found = on(cluster, large, worst=2)
    assert len(killer.killed) == 1
    assert text_of(found) == local
    assert found.run["peak_worker_bytes"] < MEMORY


def test_a_unit_that_no_worker_survives_is_an_input_error(cluster: Any, heavy: str) -> None:
    with Killer(every=True) as killer, pytest.raises(InputError) as caught:
        on(cluster, [heavy])
    assert len(killer.killed) >= 4
    assert caught.value.where == heavy
    assert "its worker was lost 4 times" in caught.value.message


def test_a_bad_file_is_named_or_skipped(cluster: Any, files: list[str], tmp_path: Path) -> None:
    bad = tmp_path / "bad.parquet"
    pq.write_table(pq.read_table(files[2]), bad, write_page_checksum=True)
    whole = bytearray(bad.read_bytes())
    whole[len(whole) // 3] ^= 255  # inside a page: the file opens, and reading it fails
    bad.write_bytes(whole)
    paths = [files[0], str(bad), files[2]]
    with pytest.raises(InputError) as mine:
        ppocli.evaluate(paths)
    with pytest.raises(InputError) as caught:
        on(cluster, paths)
    assert str(caught.value) == str(mine.value)
    assert str(bad) in str(caught.value)
    assert text_of(on(cluster, paths, skip_bad=True)) == text_of(ppocli.evaluate(paths, skip_bad=True))


def test_what_goes_over_several_files_is_refused_before_anything_is_read(cluster: Any) -> None:
    with pytest.raises(UsageProblem, match="--micro-batch"), cluster() as where:
        evaluate_files(
            ["sample_data"],
            LossSpec(micro_batch=4),
            engine=lambda run, worst: ByFile(run, worst, where, keep=False),
        )
