"""The screen of `parity`: a table for each quantity, sorted by value."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import compared

from ppocli.render.console import Look
from ppocli.render.formats import parity_text
from ppocli.render.parity import parity_screen


def test_each_quantity_has_its_ends_and_a_row_for_each_framework() -> None:
    blocks = {one.title: one for one in parity_screen(compared.parity()).blocks}
    assert list(blocks) == [
        "loss: -0.375 to -0.125, 2 frameworks",
        "clip fraction: 0.25 to 0.25, 1 framework",
        "approx KL: 0.0625 to 0.0625, 1 framework",
        "value loss: 0.5 to 0.5, 1 framework",
        "not computed",
    ]
    rows = blocks["loss: -0.375 to -0.125, 2 frameworks"].rows
    assert [row[:3] for row in rows] == [
        ("-0.375", "trl 1.0", "loss"),
        ("-0.125", "verl 0.7.0", "ppo_actor/update/actor_loss/policy_loss/avg"),
    ]
    assert blocks["not computed"].rows == (("verl", "clip fraction", "1 NaN (nan)"),)


def test_rows_are_sorted_by_value_whatever_the_order_of_frameworks() -> None:
    made = compared.parity()
    turned = replace(made, frameworks=made.frameworks[::-1])
    assert parity_screen(turned).blocks[0].rows == parity_screen(made).blocks[0].rows


def test_what_is_the_same_for_all_is_said() -> None:
    header = parity_screen(compared.parity(settings={"columns": {}, "clip_low": 0.1})).header
    assert header == (
        "rollouts.parquet  7 tokens, 2 frameworks",
        "the same for all: clip_low 0.1; everything else is each framework's default",
    )


def test_numbers_for_programs() -> None:
    rows = list(csv.DictReader(io.StringIO(parity_text(compared.parity(), "csv", Look()))))
    assert [(one["quantity"], one["framework"], one["value"]) for one in rows] == [
        ("loss", "trl", "-0.375"),
        ("loss", "verl", "-0.125"),
        ("clip fraction", "trl", "0.25"),
        ("clip fraction", "verl", "nan"),
        ("approx KL", "trl", "0.0625"),
        ("value loss", "trl", "0.5"),
    ]
    assert rows[3]["reason"] == "1 NaN"
    lines = parity_text(compared.parity(), "jsonl", Look()).splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["framework", "framework", "total"]
