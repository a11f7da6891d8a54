"""`merge`: documents of `--partials` to the report that one run over all their files would have given."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from ppocli.core.drift_options import CAPS, DriftCaps
from ppocli.core.partial_document import KIND, PARTIALS_VERSION, digest
from ppocli.core.presets import preset
from ppocli.core.progress import NoProgress
from ppocli.core.report import SCHEMA_VERSION, Skipped
from ppocli.core.spec import LossSpec, choose
from ppocli.engine.by_file import Entering, check_by_file
from ppocli.engine.saved import parse
from ppocli.errors import InputError, Lines, UsageProblem, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ppocli.core.report import EvalReport
    from ppocli.engine.advantages import AdvantageScopes
    from ppocli.engine.audit_pass import Audit
    from ppocli.engine.file_part import FilePart
    from ppocli.engine.measures import MeasureSet
    from ppocli.engine.scales import Scales
    from ppocli.engine.totals import Totals

Document = dict[str, Any]

PARTS = {"settings": dict, "files": list, "skipped": list, "worst": int, "n_paths": int, "run": dict}
"""What a document must have, besides its head, and of which type."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a document.

    Attributes
    ----------
    document, path : str
        Where it stands, and what the file was called.
    """

    document: str
    path: str
    raw: Mapping[str, Any]


def merge(paths: Sequence[Any], *, by: str = "file", allow_empty: bool = False) -> EvalReport:
    """Merge documents of `--partials`, in the order given.

    Parameters
    ----------
    paths : sequence of str or path
        Their files; the order of the documents, and of the files in each, is that of the inputs.
    by : {"file", "total"}
    allow_empty : bool
        As for `evaluate`.

    Returns
    -------
    EvalReport
        `metrics`, `nulls`, `groups`, `findings`, `places` and `worst` are, to the bit, those of one run over
        all the files in that order. `skipped` lists what the runs skipped.

    Raises
    ------
    InputError
        A document that is missing, damaged, of another kind or version, or made with other settings than the
        first; a file that is in two of them.
    UsageProblem
        No document, or `by` is not known.
    """
    from ppocli.engine.assembly import Assembly
    from ppocli.engine.evaluate import Run, start_kernels

    choose("by", by, ("file", "total"))
    names = [os.fsdecode(path) for path in paths]
    if not names:
        raise UsageProblem("no document to merge", hint="ppocli merge a.json b.json")
    documents = {name: load(name) for name in dict.fromkeys(names)}
    if len(documents) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError("given twice: its files would count twice", where=twice)
    _refuse_other_settings(documents)
    entries = [entry for name in names for entry in _entries(name, documents[name])]
    _refuse_overlap(entries)
    first = documents[names[0]]
    spec, caps, reading = _loss(names[0], first["settings"])
    run = Run(
        spec=spec,
        open_readers=(),
        chunk_tokens=None,
        progress=NoProgress(),
        skip_bad=False,
        paths=_paths(entries, documents),
        reading=reading,
        skipped=[_skipped(name, one) for name in names for one in documents[name]["skipped"]],
        like=None if first["like"] is None else preset(first["like"]),
        caps=caps,
    )
    run.engine = Merging(entries, caps)
    start_kernels(run, None)
    from ppocli.kernels import _jit

    return Assembly(run, by, first["worst"], _jit.thread_count()).report(allow_empty=allow_empty)


class Merging:
    """Yields the parts of entries."""

    finds_token_ids = True

    def __init__(self, entries: Sequence[Entry], caps: DriftCaps) -> None:
        self.entries, self.caps = entries, caps

    @property
    def said(self) -> dict[str, Any]:
        """What the report says of the run."""
        return {"merged": len({entry.document for entry in self.entries})}

    def statistics(self) -> Totals:
        """Return nothing: no advantages are normalised."""
        raise AssertionError("advantages are taken as stored")

    def scopes(self, scopes: AdvantageScopes) -> dict[str, Any]:
        """Fill nothing: no advantages are normalised."""
        raise AssertionError("advantages are taken as stored")

    def scales(self, scales: Scales) -> None:
        """Fill nothing: there is no audit."""
        raise AssertionError("no audit")

    def parts(
        self, sets: Sequence[MeasureSet], audit: Audit | None
    ) -> Iterator[tuple[int, FilePart | InputError]]:
        """Yield what was found in each file."""
        entering = Entering(sets, self.caps)
        for index, entry in enumerate(self.entries):
            try:
                part = entering.part(entry.raw["state"])
            except ValueError as problem:
                raise _damaged(entry.document, f"what was found in '{entry.path}': {problem}") from None
            yield index, part


def load(path: str) -> Document:
    """Read a document of `--partials`.

    Raises
    ------
    InputError
        Not readable, not such a document, of another version, or damaged.
    """
    from ppocli import __version__

    document = parse(path)
    if document.get("tool") != "ppocli" or document.get("kind") != KIND:
        kind = document.get("kind") if document.get("tool") == "ppocli" else None
        named = f"a document of kind {kind!r}" if kind else "no document of ppocli"
        raise InputError(
            f"{named} cannot be merged", where=path, hint="ppocli eval DATA --partials FILE.json writes one"
        )
    versions = (
        ("schema_version", SCHEMA_VERSION),
        ("partials_version", PARTIALS_VERSION),
        ("version", __version__),
    )
    for name, mine in versions:
        if document.get(name) != mine:
            what = "made by ppocli" if name == "version" else name.replace("_", " ")
            raise InputError(
                f"{what} {document.get(name)!r}, and this is {mine!r}",
                where=path,
                hint="make the partials, and merge them, with one version of ppocli",
            )
    for name, kind in PARTS.items():
        if type(document.get(name)) is not kind:
            raise _damaged(path, f"no '{name}'")
    if not isinstance(document.get("like", 0), (str, type(None))):
        raise _damaged(path, "no 'like'")
    return document


def _entries(name: str, document: Document) -> Iterator[Entry]:
    """Yield the files of a document, each as it was written."""
    for raw in document["files"]:
        try:
            path = raw["state"]["input"]["path"]
            whole = digest(raw) == raw["sha256"]
            known = isinstance(path, str) and isinstance(raw["fingerprint"], str)
        except (KeyError, TypeError, ValueError):
            raise _damaged(name, "an entry of 'files' is not complete") from None
        if not whole or not known:
            raise _damaged(name, f"the entry of '{path}' is not what was written")
        yield Entry(name, path, raw)


def _refuse_other_settings(documents: Mapping[str, Document]) -> None:
    """Refuse documents that were not made with the settings of the first."""
    (name, first), *others = documents.items()
    told = "worst", "like"
    mine = {**first["settings"], **{key: first[key] for key in told}}
    for other, document in others:
        theirs = {**document["settings"], **{key: document[key] for key in told}}
        differing = [key for key in sorted(mine.keys() | theirs.keys()) if mine.get(key) != theirs.get(key)]
        if differing:
            said = "; ".join(f"{key} {theirs.get(key)!r}, not {mine.get(key)!r}" for key in differing[:4])
            more = f" and {len(differing) - 4} more" if len(differing) > 4 else ""
            raise InputError(
                f"made with other settings than '{one_line(name)}': {said}{more}",
                where=other,
                hint="give every run that is to be merged the same options",
            )


def _refuse_overlap(entries: Sequence[Entry]) -> None:
    """Refuse a file that stands in two documents, under one name or under two.

    Files without rows add nothing, and many look alike. A copy beside its original in one document was
    counted by its run, as any run counts it.
    """
    by_path: dict[str, Entry] = {}
    by_content: dict[tuple[Any, str], Entry] = {}
    for entry in entries:
        same = by_path.setdefault(entry.path, entry)
        what = "one path"
        if same is entry and entry.raw["state"]["input"].get("rows"):
            same = by_content.setdefault((entry.raw.get("bytes"), entry.raw["fingerprint"]), entry)
            what = "one size and one content"
            if same.document == entry.document:
                continue
        if same is not entry:
            raise InputError(
                f"'{one_line(entry.path)}' would count twice: it has {what} with '{one_line(same.path)}'",
                where=Lines(f"{one_line(same.document)}\n{one_line(entry.document)}"),
                hint="merge documents of different files; each file has a path of its own, as in one run",
            )


def _loss(name: str, settings: Mapping[str, Any]) -> tuple[LossSpec, DriftCaps, dict[str, Any]]:
    """Return the loss of a document, the bounds of weights, and how its columns were understood."""
    names = [each.name for each in fields(LossSpec)]
    given = {key: value for key, value in settings.items() if key in names}
    if len(given) < len(names) or not isinstance(given["rollout_rs"], list):
        raise _damaged(name, "the settings are not complete")
    try:
        spec = LossSpec(**{**given, "rollout_rs": tuple(given["rollout_rs"])})
        check_by_file(spec, "merge")
        caps = DriftCaps(**{name: settings[name] for name in CAPS if name in settings})
    except (UsageProblem, TypeError, ValueError) as problem:
        raise _damaged(name, f"the settings: {problem}") from None
    return spec, caps, {key: value for key, value in settings.items() if key not in {*names, *CAPS}}


def _paths(entries: Sequence[Entry], documents: Mapping[str, Document]) -> list[str]:
    """Return the paths of one run over all files; those that could not be read follow without a name."""
    paths = [entry.path for entry in entries]
    return paths + [""] * (sum(one["n_paths"] for one in documents.values()) - len(paths))


def _skipped(name: str, raw: Any) -> Skipped:
    """Return what a run skipped."""
    if not isinstance(raw, dict) or not all(isinstance(raw.get(key), str) for key in ("path", "reason")):
        raise _damaged(name, "an entry of 'skipped' is not complete")
    return Skipped(raw["path"], raw["reason"])


def _damaged(path: str, what: str) -> InputError:
    """Build the error for a document that is not as it was written."""
    return InputError(f"damaged partials: {what}", where=path, hint="make them again")
