"""The screen of `drift`: every number in its row, tables only where there is something."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

import compared
import pytest

from ppocli.core.drift_report import Part, Versus
from ppocli.render.console import Look
from ppocli.render.drift import drift_screen
from ppocli.render.formats import drift_text

if TYPE_CHECKING:
    from ppocli.render.blocks import Block, Screen


def block(screen: Screen, head: str) -> Block:
    (found,) = [one for one in screen.blocks if one.columns[0].header == head]
    return found


def test_every_metric_is_in_a_row_with_its_number() -> None:
    made = compared.drift()
    rows = {
        row[0]: row[1]
        for one in drift_screen(made).blocks
        if one.columns[0].kind == "metric"
        for row in one.rows
    }
    assert len(rows) > 25
    for name, shown in rows.items():
        value = made.metrics[name]
        assert shown == ("null [1]" if value is None else f"{value:.6g}"), name
    counts = {"n_rows", "n_tokens", "n_masked", "n_sequences", "n_files"} | {
        "n_null", "n_nan", "n_posinf", "n_neginf", "tis_weight_mean",
    }  # fmt: skip
    assert set(made.metrics) - set(rows) <= counts


def test_parts_have_their_ends_and_numbers() -> None:
    screen = drift_screen(compared.drift())
    assert block(screen, "position in the sequence").rows == (
        ("0", "4", "0.125", "0.25", "0.03125"),
        ("1 on", "3", "-0.5", "0.75", "0.0625"),
    )
    assert block(screen, "probability exp(b)").rows == (
        ("0 to 0.5", "5", "0.375", "0.4375", "0.015625"),
        ("0.5 and more", "2", "null", "null", "null"),
    )
    assert block(screen, "largest sum |a - b|").rows == (("row 2", "3", "87.5%", "0.1875", "0.3125"),)
    by_step = compared.drift(by_step=(Part(7, 0.25, 0.5, step=12),))
    assert block(drift_screen(by_step), "step").rows == (("12", "7", "0.25", "0.5"),)


def test_corrections_and_worst_tokens() -> None:
    screen = drift_screen(compared.drift())
    assert block(screen, "correction").rows == (("token: cap 2", "28.12%", "1.5", "0.96875", "0.046875"),)
    (worst,) = [one for one in screen.blocks if one.title.startswith("tokens with the largest")]
    assert worst.rows == (("1", "2", "1555", "-0.5", "-4.5", "4", "54.5981"),)


@pytest.mark.parametrize(("ascii_only", "full"), [(False, "█"), (True, "#")])
def test_bars_have_twins_in_ascii(ascii_only: bool, full: str) -> None:
    (low, high) = block(drift_screen(compared.drift(), ascii_only=ascii_only), "|a - b| up to").rows
    assert low[:3] == ("0.0625", "6", "85.71%")
    assert low[3] == full * 24
    assert high == ("more", "1", "14.29%", full * 4)


def test_other_comparisons_stand_beside_the_main_one() -> None:
    other = Versus("update", "log_probs", "old_log_probs", {"diff_abs_mean": 0.125}, {})
    rows = block(drift_screen(compared.drift(comparisons=(other,))), "comparison").rows
    assert rows[0][0] == "mismatch"
    assert rows[0][-1] == "old_log_probs - rollout_log_probs"
    assert rows[1][0] == "update"
    assert "0.125" in rows[1]
    assert rows[1][-1] == "log_probs - old_log_probs"


def test_numbers_for_programs_are_whole() -> None:
    made = compared.drift()
    document = json.loads(drift_text(made, "json", Look()))
    assert document["metrics"] == made.metrics
    (row,) = csv.DictReader(io.StringIO(drift_text(made, "csv", Look())))
    for name, value in made.metrics.items():
        assert row[name] == ("" if value is None else repr(value)), name
