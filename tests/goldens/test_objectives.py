"""Our formulas on arrays against numbers that other projects' own code gave."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from goldens.objectives import FUNCTIONS
from goldens.rows import Arrays, NotExpressed, Row, Tally, arrays_of, close, tolerance

if TYPE_CHECKING:
    from goldens.batch import Answer


def covers(row: Row) -> bool:
    return row["function"] in FUNCTIONS


def test_row(folder: Path, row: Row, tally: Tally) -> None:
    key = row["peer"], row["function"]
    arrays = arrays_of(folder, row)
    try:
        if "raises" in row["outputs"]:
            raise NotExpressed("the peer raises an exception")
        answer = FUNCTIONS[row["function"]](row, dict(arrays))
    except NotExpressed as reason:
        tally.missing[key][f"rows: {reason}"] += 1
        pytest.skip(str(reason))
    assert answer.outputs.keys() | answer.missing.keys() == row["outputs"].keys()
    for name, want in row["outputs"].items():
        if name in answer.missing:
            tally.missing[key][f"{name}: {answer.missing[name]}"] += 1
            continue
        spread = {"scale": answer.scale.get(name, 0.0), "slack": answer.slack.get(name, 0.0)}
        close(answer.outputs[name], want, name, rel=tolerance(row, name), **spread)
        tally.outputs[key] += 1
    tally.arrays[key] += compare_arrays(row, arrays, answer)
    tally.rows[key] += 1


def padding_spoils_rows(arrays: Arrays) -> bool:
    """Whether a masked value is not finite."""
    padding = arrays["mask"] == 0
    return any(
        not np.isfinite(values[padding]).all()
        for name, values in arrays.items()
        if values.shape == padding.shape and name != "grad_log_probs"
    )


def compare_arrays(row: Row, arrays: Arrays, answer: Answer) -> int:
    """Gradient and masks of valid tokens, those left out whose decision may go either way; how many."""
    valid = arrays["mask"] != 0
    sure = np.ones(valid.sum(), bool) if answer.doubtful is None else ~answer.doubtful
    done = 0
    for name, ours in answer.masks.items():
        if name in arrays:
            assert (arrays[name][valid] != 0)[sure].tolist() == ours[sure].tolist(), name
            done += 1
    for name, ours in answer.values.items():
        want = arrays[name][valid]
        assert (np.abs(ours - want) <= tolerance(row, name) * np.abs(want)).all(), name
        done += 1
    if "grad_log_probs" in arrays and answer.gradient is not None:
        want = arrays["grad_log_probs"][valid]
        if padding_spoils_rows(arrays):
            # The peer's own gradient is NaN in rows whose padding is. Ours must not be.
            sure &= ~np.isnan(want)
        # Relative to the token, with the mean as the floor: the terms of a sum over a sequence cancel.
        room = tolerance(row, "gradient") * np.maximum(np.abs(want), np.nanmean(np.abs(want)))
        assert np.isfinite(answer.gradient).all()
        assert (np.abs(answer.gradient - want) <= room)[sure].all()
        done += 1
    return done
