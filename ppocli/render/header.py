"""The first lines of the screen: what was read, how it was understood, which loss this is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

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
    return {
        "low": number_text(1.0 - settings["clip_low"]),
        "high": number_text(1.0 + settings["clip_high"]),
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
    parts = [f"PPO clip [{words['low']}, {words['high']}]", f"agg {settings['agg']}"]
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
    parts.append(_normalisation(settings))
    return "  ".join(parts)


def _normalisation(settings: Mapping[str, Any]) -> str:
    """Say what was done to the advantages."""
    if settings["adv_norm"] == "none":
        return "advantages as stored"
    if "adv_norm_note" in settings:
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
    scope = f"advantages normalised over the {settings['adv_norm']}"
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
