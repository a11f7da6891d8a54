"""What the comparisons of `drift` find in one input, as JSON and back; see `part_state`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core.drift_report import WorstPair
from ppocli.core.partial_document import as_float, number, packed, unpacked
from ppocli.engine.drift_passes import PairPart
from ppocli.engine.pair_sample import Sampler
from ppocli.engine.pair_worst import WorstPairs
from ppocli.engine.part_state import Reading, Writing, report_from_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ppocli.engine.pair_totals import PairPlan

Json = Any


def pair_part_to_json(part: PairPart) -> dict[str, Json]:
    """Return a part as JSON."""
    writing = Writing()
    return {
        "input": {**asdict(part.report), "notes": list(part.report.notes)},
        "names": dict(part.names),
        "totals": {name: writing.fields(totals) for name, totals in part.totals.items()},
        "worst": [
            [number(size), writing.place(pair.where), *(_number(getattr(pair, name)) for name in NUMBERS)]
            for size, pair in part.worst.kept
        ],
        "sampled": [[packed(one) for one in block] for block in part.sampler.parts],
        "has_tokens": bool(part.sampler.paths),
        "texts": {role: list(texts) for role, texts in part.texts.items()},
    }


NUMBERS = ("a", "b", "diff", "weight")


def pair_part_from_json(raw: Json, plans: Callable[[Mapping[str, str]], Mapping[str, PairPlan]]) -> PairPart:
    """Return the part that `pair_part_to_json` made JSON of, within one run.

    Parameters
    ----------
    raw : JSON value
    plans : callable
        Takes the names of the arrays that were read, and returns the comparisons by name.

    Raises
    ------
    ValueError
        It is no such value.
    """
    report = report_from_json(raw["input"])
    read = Reading(report.path)
    by_name = plans(raw["names"])
    worst = WorstPairs()
    for size, where, *numbers in raw["worst"]:
        a, b, diff, weight = (None if one is None else as_float(one) for one in numbers)
        if a is None or b is None or diff is None:
            raise ValueError("a pair without its numbers")
        worst.kept.append((as_float(size), WorstPair(read.place(where), a, b, diff, weight)))
    worst.limit = len(worst.kept)
    sampler = Sampler(parts=[_block(block) for block in raw["sampled"]])
    if raw["has_tokens"]:
        sampler.paths.append(report.path)
    totals = {name: read.pair(one, by_name[name]) for name, one in raw["totals"].items()}
    texts = {role: tuple(one) for role, one in raw["texts"].items()}
    return PairPart(report, raw["names"], totals, worst, sampler, texts)


def _block(raw: Json) -> tuple[Any, Any, Any]:
    """Return a block of the sample."""
    a, b, labels = (unpacked(one) for one in raw)
    if not a.shape == b.shape == labels.shape[:1] or labels.dtype != np.int64:
        raise ValueError("a block of the sample is of another shape")
    return a, b, labels


def _number(value: float | None) -> Json:
    return None if value is None else number(value)
