"""Start-up is structural: what a command may import, counted in `sys.modules`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import reports
from contract.command import environment

SAMPLES = Path(__file__).resolve().parents[2] / "sample_data"
HEAVY = {"typer", "pydantic", "rich", "numpy", "pyarrow", "numba", "llvmlite", "click"}

SCRIPT = """
import sys
from ppocli.cli.app import main
import io
stdout, sys.stdout = sys.stdout, io.StringIO()
code = main(sys.argv[1:])
import json
names = sorted({name.partition('.')[0] for name in sys.modules})
ours = sorted(name for name in sys.modules if name.startswith('ppocli'))
print(json.dumps([code, names, ours]), file=stdout)
"""


def imported(*arguments: str, **changes: str) -> tuple[int, set[str], set[str]]:
    """Return the exit code, the heavy packages and our modules that a command has imported."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        capture_output=True,
        env=environment(**changes),
        timeout=60,
        check=False,
    )
    code, names, ours = json.loads(done.stdout.splitlines()[-1])
    return code, set(names) & HEAVY, set(ours)


@pytest.mark.parametrize(
    ("arguments", "code", "allowed"),
    [
        (["--version"], 0, set()),
        (["-V"], 0, set()),
        (["evl"], 2, set()),
        (["--help"], 0, {"typer"}),
        (["eval", "--help"], 0, {"typer"}),
        (["eval"], 2, {"typer"}),
        (["eval", "x.parquet", "--bad"], 2, {"typer"}),
        (["drift", "--help"], 0, {"typer"}),
        (["drift"], 2, {"typer"}),
        (["drift", "x.parquet", "--tis-cap", "0"], 2, {"typer"}),
        (["inspect", "--help"], 0, {"typer"}),
        (["inspect"], 2, {"typer"}),
        (["inspect", "x.parquet", "--layout", "x"], 2, {"typer"}),
        (["convert", "--help"], 0, {"typer"}),
        (["convert"], 2, {"typer"}),
        (["convert", "x.npz"], 2, {"typer", "pydantic"}),
        (["synth", "--help"], 0, {"typer"}),
        (["synth"], 2, {"typer"}),
        (["synth", "--pathology", "nan"], 2, {"typer"}),
        (["synth", "-o", "/nowhere/x"], 2, {"typer"}),
        (["check", "--help"], 0, {"typer"}),
        (["check"], 2, {"typer"}),
        (["check", "x.parquet", "--max", "clip_fraq=1"], 2, {"typer"}),
        (["config", "show"], 0, {"typer"}),
        (["config", "--help"], 0, {"typer"}),
        (["audit", "--help"], 0, {"typer"}),
        (["audit"], 2, {"typer"}),
        (["audit", "x.parquet", "--formats", "x"], 2, {"typer"}),
        (["schema"], 0, {"typer"}),
        (["schema", "--help"], 0, {"typer"}),
        (["explain", "--help"], 0, {"typer"}),
        (["explain", "clip_frac"], 0, {"typer"}),
        (["explain", "--list"], 0, {"typer"}),
        (["eval", "x.parquet", "--clip-eps", "7"], 2, {"typer"}),
        (["eval", "x.parquet", "-o", "/nowhere/x"], 2, {"typer"}),
    ],
)
def test_imports_of_a_command(arguments: list[str], code: int, allowed: set[str]) -> None:
    got, heavy, ours = imported(*arguments)
    assert got == code
    assert heavy <= allowed
    assert not any(name.startswith(("ppocli.engine.", "ppocli.io.", "ppocli.kernels.")) for name in ours)


@pytest.mark.parametrize(
    ("arguments", "needs_rich"),
    [([], True), (["-f", "json"], False), (["-f", "md"], False), (["-f", "csv", "--scan"], False)],
)
@pytest.mark.parametrize("name", ["healthy.parquet", "padded.npz"])
def test_inspect_does_without_numba(name: str, arguments: list[str], needs_rich: bool) -> None:
    code, heavy, ours = imported("inspect", str(SAMPLES / name), *arguments)
    assert code == 0
    assert heavy <= {"typer", "numpy", "rich", "pyarrow"}
    assert ("rich" in heavy) == needs_rich
    assert ("pyarrow" in heavy) == name.endswith(".parquet")
    assert not any(name.startswith("ppocli.kernels.") for name in ours)
    assert ("ppocli.engine.scan" in ours) == ("--scan" in arguments)


@pytest.mark.parametrize(("form", "needs_rich"), [("table", True), ("json", False), ("junit", False)])
def test_a_saved_report_is_judged_without_numpy(tmp_path: Path, form: str, needs_rich: bool) -> None:
    saved = tmp_path / "report.json"
    saved.write_text(json.dumps(reports.report().to_dict()))
    code, heavy, _ = imported("check", str(saved), "--max", "clip_frac=1", "-f", form)
    assert code == 0
    assert heavy == {"typer", *(["rich"] if needs_rich else [])}


@pytest.mark.parametrize("name", ["x.jsonl", "x.arrows", "x.npy"])
def test_inspect_and_convert_of_other_formats_do_without_numba(name: str, tmp_path: Path) -> None:
    import numpy as np
    import pyarrow as pa

    path, columns = tmp_path / name, ("log_probs", "old_log_probs", "advantages")
    table = pa.table({key: [-1.0, -2.0] for key in columns})
    if name == "x.jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    elif name == "x.npy":
        np.save(path, np.zeros(2, [(column, "f4") for column in columns]))
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    for arguments in (
        ("inspect", "-f", "json"),
        ("convert", "-o", str(tmp_path / "o.parquet"), "--verify", "-qq"),
    ):
        code, heavy, ours = imported(arguments[0], str(path), *arguments[1:])
        assert code == 0
        assert heavy <= {"typer", "numpy", "pyarrow"}
        assert "pyarrow" in heavy or name == "x.npy"
        assert not any(one.startswith("ppocli.kernels.") for one in ours)


def test_synth_does_without_numba(tmp_path: Path) -> None:
    code, heavy, ours = imported("synth", "-o", str(tmp_path / "made.parquet"))
    assert (code, heavy) == (0, {"typer", "numpy", "pyarrow"})
    assert not any(name.startswith("ppocli.kernels.") for name in ours)
    code, heavy, _ = imported("synth", "--list")
    assert (code, heavy) == (0, {"typer", "numpy"})


def test_version_imports_next_to_nothing_of_ours() -> None:
    assert imported("--version")[2] == {
        "ppocli",
        "ppocli.cli",
        "ppocli.cli.app",
        "ppocli.cli.failures",
        "ppocli.errors",
    }


def test_only_the_called_command_is_imported() -> None:
    ours = imported("schema")[2]
    assert "ppocli.cli.schema" in ours
    assert not ours & {"ppocli.cli.eval", "ppocli.cli.explain", "ppocli.cli.env", "ppocli.cli.options"}


def test_importing_the_package_costs_nothing() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import ppocli, sys; print(*(n for n in sys.modules if n.startswith('ppocli')))",
        ],
        capture_output=True,
        env=environment(),
        timeout=60,
        check=True,
    )
    assert done.stdout == b"ppocli\n"


def test_lists_are_read_without_the_compute_functions(tmp_path: Path) -> None:
    """`pyarrow.compute` takes 30 ms to import, and PyArrow does so for what looks harmless."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {name: [[-1.0, -2.0], [-0.5]] for name in ("log_probs", "old_log_probs", "advantages")}
    fixed = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2))
    for name, table in (
        ("lists", pa.table(columns)),
        ("fixed", pa.table(dict.fromkeys(columns, fixed))),
        ("flat", pa.table({role: [-1.0, -2.0] for role in columns})),
    ):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    code = f"import sys, ppocli; ppocli.evaluate({str(tmp_path)!r}); print('pyarrow.compute' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == "False", done.stderr
