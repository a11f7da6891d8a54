"""A framework's metrics under its own names, from the measures of a run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ppocli.core.measures import METRIC
from ppocli.core.report import LikeReport, NullNote
from ppocli.engine.aggregates import horizon_of
from ppocli.engine.measures import Wanted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ppocli.core.measures import PresetMetric
    from ppocli.core.presets import Preset
    from ppocli.core.report import Nonfinite
    from ppocli.core.spec import LossSpec
    from ppocli.engine.measures import MeasureSet
    from ppocli.engine.summary import Summary


def wanted(preset: Preset, spec: LossSpec) -> Iterable[Wanted]:
    """Yield the measures that a preset's metrics are made of, under this loss."""
    for metric in preset.metrics:
        for one in metric.measures:
            if one.term != METRIC:
                yield Wanted(spec, one, metric.name in preset.spoils, preset.selects)


def like_report(preset: Preset, spec: LossSpec, measures: MeasureSet, s: Summary) -> LikeReport:
    """Return the preset's metrics.

    A metric whose columns or sequences are missing is null, with the reason; so is one that is not finite,
    with what float64 arithmetic gives.
    """
    metrics: dict[str, float | None] = {}
    nulls: dict[str, NullNote] = {}
    for metric in preset.metrics:
        value, note = preset_value(preset, metric, spec, measures, s)
        metrics[metric.name] = value
        if note is not None:
            nulls[metric.name] = note
    definitions = {metric.name: metric.text for metric in preset.metrics}
    return LikeReport(preset.name, preset.title, preset.version, metrics, nulls, definitions, preset.notes)


def preset_value(
    preset: Preset, metric: PresetMetric, spec: LossSpec, measures: MeasureSet, s: Summary
) -> tuple[float | None, NullNote | None]:
    """Return one metric of a preset, or None and why."""
    horizon = float(horizon_of(s)) or None
    values: list[float] = []
    for one in metric.measures:
        if one.term == METRIC:
            name = one.option("name")
            note = s.nulls.get(name)
            if s.metrics.get(name) is None and (note is None or note.nonfinite is None):
                return None, note or NullNote(f"{name} needs columns that the input does not have")
            own = s.metrics[name]
            values.append(one.factor * (float(note.nonfinite or "nan") if own is None and note else own))
            continue
        asked = Wanted(spec, one, metric.name in preset.spoils, preset.selects)
        which = measures.index[asked]
        if which in measures.total.missing:
            return None, NullNote(measures.total.missing[which])
        value, nonfinite = measures.value(asked, measures.total, horizon)
        values.append(value if nonfinite is None else float(nonfinite))
    if s.totals.n_tokens == 0:
        return None, NullNote("no valid token")
    result = metric.value(spec, tuple(values))
    if math.isfinite(result):
        return result + 0.0, None
    kind: Nonfinite = "nan" if math.isnan(result) else "inf" if result > 0 else "-inf"
    return None, NullNote("not finite in the framework's arithmetic", kind)
