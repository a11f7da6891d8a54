"""Writes the input files of the cases: `builders()[ID]` fills a folder.

Cases with inline arrays are written from cases.jsonl; the others have a function below, named in
inputs.recipe. The same call gives the same bytes for the same versions of NumPy and PyArrow.
"""

from __future__ import annotations

import functools
import io
import json
import math
import re
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent
WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
DEFAULT = {"mask": "bool", "sequence_id": "int64", "step": "int64", "token_id": "int64"}


def plain(v):
    """turn the words NaN, Infinity and -Infinity into floats"""
    if isinstance(v, list):
        return [plain(x) for x in v]
    return WORDS[v] if isinstance(v, str) else v


def arrow_type(text):
    m = re.fullmatch(r"(large_list|list|fixed_size_list)<(.*)>(?:\[(\d+)\])?", text)
    if not m:
        return pa.type_for_alias(
            {"float16": "halffloat", "float32": "float", "float64": "double"}.get(text, text)
        )
    inner = arrow_type(m[2])
    if m[1] == "fixed_size_list":
        return pa.list_(inner, int(m[3]))
    return pa.large_list(inner) if m[1] == "large_list" else pa.list_(inner)


def guess(role, values):
    """list depth from the first value that is not null, element type from the role"""
    text, v = DEFAULT.get(role, "float64"), next((x for x in values if x is not None), None)
    while isinstance(v, list):
        text, v = f"list<{text}>", next((x for x in v if x is not None), None)
    return text


def leaf(t):
    while pa.types.is_list(t) or pa.types.is_large_list(t) or pa.types.is_fixed_size_list(t):
        t = t.value_type
    return t


def shape_up(v, t):
    """values as Arrow wants them for this element type"""
    if isinstance(v, list):
        return [shape_up(x, t) for x in v]
    if v is None:
        return None
    if pa.types.is_boolean(t):
        return bool(v)
    if pa.types.is_float16(t):
        return np.float16(v)
    return int(v) if pa.types.is_integer(t) else float(v)


def write_parquet(path, columns, types=None, row_group_size=None, **options):
    cols = {}
    for role, values in columns.items():
        if isinstance(values, (pa.Array, np.ndarray)):
            cols[role] = pa.array(values)
            continue
        t = arrow_type((types or {}).get(role) or guess(role, values))
        cols[role] = pa.array(shape_up(values, leaf(t)), type=t)
    table = pa.table(cols)
    pq.write_table(table, path, row_group_size=row_group_size or max(1, table.num_rows), **options)


def member(array):
    """bytes of one .npy member"""
    b = io.BytesIO()
    np.lib.format.write_array(b, array, allow_pickle=False)
    return b.getvalue()


def header(descr, shape, fortran=False):
    """bytes of a version 1 .npy header with nothing behind it"""
    text = f"{{'descr': {descr!r}, 'fortran_order': {fortran}, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def write_zip(path, members, compress=False):
    """members: list of (name, bytes), written in this order with a fixed date"""
    with (
        warnings.catch_warnings(),
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED) as z,
    ):
        warnings.simplefilter("ignore")
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
            z.writestr(info, data)


def write_npz(path, compress=False, **arrays):
    write_zip(path, [(k + ".npy", member(np.asarray(v))) for k, v in arrays.items()], compress)


def bfloat16_bits(values):
    """round to nearest even, as uint16"""
    b = np.asarray(values, np.float32).view(np.uint32)
    return ((b + 0x7FFF + ((b >> 16) & 1)) >> 16).astype(np.uint16)


def void(bits):
    """the bytes of an array as raw void, the way NumPy writes types it has no name for"""
    return header(f"<V{bits.itemsize}", tuple(bits.shape)) + bits.tobytes()


# Loading this with pickle creates an empty file named UNPICKLED in the working directory.
CANARY = b"cio\nopen\n(S'UNPICKLED'\nS'w'\ntR."


def write_inline(case, d):
    inputs = case["inputs"]
    for f in inputs.get("inline", []) if "recipe" in inputs else inputs["files"]:
        path = Path(d, f["path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        cols = {k: plain(v) for k, v in f["columns"].items()}
        if f["format"] == "npz":
            write_npz(
                path,
                **{
                    k: np.array(v, f.get("types", {}).get(k, DEFAULT.get(k, "float64")))
                    for k, v in cols.items()
                },
            )
        else:
            write_parquet(path, cols, f.get("types"), f.get("row_group_size"))


def c008_half_mask(d):
    n = 5000
    one = np.full(n, -1.0)
    write_npz(f"{d}/C008.npz", log_probs=one, old_log_probs=one, advantages=one, mask=np.ones(n, np.float16))
    write_parquet(
        f"{d}/C008.parquet",
        {"log_probs": one, "old_log_probs": one, "advantages": one, "mask": np.ones(n, np.float16)},
    )


def c022_one_token(d):
    n, gap = 4348, 22.643371631541022
    lp, ref = np.full(n, -1.0), np.full(n, -1.0)
    lp[-1], ref[-1] = -gap, 0.0
    write_parquet(
        f"{d}/C022.parquet",
        {"log_probs": lp, "old_log_probs": lp, "ref_log_probs": ref, "advantages": np.ones(n)},
    )


def one_row(path, n, lp, old):
    write_parquet(path, {"log_probs": [[lp] * n], "old_log_probs": [[old] * n], "advantages": [[1.0] * n]})


def c024_long_sequence(d):
    one_row(f"{d}/C024.parquet", 80000, -0.99, -1.0)


def c028_twenty_million(d):
    n, block = 20_000_000, 1_000_000
    minus = pa.array(np.full(block, -1, np.float32))
    table = pa.table({"log_probs": minus, "old_log_probs": minus, "advantages": minus})
    with pq.ParquetWriter(f"{d}/C028.parquet", table.schema) as w:
        for _ in range(n // block):
            w.write_table(table)


def c033_fifty_three(d):
    one_row(f"{d}/C033.parquet", 53, -1 + 2.5 / 53, -1.0)


def c048_row_groups(d):
    lp = np.full(16, -1.0)
    lp[[0, 1, 2, 12, 13, 14]] = -1 + math.log(1.5)
    cols = {"log_probs": lp, "old_log_probs": np.full(16, -1.0), "advantages": np.ones(16)}
    write_parquet(f"{d}/C048.parquet", cols, row_group_size=12)
    write_parquet(f"{d}/C048_a.parquet", {k: v[:12] for k, v in cols.items()})
    write_parquet(f"{d}/C048_b.parquet", {k: v[12:] for k, v in cols.items()})


def c053_hundred(d):
    one_row(f"{d}/C053.parquet", 100, -0.99, -1.0)


def c080_outliers(d):
    rollout, train = np.full(1000, -1.0), np.full(1000, -1.0)
    train[995:] = -51.0
    write_parquet(f"{d}/C080_outliers.parquet", {"old_log_probs": train, "rollout_log_probs": rollout})
    write_parquet(f"{d}/C080_uniform.parquet", {"old_log_probs": rollout - 0.5, "rollout_log_probs": rollout})


def c084_steady_noise(d):
    write_parquet(
        f"{d}/C084.parquet", {"old_log_probs": [[-0.988] * 100], "rollout_log_probs": [[-1.0] * 100]}
    )


def c089_halffloat(d):
    half = "list<float16>"
    write_parquet(
        f"{d}/C089.parquet",
        {"log_probs": [[-1.5, -2.25]], "old_log_probs": [[-1.5, -2.5]], "advantages": [[1.0, -1.0]]},
        {"log_probs": half, "old_log_probs": half, "advantages": half},
    )
    h = np.array([-0.1], np.float16)
    write_parquet(
        f"{d}/C089_bss.parquet",
        {"log_probs": h, "old_log_probs": h, "advantages": np.ones(1, np.float16)},
        use_dictionary=False,
        column_encoding="BYTE_STREAM_SPLIT",
    )


def c091_null_list_row(d):
    offsets, gone = pa.array([0, 2, 4, 5], pa.int32()), pa.array([False, True, False])

    def col(v):
        return pa.ListArray.from_arrays(offsets, pa.array(v), mask=gone)

    t = pa.table(
        {
            "log_probs": col([-1.0, -2.0, -99.0, -100.0, -5.0]),
            "old_log_probs": col([-1.1, -2.2, -1.0, -1.0, -4.9]),
            "advantages": col([1.0, 1.0, 1000.0, 1000.0, 2.0]),
        }
    )
    pq.write_table(t, f"{d}/C091.parquet")
    with pa.OSFile(f"{d}/C091.arrow", "wb") as f, pa.ipc.new_file(f, t.schema) as w:
        w.write_table(t)


def c094_null_type(d):
    write_parquet(
        f"{d}/C094_s1.parquet",
        {"log_probs": [[-1.0]], "old_log_probs": [[-1.2]], "advantages": [[1.0]], "mask": [[1]]},
    )
    write_parquet(
        f"{d}/C094_s2.parquet",
        {
            "log_probs": [[-1.1, -0.8]],
            "old_log_probs": [[-1.0, -1.0]],
            "advantages": [[-1.0, 1.0]],
            "mask": pa.nulls(1),
        },
    )


def c096_parts(d):
    for i in range(12):
        write_parquet(
            f"{d}/part.{i}.parquet",
            {"log_probs": [-1.0 - i * 0.01], "old_log_probs": [-1.0], "advantages": [1.0]},
        )


def c100_big_ids(d):
    a, b = 2**53 + 1, 2**53
    write_parquet(
        f"{d}/C100.parquet",
        {
            "sequence_id": [a, a, b],
            "log_probs": [-1.0] * 3,
            "old_log_probs": [-1.0] * 3,
            "advantages": [-1.0, -1.0, -4.0],
        },
    )
    write_parquet(
        f"{d}/C100_null.parquet",
        {
            "sequence_id": [a, a, b, None],
            "log_probs": [-1.0] * 4,
            "old_log_probs": [-1.0] * 4,
            "advantages": [-1.0, -1.0, -4.0, -10.0],
        },
    )


def c101_bfloat16_void(d):
    write_zip(
        f"{d}/C101.npz",
        [
            ("log_probs.npy", void(bfloat16_bits([-1, -0.5, -20.05]))),
            ("old_log_probs.npy", void(bfloat16_bits([-1.25, -0.75, -20.5]))),
            ("advantages.npy", member(np.array([1, -1, 0.5], np.float32))),
        ],
    )


def c102_uint16_bits(d):
    bits = bfloat16_bits([-1, -0.5])
    write_npz(f"{d}/C102.npz", log_probs=bits, old_log_probs=bits, advantages=np.ones(2, np.float32))


def c103_object_arrays(d):
    o = np.empty(2, object)
    o[0], o[1] = np.array([-1.0, -2.0]), np.array([-3.0])
    np.savez(f"{d}/C103.npz", log_probs=o, old_log_probs=o, advantages=np.ones(2))
    write_zip(
        f"{d}/C103_canary.npz",
        [
            ("log_probs.npy", header("|O", (2,)) + CANARY),
            ("old_log_probs.npy", member(np.array([-1.0, -1.0]))),
            ("advantages.npy", member(np.ones(2))),
        ],
    )


def c104_dict_as_object(d):
    np.savez(f"{d}/C104.npz", {"log_probs": [-1.0, -2.0]})


def c105_positional(d):
    write_npz(
        f"{d}/C105.npz",
        arr_0=np.array([-1.0, -0.8]),
        arr_1=np.array([-1.1, -1.0]),
        arr_2=np.array([1.0, -1.0]),
    )


def c107_duplicate_member(d):
    write_zip(
        f"{d}/C107.npz",
        [
            (k + ".npy", member(np.array([v])))
            for k, v in (
                ("log_probs", -1.0),
                ("log_probs", -9.0),
                ("old_log_probs", -1.0),
                ("advantages", 1.0),
            )
        ],
    )


def c110_declared_size(d):
    write_zip(
        f"{d}/C110.npz",
        [
            ("log_probs.npy", header("<f8", (10**12,))),
            ("old_log_probs.npy", member(np.array([-1.0, -1.0]))),
            ("advantages.npy", member(np.ones(2))),
        ],
    )


def c111_byte_and_axis_order(d):
    write_npz(
        f"{d}/C111_big_endian.npz",
        log_probs=np.array([-1, -2], ">f4"),
        old_log_probs=np.array([-1.1, -2], ">f8"),
        advantages=np.array([1, -1], ">f4"),
    )
    a = np.array([[-1.0, -2.0], [-3.0, -4.0]])
    write_npz(f"{d}/C111_fortran.npz", log_probs=np.asfortranarray(a), old_log_probs=a, advantages=-a)


def c112_cut_parquet(d):
    minus = np.full(1000, -1.0)
    write_parquet(
        f"{d}/C112_ok.parquet", {"log_probs": minus, "old_log_probs": minus, "advantages": np.ones(1000)}
    )
    data = Path(d, "C112_ok.parquet").read_bytes()
    Path(d, "C112_half.parquet").write_bytes(data[: len(data) // 2])
    Path(d, "C112_zero.parquet").write_bytes(b"")


def c113_cut_npz(d):
    minus = np.full(1000, -1.0)
    write_npz(f"{d}/whole.npz", log_probs=minus, old_log_probs=minus, advantages=np.ones(1000))
    data = Path(d, "whole.npz").read_bytes()
    Path(d, "whole.npz").unlink()
    Path(d, "C113_half.npz").write_bytes(data[: len(data) // 2])


def c115_zero_rows(d):
    none = pa.array([], pa.float64())
    table = pa.table({"log_probs": none, "old_log_probs": none, "advantages": none})
    pq.write_table(table, f"{d}/C115.parquet")


def c116_mixed_directory(d):
    Path(d, "run").mkdir(exist_ok=True)
    write_parquet(
        f"{d}/run/part-0.parquet", {"log_probs": [-1.0], "old_log_probs": [-1.1], "advantages": [1.0]}
    )
    for name, data in (
        ("_SUCCESS", b""),
        (".part-0.parquet.crc", b"crc\0\x01\x02\x03\x04"),
        ("notes.txt", b"run notes 1\n"),
    ):
        Path(d, "run", name).write_bytes(data)


def c118_giant_row_group(d):
    for name, n in (("C118", 20_000_000), ("C118_small", 1000)):
        half = np.full(n, -0.5, np.float32)
        write_parquet(
            f"{d}/{name}.parquet",
            {"log_probs": half, "old_log_probs": half, "advantages": np.ones(n, np.float32)},
        )


def c119_tiny_row_groups(d, n=2000):
    cols = {
        "log_probs": [-1.0 - 0.001 * (k % 7) for k in range(n)],
        "old_log_probs": [-1.0] * n,
        "advantages": [float((-1) ** k * (k % 3)) for k in range(n)],
    }
    write_parquet(f"{d}/C119_tiny.parquet", cols, row_group_size=1)
    write_parquet(f"{d}/C119_one.parquet", cols)


def c134_big_mismatch(d):
    n = 200_000
    write_npz(
        f"{d}/C134.npz", log_probs=np.full(n, -1.0), old_log_probs=np.full(n, -1.0), advantages=np.ones(n - 1)
    )


def c138_empty_directory(d):
    Path(d, "empty").mkdir(exist_ok=True)


def builders():
    """case id -> function that writes its files into a directory"""
    out = {}
    for line in (HERE / "cases.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        made = [functools.partial(write_inline, case)]
        if "recipe" in case["inputs"]:
            made.append(globals()[case["inputs"]["recipe"]])
        out[case["id"]] = functools.partial(run_all, made)
    return out


def run_all(functions, d):
    for fn in functions:
        fn(d)
