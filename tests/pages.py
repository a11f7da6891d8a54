"""Pages taken apart, and reports of `drift` and `parity` made by hand for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from typing import Any

import audited
import checked
import inspected
import reports

from ppocli.core.drift_report import Bar, Correction, DriftReport, Part, SequencePart, Versus, WorstPair
from ppocli.core.parity_report import Framework, ParityCell, ParityReport
from ppocli.core.report import (
    Bin,
    ColumnReport,
    Finding,
    Group,
    LikeReport,
    NullNote,
    Place,
    Skipped,
    WorstToken,
)

VOID = {"meta", "br", "wbr"}

HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>&lt;</style></title>-->"
"""A name that breaks out of text, attributes, titles, style sheets and comments where nothing is escaped."""


@dataclass
class Element:
    """An element with what stands in it."""

    name: str
    attributes: dict[str, str | None]
    children: list[Element | str] = field(default_factory=list)

    def walk(self) -> Iterator[Element]:
        """Yield this element and all below it, in order."""
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.walk()

    def text(self) -> str:
        """Return all text below, the style sheet left out."""
        if self.name == "style":
            return ""
        return "".join(child if isinstance(child, str) else child.text() for child in self.children)

    def all(self, name: str, kind: str = "") -> list[Element]:
        """Return the elements of one name below, those of a class if one is given."""
        wanted = set(kind.split())
        return [
            one for one in self.walk() if one.name == name and wanted <= set((one["class"] or "").split())
        ]

    def by_id(self, name: str) -> Element:
        """Return the one element with an id."""
        (found,) = [one for one in self.walk() if one["id"] == name]
        return found

    def __getitem__(self, name: str) -> str | None:
        return self.attributes.get(name)


class _Parser(HTMLParser):
    """Refuses what a browser would have to repair."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"an attribute twice: {tag} {attrs}"
        made = Element(tag, dict(attrs))
        self.open[-1].children.append(made)
        if tag not in VOID:
            self.open.append(made)

    def handle_endtag(self, tag: str) -> None:
        closed = self.open.pop()
        assert closed.name == tag, f"</{tag}> closes <{closed.name}>"

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")


def parsed(page: str) -> Element:
    """Return a page as a tree, every element of which was closed where it should be."""
    assert page.startswith("<!doctype html>\n")
    parser = _Parser()
    parser.feed(page)
    parser.close()
    assert parser.open == [parser.root]
    return parser.root


# ------------------------------------------------------------------------------------------- drift, parity


def drift(**changes: Any) -> DriftReport:
    """Twelve tokens in two sequences; each number is its own."""
    metrics: dict[str, Any] = {
        "diff_mean": -0.001, "diff_abs_mean": 0.0123, "diff_abs_p99": 0.25, "diff_abs_max": 0.375,
        "drift_kl_k3": 0.000321, "weight_max": 1.4375, "ess_frac": 0.984, "bit_equal_frac": 0.25,
        "chi2_seq": None, "n_rows": 2, "n_tokens": 12, "n_masked": 1, "n_sequences": 2, "n_files": 1,
    }  # fmt: skip
    where = Place("rollouts.parquet", 1, 4, 77)
    made = DriftReport(
        settings={"a": "old_log_probs", "b": "rollout_log_probs", "key": None},
        a="old_log_probs",
        b="rollout_log_probs",
        inputs=(reports.one_input(),),
        skipped=(),
        metrics=metrics,
        nulls={"chi2_seq": NullNote("a sum overflows", "inf")},
        by_position=(Part(2, 0.5, 0.625, 0, 0, 0.25), Part(10, -0.25, 0.3125, 1, None, 0.125)),
        by_probability=(Part(8, 0.0625, 0.09, 0.5, None), Part(4, None, None, 0.0, 0.5)),
        by_step=(Part(5, 0.1, 0.2, step=3), Part(7, 0.1, 0.4, step=4), Part(1, 0.1, 0.1, step=5)),
        sequences=(SequencePart(where, 6, 0.5, 0.75, 0.01, 0.8),),
        histogram=(Bar(0.0, 0.0625, 6), Bar(0.0625, 0.125, 0), Bar(0.125, 0.25, 3), Bar(0.25, 0.5, 3)),
        corrections=(Correction("token", "truncate", None, 2.0, 0.01, None, 1.0, 0.98),),
        comparisons=(Versus("update", "log_probs", "old_log_probs", {"diff_abs_mean": 0.0456}, {}),),
        findings=(Finding("PPO501", "warning", 4, "a constant offset", "look at the sampler", where),),
        worst=(WorstPair(where, -1.0, -1.375, 0.375, None),),
        places={"diff_abs_max": where},
    )
    return replace(made, **changes)


def parity(**changes: Any) -> ParityReport:
    """Three frameworks, one of them without a clip fraction; a definition with special characters."""

    def framework(name: str, loss: float | None, clip: float | None) -> Framework:
        note = None if loss is not None else NullNote("no column for returns", "nan")
        cells = {"loss": ParityCell(f"{name}/loss", loss, "mean of min(a, b) & c < d", note)}
        if clip is not None:
            cells["clip fraction"] = ParityCell("clip", clip, "ratio > 1.2")
        return Framework(name, name.title(), "1.2.3", {}, cells)

    made = ParityReport(
        settings={"columns": {}, "clip_low": 0.2},
        inputs=(reports.one_input(),),
        skipped=(),
        frameworks=(
            framework("verl", -0.5, 0.25),
            framework("trl", 1.5, 0.125),
            framework("sb3", None, None),
        ),
        n_tokens=7,
    )
    return replace(made, **changes)


def hostile() -> dict[str, object]:
    """One report of each kind with a hostile name in every place that comes from outside."""
    where = Place(HOSTILE, 1, 2, 3)
    columns = {"log_probs": ColumnReport(HOSTILE, HOSTILE)}
    source = reports.one_input(HOSTILE, columns=columns, notes=(HOSTILE,), format=HOSTILE)
    finding = Finding("PPO102", "warning", 2, HOSTILE, HOSTILE, where)
    like = LikeReport(HOSTILE, HOSTILE, HOSTILE, {HOSTILE: None}, {HOSTILE: NullNote(HOSTILE)},
                      {HOSTILE: HOSTILE}, (HOSTILE,))  # fmt: skip
    groups = tuple(
        Group({HOSTILE: f"{HOSTILE}{k}"}, {**reports.counts(), "policy_loss": k / 8}, {}) for k in range(3)
    )
    evaluated = replace(
        reports.several(HOSTILE, "b"),
        inputs=(source, source),
        skipped=(Skipped(HOSTILE, HOSTILE),),
        findings=(finding,),
        worst=(WorstToken("loss", where, -1.0, -2.0, 1.0, 1.0, None, 2.0, HOSTILE),),
        nulls={"policy_loss": NullNote(HOSTILE, "nan", where)},
        like=like,
        run={HOSTILE: HOSTILE},
        histograms=reports.histograms(),
    )
    evaluated = replace(evaluated, metrics={**evaluated.metrics, "policy_loss": None})
    cells = {
        "loss": ParityCell(HOSTILE, 0.5, HOSTILE),
        "value loss": ParityCell(HOSTILE, None, HOSTILE, NullNote(HOSTILE)),
    }
    framework = Framework(HOSTILE, HOSTILE, HOSTILE, {}, cells)
    return {
        "eval": evaluated,
        "groups": replace(evaluated, groups=groups),
        "check": checked.judged(evaluated),
        "audit": replace(
            audited.report(), evaluation=replace(evaluated, settings=audited.report().evaluation.settings)
        ),
        "drift": drift(a=HOSTILE, b=HOSTILE, inputs=(source,), findings=(finding,),
                       worst=(WorstPair(where, -1.0, -1.0, 0.0, 1.0),), places={"diff_abs_max": where},
                       by_step=(Part(1, 0.1, 0.2, step=HOSTILE), Part(1, 0.1, 0.4, step=f"{HOSTILE}2")),
                       groups=(Group({"file": HOSTILE}, {"n_tokens": 1}, {}),) * 2,
                       comparisons=(Versus(HOSTILE, HOSTILE, HOSTILE, {}, {}),)),
        "parity": parity(inputs=(source,), frameworks=(framework,), settings={HOSTILE: HOSTILE}),
    }  # fmt: skip


def huge() -> Any:
    """Log-ratios far out, a clip interval that is open below, one token in the last bar."""
    bars = (Bin(None, -31.5, 0), Bin(-31.5, 0.0, 2), Bin(0.0, 31.5, 4), Bin(31.5, None, 1))
    sizes = (Bin(0.0, 0.00390625, 6), Bin(0.00390625, 31.99609375, 0), Bin(31.99609375, None, 1))
    made = reports.full()
    settings = {**made.settings, "clip_low": 1.0, "clip_high": 5.0}
    return replace(made, settings=settings, histograms={"log_ratio": bars, "log_ratio_abs": sizes})


BY_NAME: dict[str, Callable[[], Any]] = {
    **{f"eval {name}": make for name, make in reports.BY_NAME.items()},
    **{f"check {name}": make for name, make in checked.BY_NAME.items()},
    **{f"inspect {name}": make for name, make in inspected.BY_NAME.items()},
    "audit": audited.report,
    "drift": drift,
    "drift empty": lambda: drift(
        metrics={"n_tokens": 0, "n_rows": 0, "n_masked": 0}, nulls={}, by_position=(), by_probability=(),
        by_step=(), histogram=(), worst=(), findings=(), places={},
    ),
    "parity": parity,
    "parity empty": lambda: parity(frameworks=(), n_tokens=0),
    "eval huge": huge,
    **{f"hostile {name}": (lambda name=name: hostile()[name]) for name in hostile()},
}  # fmt: skip
"""Reports of every kind."""


def shown(name: str) -> str:
    """Return a name of the tests as it shows: none but the odd one has what does not."""
    return name.replace("\x1b", r"\x1b").replace("\n", r"\x0a").replace("\x07", r"\x07")


def notes(metrics: dict[str, Any]) -> dict[str, NullNote]:
    """Return a note for each null."""
    return {name: NullNote("not known") for name, value in metrics.items() if value is None}
