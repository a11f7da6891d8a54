"""Files that could ask for much memory: long row groups, many row groups, long rows, many files, many ids."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.data import ROLES, columns, offsets_of
from benchmarks.pairs import Ended as Ended

M = 1_000_000


def files(folder: Path) -> Iterator[tuple[str, Path, tuple[str, ...]]]:
    """Yield what each file is, where, and with which options it is evaluated; written at first use."""
    for name, (what, make) in FILES.items():
        path = folder / name
        if not path.exists():
            begun = folder / f"begun-{name}"
            make(begun)
            begun.rename(path)
        yield what, path, OPTIONS.get(name, ())


def _write(path: Path, pieces: Iterator[dict[str, np.ndarray]], **options: object) -> None:
    """Write pieces into one row group."""
    first = next(pieces)
    schema = pa.table(first).schema
    whole = [pa.table(first, schema), *(pa.table(one, schema) for one in pieces)]
    pq.write_table(pa.concat_tables(whole), path, row_group_size=1 << 31, **options)


def _one_row_group(path: Path) -> None:
    def pieces() -> Iterator[dict[str, np.ndarray]]:
        one = columns(M)
        for _ in range(100):
            yield {name: one[name] for name in ROLES}

    _write(path, pieces(), use_dictionary=False)


def _many_row_groups(path: Path) -> None:
    one = columns(20_000)
    pq.write_table(pa.table({name: one[name] for name in ROLES}), path, row_group_size=1)


def _long_rows(path: Path) -> None:
    lengths = np.random.default_rng(3).permutation(np.geomspace(1, 200_000, 400).astype(np.int64))
    ends = np.concatenate([[0], np.cumsum(lengths)])
    one, offsets = columns(int(ends[-1])), pa.array(ends, type=pa.int32())
    table = pa.table({name: pa.ListArray.from_arrays(offsets, pa.array(one[name])) for name in ROLES})
    pq.write_table(table, path, row_group_size=1 << 31)


def _short_rows(path: Path) -> None:
    one, offsets = columns(10 * M), pa.array(np.arange(10 * M + 1), type=pa.int32())
    pq.write_table(
        pa.table({name: pa.ListArray.from_arrays(offsets, pa.array(one[name])) for name in ROLES}), path
    )


def _deflated(path: Path) -> None:
    """2 GB of arrays that repeat, so that they are small on the disk."""
    one, repeats = columns(M), 170
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in ROLES:
            raw = np.tile(one[name][:2000], M // 2000)  # repeats inside the window of deflate
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(
                    member, {"descr": "<f4", "fortran_order": False, "shape": (raw.size * repeats,)}
                )
                for _ in range(repeats):
                    member.write(raw.tobytes())


def _small_files(path: Path) -> None:
    path.mkdir()
    one = columns(100)
    table = pa.table({name: one[name] for name in ROLES})
    for index in range(10_000):
        pq.write_table(table, path / f"{index:05}.parquet")


def _unique_ids(path: Path) -> None:
    one = columns(10 * M)
    table = pa.table({**{name: one[name] for name in ROLES}, "sequence_id": np.arange(10 * M)})
    pq.write_table(table, path)


def _many_groups(path: Path) -> None:
    one = columns(3 * M)
    ids = np.arange(3 * M) // 2
    pq.write_table(pa.table({**{name: one[name] for name in ROLES}, "group_id": ids}), path)


def _sequences_and_groups(path: Path) -> None:
    one = columns(3 * M)
    ids = np.arange(3 * M) // 3
    table = {**{name: one[name] for name in ROLES}, "sequence_id": ids, "group_id": ids}
    pq.write_table(pa.table(table), path)


def _large_row_groups(path: Path) -> None:
    one = columns(20 * M)
    pq.write_table(pa.table({name: one[name] for name in ROLES}), path, row_group_size=M)


def _groups_of_eight(path: Path) -> None:
    one, ends = columns(8 * M), offsets_of(8 * M)
    offsets = pa.array(ends, type=pa.int32())
    lists = {
        name: pa.ListArray.from_arrays(offsets, pa.array(one[name]))
        for name in (*ROLES, "mask", "rollout_log_probs")
    }
    table = pa.table({**lists, "group_id": np.arange(ends.size - 1) // 8})
    pq.write_table(table, path, row_group_size=2048)


FILES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "one-row-group.parquet": ("100 M flat rows in one row group", _one_row_group),
    "row-groups.parquet": ("20,000 row groups of one row", _many_row_groups),
    "long-rows.parquet": ("lists of 1 to 200,000 tokens", _long_rows),
    "deflated.npz": ("a deflated NPZ of 2 GB", _deflated),
    "small-files": ("10,000 files of 100 rows", _small_files),
    "short-rows.parquet": ("10 M lists of one token", _short_rows),
    "unique-ids.parquet": ("10 M tokens, each with a sequence_id of its own", _unique_ids),
    "groups.parquet": ("1.5 M groups", _many_groups),
    "both.parquet": ("1 M sequences in as many groups", _sequences_and_groups),
    "large-row-groups.parquet": ("row groups of 1 M rows", _large_row_groups),
    "groups-of-8.parquet": ("--like verl --adv-norm group", _groups_of_eight),
}

OPTIONS = {"groups-of-8.parquet": ("--like", "verl", "--adv-norm", "group")}
