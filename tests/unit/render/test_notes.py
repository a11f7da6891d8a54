from __future__ import annotations

import pytest

from ppocli.core.metrics import METRICS
from ppocli.core.objective_texts import OBJECTIVE_TEXTS
from ppocli.core.spec import AGGREGATIONS, OBJECTIVES, LossSpec
from ppocli.render.header import words_of
from ppocli.render.notes import AGGREGATION_NOTES, METRIC_NOTES, note_of

WORDS = words_of(LossSpec(clip_high=0.28, agg="seq-mean-token-mean", adv_norm_ddof=1).to_dict())


def test_every_metric_and_aggregation_has_a_note_and_nothing_else_has() -> None:
    assert set(METRIC_NOTES) == set(METRICS)
    assert set(AGGREGATION_NOTES) == set(AGGREGATIONS)


@pytest.mark.parametrize("name", METRICS)
def test_notes_fit_beside_name_and_value_on_eighty_columns(name: str) -> None:
    note = note_of(name, WORDS)
    assert len(note) <= 40
    assert note.isascii()
    assert "{" not in note


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_clip_notes_say_what_the_objective_clips(objective: str) -> None:
    words = words_of(LossSpec(objective, clip_low=0.1, clip_high=0.3, cispo_high=5.0).to_dict())
    region = OBJECTIVE_TEXTS[objective].region
    low, high = {"cispo": ("0.9", "5"), "gmpo": ("-0.1", "0.3")}.get(
        objective, ("-0.1", "0.3") if objective.startswith("dppo") else ("0.9", "1.3")
    )
    expected = f"{region} outside [{low}, {high}]" if region else "nothing is clipped"
    assert note_of("clip_frac", words) == expected
    assert note_of("clip_frac_high", words) == (f"{region} > {high}" if region else "nothing is clipped")


def test_notes_carry_the_settings() -> None:
    assert note_of("clip_frac", WORDS) == "ratio outside [0.8, 1.28]"
    assert note_of("clip_frac_active_high", WORDS) == "ratio > 1.28 and advantage > 0"
    assert note_of("policy_loss", WORDS) == "seq-mean-token-mean, to be minimised"
    assert note_of("adv_std", WORDS) == "standard deviation, ddof 1"


@pytest.mark.parametrize(
    ("name", "limit"),
    # The limits of DESIGN's table, rounded: ln of the largest value, ln of half the smallest.
    [
        ("overflow_float16", "> 11.09"),
        ("overflow_float32", "> 88.72"),
        ("overflow_float8_e4m3fn", "> 6.10"),
        ("underflow_float16", "< -17.33"),
        ("underflow_float64", "< -745.13"),
    ],
)
def test_notes_of_formats_name_the_limit(name: str, limit: str) -> None:
    assert note_of(name, WORDS) == f"tokens, log_ratio {limit}"
