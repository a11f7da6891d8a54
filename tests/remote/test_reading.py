"""What is read of objects: the same answers as from files here, and little more than the needed bytes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ppocli
from ppocli.core import shell
from ppocli.io import parquet, remote

if TYPE_CHECKING:
    from remote.conftest import Server
    from remote_proxy import Proxy

MAIN = ("log_probs", "old_log_probs", "advantages")


def columns(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    old = -draw.exponential(size=n).astype(np.float32)
    new = old + draw.normal(scale=0.2, size=n).astype(np.float32)
    new[n // 2] = np.nan
    return {"log_probs": new, "old_log_probs": old, "advantages": draw.normal(size=n).astype(np.float32)}


def in_lists(values: dict[str, np.ndarray], length: int) -> pa.Table:
    return pa.table({name: list(one.reshape(-1, length)) for name, one in values.items()})


def content(kind: str) -> bytes:
    """Return a file of each format, of more than what one request brings."""
    values, out = columns(60_000), io.BytesIO()
    lists = in_lists(values, 100)
    if kind == "flat.parquet":
        pq.write_table(pa.table(values), out, row_group_size=7_000)
    elif kind == "list.parquet":
        pq.write_table(lists, out, row_group_size=50, compression="zstd", write_page_checksum=True)
    elif kind == "stored.npz":
        np.savez(out, **{name: one.reshape(-1, 100) for name, one in values.items()})
    elif kind == "deflated.npz":
        np.savez_compressed(out, **{name: one.reshape(100, -1).T for name, one in values.items()})
    elif kind == "x.jsonl":
        lines = (json.dumps(row) for row in lists.to_pylist())
        out.write("\n".join(lines).encode())
    elif kind == "x.npy":
        records = np.zeros(60_000, [(name, "f4") for name in values])
        for name, one in values.items():
            records[name] = one
        np.save(out, records)
    else:
        made = pa.ipc.new_stream if kind == "x.arrows" else pa.ipc.new_file
        with made(out, lists.schema) as writer:
            writer.write_table(lists, max_chunksize=64)
    return out.getvalue()


def numbers(report: Any) -> dict[str, Any]:
    """Return all of a report but what describes the files and the run."""
    document = json.loads(json.dumps(report.to_dict()).replace(json.dumps(report.inputs[0].path), '"PATH"'))
    one = document["inputs"][0]
    one["notes"] = [note for note in one.get("notes", []) if not note.startswith("copied whole")]
    return {name: value for name, value in document.items() if name != "run"}


@pytest.mark.parametrize(
    "kind",
    [
        *("flat.parquet", "list.parquet", "stored.npz", "deflated.npz"),
        *("x.jsonl", "x.arrow", "x.arrows", "x.npy"),
    ],
)
def test_the_same_answer_as_from_a_file(s3: Server, tmp_path: Path, kind: str) -> None:
    here = tmp_path / kind
    here.write_bytes(content(kind))
    url = s3.put(f"run/{kind}", here.read_bytes())
    there = ppocli.evaluate(url, worst=3)
    assert there.metrics["n_tokens"] == 60_000
    assert there.nulls["policy_loss"].where.path == url
    assert numbers(there) == numbers(ppocli.evaluate(str(here), worst=3))
    copied = kind in ("x.arrow", "x.arrows", "x.npy")
    assert any(note.startswith("copied whole") for note in there.inputs[0].notes) == copied


def wide(n: int, groups: int) -> tuple[bytes, int]:
    """Return a Parquet file with much that is not needed, and how many bytes are: chunks and footer."""
    values, draw = columns(n), np.random.default_rng(1)
    table: dict[str, np.ndarray] = {}
    for name, one in values.items():
        table[name] = one
        table[f"other_{name}"] = draw.normal(size=n)
    out = io.BytesIO()
    pq.write_table(pa.table(table), out, row_group_size=n // groups)
    meta = pq.ParquetFile(out).metadata
    needed = meta.serialized_size
    for group in range(groups):
        for leaf in range(meta.num_columns):
            chunk = meta.row_group(group).column(leaf)
            if chunk.path_in_schema in MAIN:
                needed += chunk.total_compressed_size
    return out.getvalue(), needed


def test_only_the_columns_of_a_parquet_file_are_transferred(
    s3: Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Parts of two row groups, read at once.
    monkeypatch.setattr(parquet, "REMOTE_BYTES", 1 << 21)
    whole, needed = wide(400_000, 4)
    s3.put("wide.parquet", whole)
    report = ppocli.evaluate(f"s3://rollouts/wide.parquet{proxy.options}")
    assert report.metrics["n_tokens"] == 400_000
    # The first bytes, the end beyond the footer, and the heads of the answers.
    heads = 1_000 * len(proxy.requests)
    assert needed < proxy.sent <= needed + remote.EDGE + heads
    assert proxy.sent < len(whole) / 2
    # Two questions for the file, its first bytes and its end; three columns that stand apart, four times.
    assert len(proxy.requests) <= 4 + 3 * 4


def test_columns_that_stand_together_come_with_one_request(s3: Server, proxy: Proxy) -> None:
    out = io.BytesIO()
    pq.write_table(pa.table(columns(200_000)), out, row_group_size=50_000)
    s3.put("near.parquet", out.getvalue())
    ppocli.evaluate(f"s3://rollouts/near.parquet{proxy.options}")
    # 2.4 MB in one piece.
    assert len(proxy.requests) == 5


def test_inspect_reads_the_footer_alone(s3: Server, proxy: Proxy, capsys: pytest.CaptureFixture[str]) -> None:
    from ppocli.cli.app import main

    s3.put("wide.parquet", wide(400_000, 4)[0])
    assert main(["inspect", f"s3://rollouts/wide.parquet{proxy.options}", "-f", "json"]) == 0
    (file,) = json.loads(capsys.readouterr().out)["files"]
    assert file["rows"] == 400_000
    assert proxy.sent <= remote.EDGE + 1_000 * len(proxy.requests)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_only_the_arrays_of_an_npz_file_are_transferred(s3: Server, proxy: Proxy, save: Any) -> None:
    values, out = columns(300_000), io.BytesIO()
    rest = {f"other_{name}": np.random.default_rng(2).normal(size=600_000) for name in values}
    pairs = {name: one for pair in zip(values.items(), rest.items(), strict=True) for name, one in pair}
    save(out, **pairs)
    s3.put("wide.npz", out.getvalue())
    report = ppocli.evaluate(f"s3://rollouts/wide.npz{proxy.options}")
    assert report.metrics["n_tokens"] == 300_000
    # A window for the header of each of six arrays, and another where the data of a member begin.
    heads = remote.EDGE * (2 + 2 * len(pairs)) + 1_000 * len(proxy.requests)
    assert proxy.sent <= sum(one.nbytes for one in values.values()) + heads
    assert proxy.sent < len(out.getvalue()) / 2


def test_lines_are_read_as_they_come(s3: Server, proxy: Proxy, tmp_path: Path) -> None:
    here = content("x.jsonl")
    s3.put("x.jsonl", here)
    ppocli.evaluate(f"s3://rollouts/x.jsonl{proxy.options}")
    # The first records twice: to learn the columns, and with all others.
    assert len(here) < proxy.sent <= 2 * len(here) + 1_000 * len(proxy.requests)


@pytest.mark.parametrize(
    "words",
    [
        ["check", "URL", "--max", "clip_frac_finite=1", "--fail-on", "never"],
        ["eval", "URL", "--by", "total"],
        ["parity", "URL"],
        ["inspect", "URL", "--scan"],
        ["drift", "URL", "--a", "log_probs", "--b", "old_log_probs"],
        ["drift", "URL", "URL", "--a", "log_probs", "--b", "old_log_probs"],
    ],
)
def test_every_command_takes_urls(
    s3: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    from ppocli.cli.app import main

    here = tmp_path / "a.parquet"
    pq.write_table(in_lists(columns(2_000), 10), here)
    url = s3.put("a.parquet", here.read_bytes())
    answers = []
    for path in (url, str(here)):
        code = main([word.replace("URL", path) for word in words] + ["-f", "json"])
        text = capsys.readouterr().out.replace(shell.quote(path), "PATH").replace(path, "PATH")
        document = json.loads(text)
        document.pop("run", None)
        answers.append((code, document))
    assert answers[0] == answers[1]
    assert answers[0][0] == 0


def test_convert_from_a_url(s3: Server, tmp_path: Path) -> None:
    from ppocli.cli.app import main

    url = s3.put("x.jsonl", content("x.jsonl"))
    out = tmp_path / "out.parquet"
    assert main(["convert", url, "-o", str(out), "--verify", "-q"]) == 0
    assert pq.read_table(out).num_rows == 600


def test_an_object_that_was_written_again_is_seen(s3: Server) -> None:
    url = ""
    for n in (1_000, 3_000):
        out = io.BytesIO()
        pq.write_table(pa.table(columns(n)), out)
        url = s3.put("again.parquet", out.getvalue())
        assert ppocli.evaluate(url).metrics["n_tokens"] == n


def test_requests_for_ranges() -> None:
    hole, piece = remote.HOLE, remote.PIECE
    assert list(remote.pieces([], 100)) == []
    assert list(remote.pieces([(50, 60), (0, 10), (5, 5), (90, 200)], 100)) == [(0, 100)]
    far = hole + 21
    assert list(remote.pieces([(0, 20), (far, far + 10)], 1 << 30)) == [(0, 20), (far, far + 10)]
    assert list(remote.pieces([(0, 20), (far - 1, far)], 1 << 30)) == [(0, far)]
    assert list(remote.pieces([(7, 2 * piece)], 1 << 30)) == [(7, 7 + piece), (7 + piece, 2 * piece)]
