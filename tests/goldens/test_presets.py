"""`evaluate(..., like=NAME)` against numbers that the frameworks' own code gave, under their own names."""

from __future__ import annotations

from pathlib import Path

import pytest
from goldens.presets import MAPPINGS
from goldens.presets.asked import flips, metrics_of
from goldens.rows import NotExpressed, Row, Tally, arrays_of, close, tolerance


def covers(row: Row) -> bool:
    return row["function"] in MAPPINGS


def test_row(folder: Path, row: Row, tally: Tally) -> None:
    key = row["peer"], f"{row['function']} (like)"
    arrays = arrays_of(folder, row)
    try:
        if "raises" in row["outputs"]:
            raise NotExpressed("the peer raises an exception")
        asked = MAPPINGS[row["function"]](row, dict(arrays))
    except NotExpressed as reason:
        tally.missing[key][f"rows: {reason}"] += 1
        pytest.skip(str(reason))
    ours = metrics_of(asked)
    for name, want in row["outputs"].items():
        if name in asked.missing:
            tally.missing[key][f"{name}: {asked.missing[name]}"] += 1
            continue
        got = asked.values[name] if name in asked.values else ours[asked.names.get(name, name)]
        got = got if got is None or isinstance(got, list) else got * asked.factors.get(name, 1.0)
        room = {
            "scale": asked.scale.get(name, 0.0),
            "slack": asked.slack.get(name, 0.0) + flips(asked, arrays, name),
        }
        rel = 1e-6 if name in asked.float32 else tolerance(row, name)
        close(got, want, name, rel=rel, **room)
        tally.outputs[key] += 1
    for name, terms in asked.terms.items():
        want = arrays[name][arrays["mask"] != 0] if "mask" in arrays else arrays[name].reshape(-1)
        rel, scale = 1e-6 if name in asked.float32 else tolerance(row, name), asked.scale.get(name, 0.0)
        close(terms.tolist(), want.tolist(), name, rel=rel, scale=scale)
        tally.arrays[key] += 1
    tally.rows[key] += 1
