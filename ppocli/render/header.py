"""The first lines of the screen: what was read, how it was understood, which loss this is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ppocli.core.objective_texts import OBJECTIVE_TEXTS, bounds_of
from ppocli.render.console import printable
from ppocli.render.numbers import count_text, number_text, plural

if TYPE_CHECKING:
    from ppocli.core.report import EvalReport, InputReport, Place, Skipped


def place_text(where: Place, *, with_path: bool = True) -> str:
    """Return `path, row 7, position 3, token 11`."""
    parts = [printable(where.path)] if with_path else []
    parts.append(f"row {count_text(where.row)}")
    if where.position is not None:
        parts.append(f"position {count_text(where.position)}")
    if where.token_id is not None:
        parts.append(f"token {where.token_id}")
    return ", ".join(parts)


def words_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return what the notes are filled in with."""
    low, high = (number_text(end) for end in bounds_of(settings))
    region = OBJECTIVE_TEXTS[settings["objective"]].region
    return {
        "low": low,
        "high": high,
        "region": f"{region} outside [{low}, {high}]" if region else "nothing is clipped",
        "below": f"{region} < {low}" if region else "nothing is clipped",
        "above": f"{region} > {high}" if region else "nothing is clipped",
        "agg": settings["agg"],
        "ddof": str(settings["adv_norm_ddof"]),
    }


def header_lines(report: EvalReport) -> Iterator[str]:
    """Say what was read and how it was understood."""
    inputs = report.inputs
    name = printable(inputs[0].path) if len(inputs) == 1 else plural(len(inputs), "file")
    counts = [
        plural(report.metrics.get("n_rows", 0), "row"),
        plural(report.metrics.get("n_tokens", 0), "token"),
    ]
    counts.append(f"{count_text(report.metrics.get('n_masked', 0))} masked")
    counts += [
        plural(report.metrics[key], key[2:-1])
        for key in ("n_sequences", "n_groups")
        if report.metrics.get(key) is not None
    ]
    yield f"{name}  {', '.join([*counts, *_dtypes(inputs)])}"
    yield _definition(report.settings)
    yield from inferred_lines(inputs)
    yield from skipped_line(report.skipped)


def skipped_line(skipped: tuple[Skipped, ...]) -> Iterator[str]:
    """Name the files that were passed over, at most three of them."""
    if skipped:
        shown = "; ".join(f"{printable(one.path)}: {printable(one.reason)}" for one in skipped[:3])
        rest = len(skipped) - 3
        yield f"skipped {plural(len(skipped), 'file')}: {shown}" + (f"; {rest} more" if rest > 0 else "")


def _dtypes(inputs: tuple[InputReport, ...]) -> list[str]:
    """Return the number types of the log-prob and advantage columns, each once."""
    roles = ("log_probs", "old_log_probs", "advantages")
    found = [one.columns[role].dtype for one in inputs for role in roles if role in one.columns]
    return [" and ".join(dict.fromkeys(found))] if found else []


def _definition(settings: Mapping[str, Any]) -> str:
    """Return the line that says which loss this is."""
    words = words_of(settings)
    objective = settings["objective"]
    clip = f"clip [{words['low']}, {words['high']}]" if OBJECTIVE_TEXTS[objective].region else "no clip"
    parts = [f"{'PPO' if objective == 'ppo' else objective} {clip}", f"agg {settings['agg']}"]
    for key, label in (
        ("dual_clip", "dual clip"),
        ("delta", "delta"),
        ("log_ratio_clamp", "log-ratio clamped to +-"),
        ("value_clip", "value clip"),
        ("horizon", "horizon"),
        ("micro_batch", "micro-batch"),
    ):
        if settings.get(key) is not None:
            space = "" if label.endswith("-") else " "
            parts.append(f"{label}{space}{number_text(settings[key])}")
    parts += _correction(settings)
    parts.append(_normalisation(settings))
    return "  ".join(parts)


def _correction(settings: Mapping[str, Any]) -> Iterator[str]:
    """Say how the loss is corrected for tokens of another policy."""
    if settings["rollout_is"] != "none":
        cap = settings["rollout_is_cap"]
        yield f"weighted by {settings['rollout_is']}" + (
            "" if cap is None else f", at most {number_text(cap)}"
        )
    if settings["rollout_rs"]:
        yield f"without {', '.join(settings['rollout_rs'])}"


def _normalisation(settings: Mapping[str, Any]) -> str:
    """Say what was done to the advantages."""
    if settings["adv_norm"] == "none":
        return "advantages as stored"
    if "adv_norm_note" in settings and settings["adv_norm"] == "batch":
        return f"advantages: {settings['adv_norm_note']}"
    eps = number_text(settings["adv_norm_eps"])
    form = {
        "add": f"(A - mean) / (std + {eps})",
        "max": f"(A - mean) / max(std, {eps})",
        "var": f"(A - mean) / sqrt(std^2 + {eps})",
    }[settings["adv_norm_form"]]
    measured = "".join(
        f", {word} {number_text(settings[key])}"
        for word, key in (("mean", "adv_norm_mean"), ("std", "adv_norm_std"))
        if key in settings
    )
    name, _, rows = settings["adv_norm"].partition(":")
    scope = {"minibatch": f"every {rows} rows", "group": "each group"}.get(name, "the batch")
    scope = f"advantages normalised over {scope}"
    if settings["adv_norm_unit"] == "sequence":
        scope += " by sequence"
    if "adv_norm_note" in settings:
        measured += f", {settings['adv_norm_note']}"
    return f"{scope}: {form}, ddof {settings['adv_norm_ddof']}{measured}"


def inferred_lines(inputs: tuple[InputReport, ...]) -> Iterator[str]:
    """Say which column plays which role, and what else was inferred; each line once."""
    lines: dict[str, int] = {}
    for one in inputs:
        roles = (
            role if role == column.column else f"{role} = '{printable(column.column)}'"
            for role, column in one.columns.items()
        )
        line = f"columns: {', '.join(roles)}"
        lines[line] = lines.get(line, 0) + 1
        for note in one.notes:
            lines[f"note: {printable(note)}"] = lines.get(f"note: {printable(note)}", 0) + 1
    for line, files in lines.items():
        yield line if files == len(inputs) else f"{line} ({files} of {plural(len(inputs), 'file')})"
