"""A framework's metrics under its own names, from the measures of a run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ppocli.core.measures import AGG, METRIC, STORED_SEQUENCES
from ppocli.core.report import LikeReport, NullNote
from ppocli.engine.aggregates import horizon_of
from ppocli.engine.measures import Wanted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ppocli.core.measures import PresetMetric
    from ppocli.core.presets import Preset
    from ppocli.core.report import Nonfinite
    from ppocli.core.spec import LossSpec
    from ppocli.engine.measures import MeasureSet
    from ppocli.engine.summary import Summary


def wanted(preset: Preset, spec: LossSpec) -> Iterable[Wanted]:
    """Yield the measures that a preset's metrics are made of, under this loss."""
    for metric in preset.metrics_under(spec):
        for one in metric.measures:
            if one.term != METRIC:
                yield Wanted(spec, one, preset.spoilt(metric.name, spec), preset.selects)


def like_report(preset: Preset, spec: LossSpec, sets: Sequence[MeasureSet], s: Summary) -> LikeReport:
    """Return the preset's metrics.

    A metric whose columns or sequences are missing is null, with the reason; so is one that is not finite,
    with what float64 arithmetic gives.
    """
    metrics: dict[str, float | None] = {}
    nulls: dict[str, NullNote] = {}
    definitions: dict[str, str] = {}
    for metric in preset.metrics_under(spec):
        if metric.optional and _without_columns(preset, metric, spec, sets):
            continue
        value, note = preset_value(preset, metric, spec, sets, s)
        metrics[metric.name] = value
        definitions[metric.name] = metric.text
        if note is not None:
            nulls[metric.name] = note
    return LikeReport(preset.name, preset.title, preset.version, metrics, nulls, definitions, preset.notes)


def preset_value(
    preset: Preset, metric: PresetMetric, spec: LossSpec, sets: Sequence[MeasureSet], s: Summary
) -> tuple[float | None, NullNote | None]:
    """Return one metric of a preset, or None and why."""
    horizon = float(horizon_of(s)) or None
    values: list[float] = []
    for one in metric.measures:
        if one.term == METRIC:
            name = one.option("name")
            if name == STORED_SEQUENCES:
                if s.totals.no_sequences or not s.totals.n_stored_sequences:
                    return None, NullNote(s.totals.no_sequences or "the input has no sequences")
                values.append(one.factor * s.totals.n_stored_sequences)
                continue
            note = s.nulls.get(name)
            if s.metrics.get(name) is None and (note is None or note.nonfinite is None):
                return None, note or NullNote(f"{name} needs columns that the input does not have")
            own = s.metrics[name]
            values.append(one.factor * (float(note.nonfinite or "nan") if own is None and note else own))
            continue
        asked = Wanted(spec, one, preset.spoilt(metric.name, spec), preset.selects)
        measures = next(one for one in sets if asked in one.index)
        which = measures.index[asked]
        if which in measures.total.missing:
            return None, NullNote(measures.total.missing[which])
        value, nonfinite = measures.value(asked, measures.total, horizon)
        if one.reduce == AGG and spec.agg == "group-mean" and nonfinite is None:
            if one.term != "loss":
                return None, NullNote("the mean over groups is computed for the policy loss alone")
            if spec != s.spec:
                return None, NullNote(f"the mean over groups is computed for one loss: --like {preset.name}")
            mean = s.metrics.get("policy_loss")
            if mean is None:
                return None, s.nulls.get("policy_loss", NullNote("the input has no group_id"))
            value = one.factor * spec.loss_scale * mean
        values.append(value if nonfinite is None else float(nonfinite))
    early = all(one.option("before") or one.term == METRIC for one in metric.measures)
    if s.totals.n_tokens == 0 and not (early and s.totals.n_rejected):
        return None, NullNote("no valid token")
    result = metric.value(spec, tuple(values))
    if math.isfinite(result):
        return result + 0.0, None
    kind: Nonfinite = "nan" if math.isnan(result) else "inf" if result > 0 else "-inf"
    return None, NullNote("not finite in the framework's arithmetic", kind)


def _without_columns(
    preset: Preset, metric: PresetMetric, spec: LossSpec, sets: Sequence[MeasureSet]
) -> bool:
    """Return whether the input lacks a column of a metric."""
    asked = [Wanted(spec, one, preset.spoilt(metric.name, spec)) for one in metric.measures]
    missing = [
        measures.total.missing[measures.index[one]]
        for one in asked
        for measures in sets
        if one in measures.index and measures.index[one] in measures.total.missing
    ]
    return any(why.startswith("no column") for why in missing)
