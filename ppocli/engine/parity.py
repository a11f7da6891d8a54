"""`ppocli parity`: every framework's number on one batch, from one pass."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ppocli.core.parity_report import Framework, ParityCell, ParityReport
from ppocli.core.presets import Preset, all_presets, preset
from ppocli.core.report import NullNote
from ppocli.core.spec import LossSpec
from ppocli.engine.evaluate import Run, files_run, start_kernels, until_read
from ppocli.errors import ExitCode, InputError, UsageProblem

if TYPE_CHECKING:
    from ppocli.core.chunk import ReadOptions
    from ppocli.core.measures import PresetMetric
    from ppocli.core.progress import Progress
    from ppocli.core.report import InputReport
    from ppocli.engine.measures import MeasureSet
    from ppocli.engine.summary import Summary


def parity_files(
    paths: Sequence[str],
    overrides: Mapping[str, Any] | None = None,
    options: ReadOptions | None = None,
    *,
    only: Sequence[str] = (),
    variants: bool = False,
    threads: int | None = None,
    chunk_rows: int | None = None,
    allow_empty: bool = False,
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> ParityReport:
    """Compute what each framework calls loss, clip fraction, approx KL and value loss on the same batch.

    Parameters
    ----------
    paths : sequence of str
    overrides : mapping of name to value, optional
        Fields of `LossSpec` that hold for every framework, such as the clip interval; the others are what the
        framework does by default.
    options : ReadOptions, optional
    only : sequence of str
        Names of presets. Empty: all of them.
    variants : bool
        Also the variants, such as "trl:dapo".
    threads, chunk_rows, allow_empty, skip_bad, progress : as in `evaluate_files`

    Returns
    -------
    ParityReport
        Where a framework's number needs what the input does not have, the cell says so.

    Raises
    ------
    InputError, EmptyInput, UsageProblem
    """
    given = dict(overrides or {})
    chosen = tuple(preset(name, "--only") for name in only) or all_presets()
    if not only and not variants:
        chosen = tuple(one for one in chosen if ":" not in one.name)
    specs, refused = _specs(chosen, given)
    # The pass itself is that of plain ppo; each framework's loss is a measure of its own.
    own = {name: value for name, value in given.items() if name not in ("rollout_rs", "adv_norm")}
    run = files_run(paths, _plain(own), options, chunk_rows, skip_bad=skip_bad, progress=progress)
    return until_read(
        run,
        lambda: _measure(
            run, chosen, specs, refused, given, options, threads=threads, allow_empty=allow_empty
        ),
    )


def _plain(given: Mapping[str, Any]) -> LossSpec:
    """Return the loss of the pass itself: ppo, with what was given for all frameworks."""
    kept = ("clip_low", "clip_high", "value_clip", "agg", "horizon")
    return LossSpec(**{name: given[name] for name in kept if name in given})


def _specs(chosen: Sequence[Preset], given: Mapping[str, Any]) -> tuple[dict[str, LossSpec], dict[str, str]]:
    """Return each framework's loss, and why some have none on this input."""
    specs: dict[str, LossSpec] = {}
    refused: dict[str, str] = {}
    for one in chosen:
        try:
            spec = one.loss_spec(given)
        except UsageProblem as problem:
            refused[one.name] = problem.message
            continue
        if spec.scoped:
            refused[one.name] = f"normalises advantages per {spec.adv_norm}; see --like {one.name}"
        elif spec.rejections:
            refused[one.name] = f"drops tokens by a rule; see --like {one.name}"
        else:
            specs[one.name] = spec
    return specs, refused


def _measure(
    run: Run,
    chosen: Sequence[Preset],
    specs: Mapping[str, LossSpec],
    refused: Mapping[str, str],
    given: Mapping[str, Any],
    options: ReadOptions | None,
    *,
    threads: int | None,
    allow_empty: bool,
) -> ParityReport:
    """Read every input once, and once more before it where a framework normalises advantages."""
    began = time.perf_counter()
    start_kernels(run, threads)
    from ppocli.engine.like import wanted
    from ppocli.engine.metrics import summarise
    from ppocli.engine.passes import Passes
    from ppocli.kernels import _jit

    passes = Passes(run.spec, _jit.thread_count(), 0, run.chunk_tokens, run.progress)
    names = [one for one in chosen if one.name in specs]
    run.progress.start(run.total_bytes())
    passes.prepare(run, [w for one in names for w in wanted(one, specs[one.name])])
    for index, reader in run.readers():
        try:
            report = passes.evaluate(reader, index).report
        except InputError as problem:
            passes.skip(run, reader.report.path, problem)
            continue
        run.inputs.append(report)
    total = passes.finish(run.inputs)
    s, sets = summarise(total, run.spec), passes.job.sets
    by_hand = options.columns if options else {}
    elsewhere = {one.name: why for one in names if (why := _other_columns(one, run.inputs, by_hand))}
    specs = {name: spec for name, spec in specs.items() if name not in elsewhere}
    refused = {**refused, **elsewhere}
    code = ExitCode.OK if total.n_tokens or allow_empty else ExitCode.EMPTY
    return ParityReport(
        settings={**given, **run.reading},
        inputs=tuple(run.inputs),
        skipped=tuple(run.skipped),
        frameworks=tuple(_framework(one, specs.get(one.name), refused, sets, s) for one in chosen),
        n_tokens=total.n_tokens,
        exit_code=int(code),
        run={"seconds": time.perf_counter() - began, "threads": _jit.thread_count()},
    )


def _other_columns(one: Preset, inputs: Sequence[InputReport], by_hand: Mapping[str, str]) -> str | None:
    """Return why the columns of this pass are not those of a framework, or None: they are."""
    for report in inputs:
        for role, names in one.aliases.items():
            taken = report.columns.get(role)
            wanted = {name.lower() for name in names}
            if role in by_hand or taken is None or taken.column.lower() in wanted:
                continue
            for column in report.columns.values():
                if column.column.lower() in wanted:
                    return f"takes {role} from the column '{column.column}'; see --like {one.name}"
    return None


def _framework(
    one: Preset, spec: LossSpec | None, refused: Mapping[str, str], sets: Sequence[MeasureSet], s: Summary
) -> Framework:
    """Return the cells of one framework."""
    cells = {metric.kind: _cell(one, metric, spec, refused, sets, s) for metric in one.metrics if metric.kind}
    return Framework(one.name, one.title, one.version, _differing(spec), cells)


def _cell(
    one: Preset,
    metric: PresetMetric,
    spec: LossSpec | None,
    refused: Mapping[str, str],
    sets: Sequence[MeasureSet],
    s: Summary,
) -> ParityCell:
    """Return one number with its definition, or why there is none."""
    from ppocli.engine.like import preset_value

    if spec is None:
        return ParityCell(metric.name, None, metric.text, NullNote(refused.get(one.name, "not computed")))
    value, note = preset_value(one, metric, spec, sets, s)
    return ParityCell(metric.name, value, metric.text, note)


def _differing(spec: LossSpec | None) -> dict[str, Any]:
    """Return the settings that are not ppocli's defaults."""
    if spec is None:
        return {}
    default, mine = LossSpec().to_dict(), spec.to_dict()
    return {one.name: mine[one.name] for one in fields(spec) if mine[one.name] != default[one.name]}
