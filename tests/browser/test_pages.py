"""Pages in headless Chromium: nothing is requested, they fit a phone, they can be read, also by keyboard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import audited
import checked
import pages
import pytest
import reports

from ppocli.core.check_report import Check, CheckReport
from ppocli.core.report import Bin, Group
from ppocli.render.html import html_page

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-default-apps"),
]

pytestmark = [
    pytest.mark.skipif(not find_spec("playwright"), reason="browser tests need playwright"),
    pytest.mark.skipif(not CHROMIUM.exists(), reason="browser tests need /usr/bin/chromium"),
]


def usual() -> Any:
    """A report whose charts are full: a usual distribution, a token far out, findings, worst tokens."""
    counts = [3, 1, 4, 9, 16, 30, 62, 40, 21, 8, 5, 2, 7]
    edges = [None, *(-0.34375 + 0.0625 * k for k in range(12)), None]
    bars = tuple(Bin(edges[k], edges[k + 1], n) for k, n in enumerate(counts))
    lows = [0.0, *(2.0**k - 2.0**-8 for k in range(-7, 6))]
    sizes = tuple(
        Bin(low, high, n)
        for low, high, n in zip(
            lows, [*lows[1:], None], [10, 9, 8, 9, 40, 99, 20, 5, 4, 0, 0, 3, 0, 1], strict=True
        )
    )
    made = reports.full()
    shares = {"clip_frac_low": 0.2, "clip_frac_active_low": 0.15, "clip_frac_high": 0.1,
              "clip_frac_active_high": 0.04}  # fmt: skip
    return replace(
        made,
        metrics={**made.metrics, **shares},
        histograms={"log_ratio": bars, "log_ratio_abs": sizes},
    )


def by_step() -> Any:
    """Forty steps, one of them far out, one null; thousands of them would have no dots."""
    losses: list[Any] = [0.25 - k / 80 + (0.5 if k == 24 else 0.0) for k in range(40)]
    losses[7] = None
    groups = tuple(
        Group(
            {"step": 100 * k},
            {"n_tokens": 50, "policy_loss": loss, "clip_frac": k / 100},
            pages.notes({"policy_loss": loss}),
        )
        for k, loss in enumerate(losses)
    )
    return replace(usual(), groups=groups)


def gate_by_step() -> Any:
    """A limit that is broken from the thirtieth step on."""
    report = by_step()
    checks = tuple(
        Check("clip_frac <= 0.29", "max", "pass" if k < 30 else "fail", "--max", "" if k < 30 else "more",
              "clip_frac", k / 100, 0.29, key=one.key)
        for k, one in enumerate(report.groups)
    )  # fmt: skip
    return CheckReport(report.to_dict(), checks, {"notes": ()}, 1)


MADE = {
    "steps": by_step(),
    "gate by step": gate_by_step(),
    "many steps": replace(
        by_step(),
        groups=tuple(
            Group({"step": k}, {"n_tokens": 1, "policy_loss": (k % 17) / 16}, {}) for k in range(3000)
        ),
    ),
    "hostile steps": pages.hostile()["groups"],
    "eval": usual(),
    "nulls": reports.with_nulls(),
    "files": reports.several(),
    "empty": reports.empty(),
    "check": checked.judged(usual()),
    "audit": audited.report(),
    "drift": pages.drift(),
    "parity": pages.parity(),
    "hostile": pages.hostile()["eval"],
    "hostile drift": pages.hostile()["drift"],
    "hostile parity": pages.hostile()["parity"],
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pages")
    for name, report in MADE.items():
        (made / f"{name}.html").write_text(html_page(report), encoding="utf-8")
    return made


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS, headless=True)
        yield opened
        opened.close()


class Visit:
    """A page that was opened, with all that it said and asked for."""

    def __init__(self, browser: Any, path: Path, width: int, scheme: str) -> None:
        self.page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda problem: self.said.append(str(problem)))
        self.page.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())


@pytest.fixture(scope="session")
def visit(browser: Any, folder: Path) -> Any:
    """Open a page once for each width and colour scheme."""
    opened: dict[tuple[str, int, str], Visit] = {}

    def open_page(name: str, width: int = 1200, scheme: str = "light") -> Visit:
        key = (name, width, scheme)
        if key not in opened:
            opened[key] = Visit(browser, folder / f"{name}.html", width, scheme)
        return opened[key]

    return open_page


every = pytest.mark.parametrize("name", MADE)
schemes = pytest.mark.parametrize("scheme", ["light", "dark"])


@every
@schemes
def test_nothing_is_said_and_nothing_is_asked_for(visit: Any, folder: Path, name: str, scheme: str) -> None:
    seen = visit(name, scheme=scheme)
    seen.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    seen.page.wait_for_timeout(50)
    assert seen.said == []
    assert seen.asked == [(folder / f"{name}.html").as_uri()]
    assert seen.page.evaluate("document.querySelectorAll('script, img, iframe, link, object').length") == 0


@every
@pytest.mark.parametrize("width", [320, 360, 1200])
def test_it_does_not_scroll_sideways(visit: Any, name: str, width: int) -> None:
    page = visit(name, width).page
    for is_open in ("false", "true"):
        page.evaluate(f"document.querySelectorAll('details').forEach(one => one.open = {is_open})")
        wide, room = page.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert wide <= room


CONTRAST = """() => {
  document.querySelectorAll('details').forEach(one => one.open = true);
  const tips = [...document.querySelectorAll('.tip')];
  tips.forEach(one => one.style.display = 'inline-block');
  const parts = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => {
    const linear = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const [x, y, z] = [r, g, b].map(v => linear(v / 255));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = one => {
    for (let up = one; up; up = up.parentElement) {
      const colour = parts(getComputedStyle(up).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
      if (colour[3] !== 0) throw new Error('a background one can see through');
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const one = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || one.closest('title, desc')) continue;
    const style = getComputedStyle(one);
    const front = parts(one.closest('svg') ? style.fill : style.color);
    const [a, b] = [light(front), light(behind(one))].sort((p, q) => q - p);
    found.push([(a + 0.05) / (b + 0.05), walker.currentNode.data, one.className.baseVal ?? one.className]);
  }
  tips.forEach(one => one.style.display = '');
  return found;
}"""


@every
@schemes
def test_all_text_has_contrast(visit: Any, name: str, scheme: str) -> None:
    found = visit(name, scheme=scheme).page.evaluate(CONTRAST)
    assert len(found) > 20
    assert [one for one in found if one[0] < 4.5] == []


@pytest.mark.parametrize("name", ["eval", "nulls", "check", "drift"])
def test_every_metric_can_be_read(visit: Any, name: str) -> None:
    page = visit(name, 360).page
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    shown = page.evaluate("document.body.innerText")
    metrics = MADE[name].to_dict()["metrics"]
    assert len(metrics) > 10
    for metric, value in metrics.items():
        assert metric in shown
        if not isinstance(value, dict):
            assert json.dumps(value) in shown


def boxes(page: Any, chart: str, inside: str) -> list[dict[str, float]]:
    found: list[dict[str, float]] = page.evaluate(
        """([chart, inside]) => [...document.querySelectorAll(`#${chart} ${inside}`)].map(one => {
             const {left, right, top, bottom, width, height} = one.getBoundingClientRect();
             return {left, right, top, bottom, width, height, x: one.getComputedTextLength?.() ?? 0};
           })""",
        [chart, inside],
    )
    return found


@pytest.mark.parametrize("width", [360, 1200])
def test_charts_have_a_mark_for_each_number(visit: Any, width: int) -> None:
    report = MADE["eval"]
    page = visit("eval", width).page
    for chart, name in (("ratios", "log_ratio"), ("sizes", "log_ratio_abs")):
        bars = boxes(page, chart, "rect.bar")
        counts = [one.n for one in report.histograms[name]]
        assert len(bars) == len(counts)
        assert [one["height"] > 0 for one in bars] == [n > 0 for n in counts]
        assert all(a["right"] <= b["left"] for a, b in pairwise(bars))
        assert all(one["width"] >= 3 for one in bars)
    heights = [one["height"] for one in boxes(page, "ratios", "rect.bar")]
    most = max(one.n for one in report.histograms["log_ratio"])
    for height, one in zip(heights, report.histograms["log_ratio"], strict=True):
        assert height == pytest.approx(max(170.0 * one.n / most, 2.0), abs=0.6)
    assert len(boxes(visit("drift", width).page, "differences", "rect.bar")) == 4
    assert len(boxes(visit("parity", width).page, "parity-0", "circle")) == 2


@pytest.mark.parametrize("width", [360, 1200])
def test_series_have_a_dot_for_each_value_where_the_line_goes(visit: Any, width: int) -> None:
    page = visit("steps", width).page
    dots = boxes(page, "series-policy_loss", "circle")
    losses = [one.metrics["policy_loss"] for one in MADE["steps"].groups]
    assert len(dots) == len(losses) - 1 == 39
    assert len(boxes(page, "series-policy_loss", "rect.lost")) == 1
    assert len(boxes(page, "series-clip_frac", "circle")) == 40
    (line,) = boxes(page, "series-policy_loss", "svg.plane")  # as large as the line in it
    chart = page.locator("#series-policy_loss").bounding_box()
    known = [(k, one) for k, one in enumerate(losses) if one is not None]
    for dot, (k, value) in zip(dots, known, strict=True):
        x, y = (dot["left"] + dot["right"]) / 2, (dot["top"] + dot["bottom"]) / 2
        assert x == pytest.approx(chart["x"] + chart["width"] * (k + 0.5) / 40, abs=0.6)
        part = (value - -0.2375) / (0.45 - -0.2375)  # the last step, and the one far out
        assert y == pytest.approx(line["bottom"] - line["height"] * part, abs=0.6)
    assert line["left"] == pytest.approx(chart["x"] + chart["width"] * 0.5 / 40, abs=0.6)
    assert line["height"] == pytest.approx(0.9 * 110.0, abs=0.6)
    assert len(boxes(visit("many steps", width).page, "series-policy_loss", "circle")) == 0
    gate = visit("gate by step", width).page
    assert len(boxes(gate, "series-clip_frac", "circle.bad")) == 10
    assert len(boxes(gate, "series-clip_frac", "line.level")) == 1


LABELS = """() => [...document.querySelectorAll('svg')].flatMap(chart => {
  const texts = [...chart.querySelectorAll(':scope > text')];
  const all = texts.map(one => [one.textContent, one.getBoundingClientRect()]);
  const card = chart.closest('.card')?.getBoundingClientRect();
  const isOut = ([, a]) => card && (a.left < card.left || a.right > card.right);
  const out = all.filter(isOut).map(([t]) => `out: ${t}`);
  all.forEach(([t, a], k) => all.slice(k + 1).forEach(([u, b]) => {
    const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (across > 1 && down > 2) out.push(`${t} / ${u}`);
  }));
  return out;
})"""


@pytest.mark.parametrize(
    "name", ["eval", "check", "audit", "drift", "parity", "nulls", "steps", "gate by step", "many steps"]
)
@pytest.mark.parametrize("width", [360, 1200])
def test_labels_of_charts_stand_apart(visit: Any, name: str, width: int) -> None:
    assert visit(name, width).page.evaluate(LABELS) == []


@pytest.mark.parametrize("width", [360, 1200])
def test_a_definition_shows_on_hover_and_on_focus(visit: Any, width: int) -> None:
    page = visit("eval", width).page
    terms = page.locator("dfn")
    count = terms.count()
    assert count > 60
    for k in (0, 1, 5, count // 2, count - 1):
        term, tip = terms.nth(k), page.locator(".tip").nth(k)
        assert not tip.is_visible()
        term.scroll_into_view_if_needed()
        term.focus()
        assert tip.is_visible()
        box, name = tip.bounding_box(), term.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert 0 <= box["y"] - (name["y"] + name["height"]) <= 20
        term.evaluate("one => one.blur()")
        assert not tip.is_visible()
        term.hover()
        assert tip.is_visible()
        page.mouse.move(0, 0)


def test_terms_and_tables_are_reached_by_keyboard(visit: Any) -> None:
    page = visit("check", 360).page
    page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("`${document.activeElement.tagName} ${document.activeElement.className}`"))
    assert {"DFN ", "A ", "SUMMARY ", "DIV scroll"} <= reached


@schemes
def test_print_is_on_white_without_what_is_for_the_screen(visit: Any, scheme: str) -> None:
    page = visit("eval", 1200, scheme).page
    page.emulate_media(media="print", color_scheme=scheme)
    try:
        assert not page.locator("nav").is_visible()
        ground = page.evaluate("getComputedStyle(document.querySelector('.card')).backgroundColor")
        assert ground == "rgb(255, 255, 255)"
        assert [one for one in page.evaluate(CONTRAST) if one[0] < 4.5] == []
        assert page.locator("#ratios").is_visible()
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = false)")
        # What is folded takes no room; what was opened is printed, but for the tables of charts.
        assert not page.locator("#numbers").is_visible()
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert page.locator("#numbers td").first.is_visible()
        assert page.locator("figure details").first.is_hidden()
        assert page.pdf(format="A4").startswith(b"%PDF-")
    finally:
        page.emulate_media(media="screen", color_scheme=scheme)
