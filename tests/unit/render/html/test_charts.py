"""Charts: as many marks as there is data, each where and as large as the data say."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import audited
import pages
import pytest
import reports
from pages import Element, parsed

from ppocli.core.report import Bin, EvalReport
from ppocli.core.spec import AGGREGATIONS
from ppocli.render.html import html_page


def chart(report: object, name: str) -> Element:
    return parsed(html_page(report)).by_id(name)


def number(one: Element, name: str) -> float:
    return float((one[name] or "").removesuffix("%"))


def heights(one: Element) -> list[float]:
    return [number(bar, "height") for bar in one.all("rect", "bar")]


def wide(**settings: Any) -> EvalReport:
    """Eight tokens in four bars of 0.25 nats between two open ones."""
    ends = (None, -0.5, -0.25, 0.0, 0.25, 0.5, None)
    bars = tuple(Bin(ends[k], ends[k + 1], n) for k, n in enumerate((0, 1, 4, 2, 0, 1)))
    made = reports.full()
    return replace(
        made,
        settings={**made.settings, **settings},
        histograms={"log_ratio": bars, "log_ratio_abs": (Bin(0.0, 0.5, 7), Bin(0.5, None, 1))},
    )


# ------------------------------------------------------------------------------------------- ratios


def test_a_bar_for_each_bin_as_high_as_its_share() -> None:
    drawn = chart(wide(), "ratios")
    assert heights(drawn) == pytest.approx([0.0, 42.5, 170.0, 85.0, 0.0, 42.5], abs=0.001)
    hints = [bar.all("title")[0].text() for bar in drawn.all("rect", "bar")]
    assert hints[0] == "ratio below 0.6065: 0 tokens, 0 %"
    assert hints[2] == "ratio 0.7788 to 1: 4 tokens, 50 %"
    assert hints[5] == "ratio 1.649 and more: 1 token, 12.5 %"


def test_what_is_not_empty_shows() -> None:
    bars = (Bin(None, -0.5, 1), Bin(-0.5, 0.5, 10**9), Bin(0.5, None, 0))
    assert heights(chart(replace(wide(), histograms={"log_ratio": bars}), "ratios")) == [2.0, 170.0, 0.0]


def places(drawn: Element) -> tuple[float, float]:
    """Return where log-ratio 0 stands and how wide a nat is, in per cent, from the middles of bars."""
    bars = drawn.all("rect", "bar")[1:-1]
    first, last = (number(bar, "x") + number(bar, "width") / 2 for bar in (bars[0], bars[-1]))
    per_nat = (last - first) / 0.75
    return first + 0.375 * per_nat, per_nat


def test_the_clip_interval_stands_at_its_ends() -> None:
    drawn = chart(wide(clip_low=0.2, clip_high=0.28), "ratios")
    zero, per_nat = places(drawn)
    expected = [zero + per_nat * math.log(0.8), zero + per_nat * math.log(1.28)]
    assert [number(one, "x1") for one in drawn.all("line", "clip")] == pytest.approx(expected, abs=0.01)
    stops = [number(one, "offset") for one in drawn.all("stop")]
    assert stops[1:5] == pytest.approx([expected[0]] * 2 + [expected[1]] * 2, abs=0.01)
    assert [one["class"] for one in drawn.all("stop")] == ["out", "out", "in", "in", "out", "out"]
    (band,) = drawn.all("rect", "band")
    assert number(band, "x") == pytest.approx(expected[0], abs=0.01)
    assert number(band, "x") + number(band, "width") == pytest.approx(expected[1], abs=0.01)
    assert "clip 0.8" in drawn.text()
    assert "clip 1.28" in drawn.text()


def test_an_end_that_is_not_shown_has_no_line() -> None:
    drawn = chart(wide(clip_low=0.2, clip_high=5.0), "ratios")
    assert len(drawn.all("line", "clip")) == 1
    assert [number(one, "offset") for one in drawn.all("stop")][3:] == [100.0] * 3


@pytest.mark.parametrize("objective", ["is", "gspo", "dppo-tv"])
def test_bars_are_split_only_where_the_ratio_of_a_token_is_bounded(objective: str) -> None:
    assert not chart(wide(objective=objective), "ratios").all("stop")


def test_labels_of_the_axis_stand_at_their_ratio_and_apart() -> None:
    drawn = chart(wide(), "ratios")
    zero, per_nat = places(drawn)
    bottom = max(number(one, "y") for one in drawn.all("text"))
    ticks = [(number(one, "x"), float(one.text())) for one in drawn.all("text") if number(one, "y") == bottom]
    assert 1.0 in [ratio for _, ratio in ticks]
    assert len(ticks) >= 3
    for x, ratio in ticks:
        assert x == pytest.approx(zero + per_nat * math.log(ratio), abs=0.01)
    assert min(b[0] - a[0] for a, b in pairwise(ticks)) >= 15.0


def test_the_clipped_mass_by_the_sign_of_the_advantage() -> None:
    shares = {
        "clip_frac_low": 0.2, "clip_frac_active_low": 0.15, "clip_frac_high": 0.1,
        "clip_frac_active_high": 0.04,
    }  # fmt: skip
    made = wide()
    drawn = chart(replace(made, metrics={**made.metrics, **shares}), "clipped")
    bars = drawn.all("rect", "bar")
    spans = [(number(bar, "x"), number(bar, "width"), bar["class"]) for bar in bars]
    expected = [
        (0.0, 75.0, "bar minus"), (75.0, 25.0, "bar plus kept"),
        (0.0, 20.0, "bar plus"), (20.0, 30.0, "bar minus kept"),
    ]  # fmt: skip
    for got, want in zip(spans, expected, strict=True):
        assert got[2] == want[2]
        assert got[:2] == pytest.approx(want[:2], abs=0.01)
    assert "20 %, clipped branch 15 %" in drawn.text()


@pytest.mark.parametrize(
    "metrics",
    [{"clip_frac_low": None}, {"adv_mean": None}],
    ids=["a share is not known", "not over the same tokens"],
)
def test_no_clipped_mass_where_it_is_not_known(metrics: dict[str, Any]) -> None:
    made = wide()
    root = parsed(html_page(replace(made, metrics={**made.metrics, **metrics}, nulls=pages.notes(metrics))))
    assert not [one for one in root.walk() if one["id"] == "clipped"]


# ------------------------------------------------------------------------------------------- sizes


def octaves(*counts: int) -> EvalReport:
    """Bars that end at 1, 2, 4, ..."""
    bars = [Bin(0.0 if k == 0 else 2.0 ** (k - 1), 2.0**k, n) for k, n in enumerate(counts)]
    return replace(reports.full(), histograms={"log_ratio": (), "log_ratio_abs": tuple(bars)})


def test_sizes_are_on_a_logarithmic_scale() -> None:
    root = parsed(html_page(octaves(100, 10, 0, 1)))
    drawn = root.by_id("sizes")
    hundred, ten, none, one = heights(drawn)
    assert none == 0.0
    assert hundred - ten == pytest.approx(ten - one, abs=0.01)
    tops = [number(bar, "y") for bar in drawn.all("rect", "bar")]
    lines = [number(line, "y1") for line in drawn.all("line", "grid-line")]
    assert lines[:3] == pytest.approx([tops[3], tops[1], tops[0]], abs=0.01)
    (scale,) = root.all("svg", "scale")
    assert [label.text() for label in scale.all("text")][:3] == ["1", "10", "100"]


def test_limits_and_steps_of_formats_stand_where_they_are() -> None:
    drawn = chart(octaves(100, 10, 1, 1), "sizes")
    # Eight slots: 0 to 1, then an octave each up to 128.
    limits = {math.log(448.0): 3, math.log((57344.0 + 65504.0) / 2): 4, math.log(2.0**127.997): 7}
    expected = sorted(100.0 * (k + math.log2(one / 2.0 ** (k - 1))) / 8 for one, k in limits.items())
    assert sorted(number(one, "x1") for one in drawn.all("line", "limit")) == pytest.approx(expected, abs=0.1)
    steps = [2.0**-10, 2.0**-7, 2.0**-3]
    assert sorted(number(one, "x1") for one in drawn.all("line", "mark")) == pytest.approx(
        [100.0 * step / 8 for step in steps], abs=0.001
    )
    text = drawn.text()
    for words in ("bfloat16, float32 overflow 88.7", "float8_e4m3fn overflow 6.1", "bfloat16 step 0.00781"):
        assert words in text


def test_labels_above_the_bars_have_a_line_each() -> None:
    drawn = chart(octaves(100, 10, 1, 1), "sizes")
    marks = [number(one, "y") for one in drawn.all("text") if (one["class"] or "") in ("limit", "mark")]
    assert len(marks) == 6
    assert min(b - a for a, b in pairwise(sorted(marks))) >= 15.0
    assert max(marks) < min(number(bar, "y") for bar in drawn.all("rect", "bar"))


def test_the_open_bar_stands_behind_the_others() -> None:
    drawn = chart(wide(), "sizes")
    first, last = drawn.all("rect", "bar")
    assert number(first, "x") + number(first, "width") < number(last, "x")
    assert last.all("title")[0].text() == "|log_ratio| 0.5 and more: 1 token, 12.5 %"


def test_an_audit_fills_octaves_without_tokens() -> None:
    drawn = chart(audited.report(histogram=((0.0, 3), (2.0**-6, 1), (2.0**-3, 4))), "sizes")
    counts = [bar.all("title")[0].text().split(": ")[1].split(" ")[0] for bar in drawn.all("rect", "bar")]
    assert counts == ["3", "1", "0", "0", "4"]


# ------------------------------------------------------------------------------------------- rows


def test_drift_by_class_and_by_size() -> None:
    root = parsed(html_page(pages.drift()))
    assert heights(root.by_id("differences")) == pytest.approx([170.0, 0.0, 85.0, 85.0])
    widths = {
        name: [number(bar, "width") for bar in root.by_id(name).all("rect", "bar")]
        for name in ("by-position", "by-probability")
    }
    assert widths == {
        "by-position": [100.0, 50.0],
        "by-probability": [100.0, 0.0],
    }


def test_small_differences_stand_together() -> None:
    from ppocli.core.drift_report import Bar

    bars = tuple(Bar(0.0 if k == 0 else 2.0 ** (k - 41), 2.0 ** (k - 40), 1) for k in range(40))
    drawn = chart(pages.drift(histogram=bars), "differences").all("rect", "bar")
    assert len(drawn) == 28
    assert ": 13 tokens" in drawn[0].all("title")[0].text()


def test_a_dot_for_each_framework_that_has_a_number() -> None:
    root = parsed(html_page(pages.parity()))
    for name, texts in (("parity-0", ["verl", "trl"]), ("parity-1", ["trl", "verl"])):
        dots = root.by_id(name).all("circle")
        assert [number(dot, "cx") for dot in dots] == pytest.approx([2.0, 98.0])
        assert [dot.all("title")[0].text().split(":")[0] for dot in dots] == texts


def test_bars_of_both_signs_start_at_zero() -> None:
    by_agg = {**dict.fromkeys(AGGREGATIONS), "token-mean": -1.0, "seq-mean-token-mean": 3.0}
    missing = {f"policy_loss_by_agg.{name}": None for name, one in by_agg.items() if one is None}
    made = reports.report({"policy_loss_by_agg": by_agg}, nulls=pages.notes(missing))
    bars = chart(made, "aggregations").all("rect", "bar")
    assert [(number(bar, "x"), number(bar, "width")) for bar in bars] == [(0.0, 25.0), (25.0, 75.0)]
    (zero,) = chart(made, "aggregations").all("line", "axis")
    assert number(zero, "x1") == 25.0
