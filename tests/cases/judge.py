"""What is wrong with a run of a case: exit code, words, strict JSON, values."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
NONFINITE = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}
Run = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What a command left: exit code, both streams, and the folder it ran in."""

    code: int
    out: str
    err: str
    folder: Path


def faults(run: Run, answer: Answer) -> list[str]:
    """Every way in which the answer falls short of the case."""
    behaviour = run.get("behaviour", {})
    out = []
    if behaviour.get("exit") and answer.code not in behaviour["exit"]:
        out.append(
            f"exit {answer.code}, expected {behaviour['exit']}: {(answer.err or answer.out).strip()[:300]}"
        )
    out += word_faults(behaviour, answer)
    out += ban_faults(behaviour, answer)
    if "-f json" in " ".join(run["command"]) and (answer.code in (0, 1) or (answer.code == 5 and answer.out)):
        try:
            document = json.loads(answer.out, parse_constant=refuse)
        except ValueError as problem:
            return [*out, f"stdout is not strict JSON: {problem}"]
        out += value_faults(run, document)
    return out


def refuse(word: str) -> None:
    raise ValueError(f"bare {word}")


def word_faults(behaviour: dict[str, Any], answer: Answer) -> list[str]:
    both = answer.out + "\n" + answer.err
    texts = {"stdout_contains": answer.out, "stderr_contains": answer.err, "output_contains": both}
    out = [
        f"{field.removesuffix('_contains')} lacks {entry!r}"
        for field, text in texts.items()
        for entry in behaviour.get(field, [])
        if not mentions(text, entry)
    ]
    out += [f"mentions {entry!r}" for entry in behaviour.get("must_not_mention", []) if mentions(both, entry)]
    lines = behaviour.get("limits", {}).get("stderr_lines", math.inf)
    if answer.err.count("\n") > lines:
        out.append(f"{answer.err.count(chr(10))} lines on stderr, at most {lines}")
    if "Traceback" in both:
        out.append("a traceback")
    return out


def mentions(text: str, entry: str | list[str]) -> bool:
    """One word, a choice of words, or a regular expression behind `re:`; without regard to case."""
    if isinstance(entry, list):
        return any(mentions(text, one) for one in entry)
    if entry.startswith("re:"):
        return re.search(entry[3:], text, re.IGNORECASE) is not None
    return entry.lower() in text.lower()


def ban_faults(behaviour: dict[str, Any], answer: Answer) -> list[str]:
    """The named faults that a stream or the folder shows; the others show in values."""
    signs = {
        "ansi": "\x1b" in answer.out,
        "unpickle": any(answer.folder.rglob("UNPICKLED")),
        "truncated_numbers": re.search(r"\d(…|\.\.\.)", answer.out) is not None,
        "exception_ignored": "Exception ignored" in answer.err,
        "gate_pass": answer.code == 0,
    }
    return [f"shows what it must not: {name}" for name in behaviour.get("must_not", []) if signs.get(name)]


def value_faults(run: Run, document: dict[str, Any]) -> list[str]:
    metrics, nulls = document.get("metrics", {}), document.get("nulls", {})
    usual = run.get("tolerance", {})
    out = []
    for name, want in run.get("expected", {}).items():
        tolerance = {**usual, **usual.get("by_metric", {}).get(name, {})}
        if name not in metrics:
            out.append(f"{name} is not reported, expected {want!r}")
        elif not any(agrees(metrics[name], one, tolerance) for one in accepted(run, name, want)):
            out.append(f"{name} = {metrics[name]!r}, expected {want!r}")
        elif metrics[name] is None:
            note = nulls.get(name, {})
            if not note.get("reason") or note.get("nonfinite") != NONFINITE.get(want, note.get("nonfinite")):
                out.append(f"{name} is null with the note {note!r}, expected {want!r}")
    for name, want in run.get("if_reported", {}).items():
        if name in metrics and not agrees(metrics[name], want, usual):
            out.append(f"{name} = {metrics[name]!r}, expected {want!r}")
    return out


def accepted(run: Run, name: str, want: Any) -> list[Any]:
    """The expected value, and what is right under another documented definition."""
    out = [want]
    for dotted, values in run.get("also_accept", {}).items():
        metric, _, key = dotted.partition(".")
        others = values if isinstance(values, list) else [values]
        if metric == name:
            out += [{**want, key: value} if key else value for value in others]
    return out


def agrees(got: Any, want: Any, tolerance: dict[str, Any]) -> bool:
    if isinstance(want, dict):
        return isinstance(got, dict) and all(agrees(got.get(k), v, tolerance) for k, v in want.items())
    target = WORDS.get(want) if isinstance(want, str) else want
    if target is None or not math.isfinite(target):
        return got is None
    if isinstance(got, bool) or not isinstance(got, (int, float)):
        return False
    if isinstance(want, int):
        return got == want
    return abs(got - target) <= max(tolerance.get("abs", 1e-12), tolerance.get("rel", 1e-9) * abs(target))
