"""The sample files: what their README says, and that they come out of their script again."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import naive
import numpy as np
import pyarrow.parquet as pq
import pytest
from batch_files import tokens_of
from comparison import differences

import ppocli

FOLDER = Path(__file__).parents[2] / "sample_data"
FILES = sorted(path.name for path in FOLDER.iterdir() if path.suffix in (".parquet", ".npz"))
LINES = {
    match[1]: match[2]
    for match in re.finditer(r"^- \[(.+?)\]\(\1\): (.+)$", (FOLDER / "README.md").read_text(), re.MULTILINE)
}
STATED = [
    (name, metric, number)
    for name, text in LINES.items()
    for metric, number in re.findall(r"`(\w+)` (-?\d+(?:\.\d+)?)", text)
]


def test_every_file_has_its_line_with_numbers() -> None:
    assert sorted(LINES) == FILES
    for name in FILES:
        assert sum(one == name for one, _, _ in STATED) >= 2, name


@pytest.fixture(scope="module")
def metrics() -> dict[str, dict[str, float]]:
    out = {}
    for name in FILES:
        tokens, n_rows = tokens_of(FOLDER / name)
        out[name] = naive.evaluate(tokens, n_rows=n_rows).metrics
    return out


@pytest.mark.parametrize(("name", "metric", "number"), STATED)
def test_the_numbers_of_the_readme(
    name: str, metric: str, number: str, metrics: dict[str, dict[str, float]]
) -> None:
    half_a_digit = 0.5 * 10.0 ** -len(number.partition(".")[2])
    tolerance = half_a_digit if "." in number else 0.0
    assert metrics[name][metric] == pytest.approx(float(number), rel=0.0, abs=tolerance)


@pytest.mark.parametrize("name", FILES)
def test_the_engine_agrees_with_the_loops(name: str) -> None:
    tokens, n_rows = tokens_of(FOLDER / name)
    report = ppocli.evaluate(FOLDER / name, value_clip=0.2, dual_clip=3.0)
    want = naive.evaluate(tokens, n_rows=n_rows, value_clip=0.2, dual_clip=3.0)
    assert differences(report.metrics, report.nulls, want) == []


def test_the_healthy_file_is_healthy(metrics: dict[str, dict[str, float]]) -> None:
    one = metrics["healthy.parquet"]
    assert 0.005 <= one["approx_kl_k3"] <= 0.02
    assert 0.05 <= one["clip_frac"] <= 0.15
    assert one["ess_frac"] > 0.9
    assert one["n_nan"] == one["n_null"] == one["n_positive_log_probs"] == 0
    assert one["explained_variance"] > 0.5
    assert one["policy_loss"] < 0.0


def test_all_together_stay_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir() if path.is_file()) < 2_000_000


def test_the_script_writes_the_same_values(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("make_samples", FOLDER / "make_samples.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.main(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES
    for name in FILES:
        if name.endswith(".npz"):
            with np.load(FOLDER / name) as kept, np.load(tmp_path / name) as made:
                assert kept.files == made.files
                for role in kept.files:
                    np.testing.assert_array_equal(kept[role], made[role], strict=True)
        else:
            assert pq.read_table(FOLDER / name).equals(pq.read_table(tmp_path / name), check_metadata=True)
