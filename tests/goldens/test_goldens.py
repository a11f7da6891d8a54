"""Our metrics against numbers that other projects' own code gave."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from goldens.mapping import FUNCTIONS, Arrays, NotExpressed, Row, verl_bound

import ppocli

HERE = Path(__file__).parent / "data"
WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "row" in metafunc.fixturenames:
        folder = metafunc.config.getoption("--goldens") or HERE
        lines = (folder / "goldens.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines if line]
        metafunc.parametrize(("folder", "row"), [pytest.param(folder, row, id=row["id"]) for row in rows])


def evaluate(**roles_and_settings: Any) -> dict[str, Any]:
    """Two axes are (sequence, token); (B, 1) would be read as flat, so it goes in as a list of sequences."""
    given = {
        name: list(value) if isinstance(value, np.ndarray) and value.shape[1:] == (1,) else value
        for name, value in roles_and_settings.items()
    }
    return dict(ppocli.evaluate(**given).metrics)


def test_row(folder: Path, row: Row) -> None:
    if row["function"] not in FUNCTIONS:
        pytest.skip(f"{row['peer']}: {row['function']} has no mapping yet")
    arrays = arrays_of(folder, row)
    gradient = arrays.pop("grad_log_probs", None)
    arrays.pop("kl", None)
    try:
        ours = FUNCTIONS[row["function"]](row, dict(arrays), evaluate)
    except NotExpressed as reason:
        pytest.skip(str(reason))
    slope = ours.pop("sum |grad_log_probs|", None)
    assert ours.keys() == row["outputs"].keys()
    for name, want in row["outputs"].items():
        close(ours[name], want, tolerance(row, name), flips(row, arrays, name), name)
    if slope is not None and gradient is not None and "boundary" not in row["input"]:
        close(slope, float(np.nansum(np.abs(gradient))), tolerance(row, "grad"), 0.0, "gradient")


def arrays_of(folder: Path, row: Row) -> Arrays:
    """The input by role, and the peer's per-token results by name."""
    with np.load(folder / row["input"], allow_pickle=False) as stored:
        out = {role: stored[name] for role, name in row["arrays_by_role"].items()}
    if row.get("arrays"):
        with np.load(folder / row["arrays_file"], allow_pickle=False) as stored:
            out.update({name: stored[key] for name, key in row["arrays"].items()})
    return out


def tolerance(row: Row, name: str) -> float:
    """Relative: 1e-9 in float64, or what the peer itself rounded to."""
    if row["dtype"] != "float64":
        pytest.skip(f"{row['peer']}: rows in {row['dtype']} are not expressed yet")
    if row.get("float32_inside"):
        return 1e-6
    return 4e-7 if name in (row.get("float32_outputs") or ()) else 1e-9


def flips(row: Row, arrays: Arrays, name: str) -> float:
    """The share of tokens whose log-ratio is within 4 units of a bound: their decision may go either way."""
    if "boundary" not in row["input"] or "clipfrac" not in name:
        return 0.0
    settings = row["settings"]
    low, high = verl_bound(settings, "clip_ratio_low"), verl_bound(settings, "clip_ratio_high")
    ratios = (1 - low, 1 + high, settings["clip_ratio_c"])
    log_ratio = arrays["log_probs"] - arrays["old_log_probs"]
    near = np.zeros(log_ratio.shape, bool)
    for bound in map(math.log, ratios):
        near |= np.abs(log_ratio - bound) <= 4.0 * np.spacing(abs(bound))
    return float(near[arrays["mask"] != 0].mean())


def close(got: Any, want: Any, rel: float, slack: float, name: str) -> None:
    if isinstance(want, list):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            close(one, other, rel, slack, name)
        return
    target = WORDS.get(want) if isinstance(want, str) else want
    assert target is not None
    assert got is not None, name
    if math.isnan(target):
        assert math.isnan(got), name
        return
    assert abs(got - target) <= max(rel * abs(target), 1e-12) + slack, (name, got, target)
