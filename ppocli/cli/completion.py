"""What a shell completes: roles, metrics, presets, codes, and the words of options that take one of a few.

Nothing is imported before a shell asks. Where there is nothing to offer the shell completes file names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

Words = Callable[[], Iterable[str]]


def completion_of(name: str, metavar: str, words: Words | None = None) -> Callable[[str], list[str]] | None:
    """Return what Typer calls for the words that may follow an option, or None: a file, a column, a number.

    Parameters
    ----------
    name, metavar : str
        The option and its placeholder: "ROLE,ROLE" takes several words, "METRIC=VALUE" goes on after one, and
        of "file|total|COLUMN" the words in small letters are offered.
    words : callable, optional
        The words, where neither says what they are.
    """
    known = words or _BY_NAME.get(name) or _BY_METAVAR.get(metavar)
    if known is None:
        choices = [word for word in metavar.split("|") if word.islower() and ":" not in word]
        if "|" not in metavar or not choices:
            return None
        known = lambda: choices  # noqa: E731
    return _completer(known, is_list="," in metavar, suffix="=" if "=" in metavar else "")


def typed_words(environment: Mapping[str, str]) -> list[str]:
    """Return the words of the command line that a shell wants completed, without the program's name."""
    line = environment.get("COMP_WORDS") or environment.get("_TYPER_COMPLETE_ARGS") or ""
    return line.split()[1:]


def _completer(words: Words, *, is_list: bool, suffix: str) -> Callable[[str], list[str]]:
    """Return a function from the beginning of a word to the words that begin so."""

    def complete(incomplete: str) -> list[str]:
        before, comma, start = incomplete.rpartition(",") if is_list else ("", "", incomplete)
        return [f"{before}{comma}{word}{suffix}" for word in words() if word.startswith(start)]

    return complete


def names() -> Iterator[str]:
    """Yield every name that `ppocli explain` knows."""
    from ppocli.core.glossary import listing

    yield from (name for _, entries in listing() for name, _ in entries)


def check_formats() -> Iterable[str]:
    """Return the output formats of `check`."""
    from ppocli.render.check_formats import CHECK_FORMATS

    return CHECK_FORMATS


def convert_formats() -> Iterable[str]:
    """Return the output formats of `convert`."""
    from ppocli.render.convert import CONVERT_FORMATS

    return CONVERT_FORMATS


def table_or_json() -> Iterable[str]:
    """Return the output formats of commands that have no others."""
    return ("table", "json")


def _formats() -> Iterable[str]:
    from ppocli.render.formats import FORMATS

    return FORMATS


def _roles() -> Iterable[str]:
    from ppocli.core.roles import ROLES

    return ROLES


def _metrics() -> Iterable[str]:
    from ppocli.core.metrics import METRICS

    return METRICS


def _gated() -> Iterator[str]:
    """Yield what limits can be put on."""
    from ppocli.core.drift_metrics import DRIFT_METRICS

    yield from _metrics()
    yield from (f"drift.{name}" for name in DRIFT_METRICS)


def _codes() -> Iterator[str]:
    from ppocli.core.gate import JUDGED

    yield from (rule.code for rule in JUDGED)


def _presets() -> Iterator[str]:
    from ppocli.core.presets import all_presets

    yield from (one.name for one in all_presets())


def _objectives() -> Iterable[str]:
    from ppocli.core.spec import OBJECTIVES

    return OBJECTIVES


def _aggregations() -> Iterable[str]:
    from ppocli.core.spec import AGGREGATIONS

    return AGGREGATIONS


def _settings() -> Iterable[str]:
    from ppocli.core.glossary import SETTINGS

    return SETTINGS


def _profiles() -> Iterable[str]:
    from ppocli.core.profiles import PROFILES

    return PROFILES


def _precisions() -> Iterable[str]:
    from ppocli.core.precision import PRECISIONS

    return PRECISIONS


def _pathologies() -> Iterable[str]:
    from ppocli.engine.synth import PATHOLOGIES

    return PATHOLOGIES


def _keys() -> Iterable[str]:
    from ppocli.core.drift_options import KEYS

    return KEYS


_BY_NAME: dict[str, Words] = {
    "--like": _presets,
    "--only": _presets,
    "--objective": _objectives,
    "--agg": _aggregations,
    "--profile": _profiles,
    "--pathology": _pathologies,
    "--format": _formats,
    "--key": _keys,
}
_BY_METAVAR: dict[str, Words] = {
    "ROLE": _roles,
    "ROLE=COLUMN": _roles,
    "ROLE,ROLE": _roles,
    "METRIC": _metrics,
    "METRIC=VALUE": _gated,
    "METRIC=VALUE~TOL": _gated,
    "METRIC=TOL": _gated,
    "CODE": _codes,
    "NAME=VALUE": _settings,
    "F,F": _precisions,
}
