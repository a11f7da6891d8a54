"""The part of one input as JSON and back, exactly: the one form in which parts leave a process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ppocli.core.partial_document import as_float, number, packed, unpacked
from ppocli.core.partials import COLUMNS
from ppocli.core.report import ColumnReport, InputReport, Place, WorstToken
from ppocli.engine.data_checks import FORMATS, NARROW, DataChecks, NarrowFound
from ppocli.engine.file_part import FilePart
from ppocli.engine.measures import MeasureTotals
from ppocli.engine.pair_totals import PairPlan, PairTotals, Sums, TopSequence
from ppocli.engine.sequences import GROUP_LIMIT
from ppocli.engine.totals import KeyedTable, Suspect, Totals
from ppocli.engine.worst import Kept, WorstTokens
from ppocli.kernels import sequence

if TYPE_CHECKING:
    from ppocli.engine.measures import MeasureSet
    from ppocli.engine.totals import Ints

Json = Any
Key = TypeVar("Key")
Value = TypeVar("Value")

OF_THE_RUN = frozenset({"file_order", "micro_batches", "norm_fault"})
"""Fields of totals that a run fills in."""


# ---------------------------------------------------------------------------------------------- to JSON


class Writing:
    """Makes JSON of totals.

    Parameters
    ----------
    token_ids : mapping of Place to Place
        Places with the ids of their tokens, which are written in their stead.

    Attributes
    ----------
    places : set of Place
        All that were written. They are of the one input, so that their path is left out.
    """

    def __init__(self, token_ids: Mapping[Place, Place] | None = None) -> None:
        self.token_ids = token_ids or {}
        self.places: set[Place] = set()

    def part(self, part: FilePart) -> dict[str, Json]:
        """Return a part."""
        worst, ids = part.worst, _first_rows(part)
        return {
            "input": {**asdict(part.report), "notes": list(part.report.notes)},
            "totals": self.fields(part.totals),
            "measures": [self.fields(one) for one in part.measures],
            "ids": None if ids is None else [packed(one) for one in ids],
            "texts": {role: list(texts) for role, texts in part.texts.items()},
            "worst": {
                "limit": worst.limit,
                "by_log_ratio": [self._kept(one) for one in worst.by_log_ratio],
                "by_loss": [self._kept(one) for one in worst.by_loss],
            },
            "drift": None if part.drift is None else self.fields(part.drift),
            "drift_problem": part.drift_problem,
        }

    def fields(self, one: Any, without: frozenset[str] = OF_THE_RUN) -> dict[str, Json]:
        """Return the fields of totals by name."""
        return {
            each.name: self._plain(getattr(one, each.name))
            for each in fields(one)
            if each.name not in without
        }

    def _plain(self, value: Any) -> Json:
        """Return a value of a field."""
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, np.ndarray):
            return packed(value)
        if isinstance(value, (bool, int, str)) or value is None:
            return value
        if isinstance(value, float):
            return number(value)
        if isinstance(value, Place):
            return self.place(value)
        if isinstance(value, KeyedTable):
            return {"keys": packed(value.keys[: value.n]), "states": packed(value.states[: value.n])}
        if isinstance(value, Mapping):
            return [[self._plain(key), self._plain(one)] for key, one in value.items()]
        if isinstance(value, frozenset):
            return sorted(value)
        if isinstance(value, (list, tuple)):
            return [self._plain(one) for one in value]
        return self.fields(value, frozenset({"path"}))

    def place(self, place: Place) -> Json:
        """Return a place."""
        self.places.add(place)
        place = self.token_ids.get(place, place)
        return [place.row, place.position, place.token_id]

    def _kept(self, one: Kept) -> list[Json]:
        """Return a worst token; its place is known."""
        token = one.token
        return [number(one.size), *(self._plain(getattr(token, each.name)) for each in fields(token))]


def _first_rows(part: FilePart) -> tuple[Ints, Ints] | None:
    """Return the ids of a part, each once, and the first row of each."""
    if part.ids is None or part.id_rows is None:
        return None
    ids, which = np.unique(part.ids, return_inverse=True)
    rows = np.full(ids.size, np.iinfo(np.int64).max)
    np.minimum.at(rows, which, part.id_rows)
    return ids, rows


# -------------------------------------------------------------------------------------------- from JSON


def part_from_json(raw: Json, sets: Iterable[MeasureSet], pair: PairPlan) -> FilePart:
    """Return the part that `Writing.part` made JSON of.

    Parameters
    ----------
    raw : JSON value
    sets : iterable of MeasureSet
        What is computed beside the kernels under the same settings.
    pair : PairPlan
        How trainer and sampler are compared.

    Raises
    ------
    ValueError
        It is no such value.
    """
    _is(raw, dict)
    report = report_from_json(_of(raw, "input"))
    read = Reading(report.path)
    measures, sizes = _list(_of(raw, "measures")), [len(one.wanted) for one in sets]
    if measures and len(measures) != len(sizes):
        raise ValueError("other measures than these settings ask for")
    drift = _of(raw, "drift")
    ids = _optional(_of(raw, "ids"), _two_arrays)
    return FilePart(
        report,
        read.totals(_of(raw, "totals")),
        tuple(read.measures(one, k) for one, k in zip(measures, sizes, strict=False)),
        None if ids is None else ids[0],
        None if ids is None else ids[1],
        read.worst(_of(raw, "worst")),
        {
            _text(role): tuple(_text(one) for one in _list(texts))
            for role, texts in _is(_of(raw, "texts"), dict).items()
        },
        None if drift is None else read.pair(drift, pair),
        _optional(_of(raw, "drift_problem"), _text),
    )


class Reading:
    """Makes totals of JSON.

    Parameters
    ----------
    path : str
        Of the input, for its places.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def totals(self, raw: Json) -> Totals:
        """Return the totals of an input."""
        totals = Totals()
        self._fill(
            totals,
            raw,
            {
                "places": lambda one: _mapping(one, _name_and_side, self.place),
                "first_bad": lambda one: _mapping(one, _text, self.place),
                "seq_places": lambda one: _mapping(one, _two_numbers, self.place),
                "groups": lambda one: _optional(one, _table),
                "no_sequences": _text_or_none,
                "no_groups": _text_or_none,
                "roles": lambda one: frozenset(_among(role, COLUMNS) for role in _list(one)),
                "suspects": lambda one: _mapping(one, _text, self._suspect),
                "checks": self._checks,
                "normal_scopes": lambda one: _optional(one, _two_numbers),
            },
        )
        totals.file_order = {self.path: 0}
        return totals

    def pair(self, raw: Json, plan: PairPlan) -> PairTotals:
        """Return the totals of a comparison."""
        totals = PairTotals.of(plan)
        self._fill(
            totals,
            raw,
            {
                "places": lambda one: _mapping(one, _name_and_side, self.place),
                "first_bad": lambda one: _mapping(one, _count, self.place),
                "sequence_places": lambda one: _mapping(one, _count, self.place),
                "steps": lambda one: _mapping(one, _whole, _floats(totals.classes.shape[1])),
                "no_sequences": _text_or_none,
                "suspects": lambda one: _mapping(one, _text, self._counted_place),
                "top": lambda one: [self._top(each) for each in _list(one)],
            },
        )
        new = PairTotals.of(plan).sequence_extremes
        for side in (0, 1):
            if totals.sequence_extremes[side] != new[side] and side not in totals.sequence_places:
                raise ValueError("an extreme without its place")
        return totals

    def measures(self, raw: Json, k: int) -> MeasureTotals:
        """Return the totals of k measures."""
        totals = MeasureTotals(k)
        self._fill(totals, raw, {"missing": lambda one: _mapping(one, _count, _text)})
        if totals.k != k:
            raise ValueError("other measures than these settings ask for")
        return totals

    def worst(self, raw: Json) -> WorstTokens:
        """Return the worst tokens."""
        lists = ([self._kept(one) for one in _list(_of(raw, by))] for by in ("by_log_ratio", "by_loss"))
        return WorstTokens(_count(_of(raw, "limit")), *lists)

    def place(self, raw: Json) -> Place:
        """Return a place in the input."""
        row, position, token_id = _exactly(raw, 3)
        return Place(self.path, _count(row), _optional(position, _count), _optional(token_id, _whole))

    def _fill(self, target: Any, raw: Json, special: Mapping[str, Callable[[Json], Any]]) -> None:
        """Set every field of totals, each to a value of the kind, and of the shape, that it has when new."""
        _is(raw, dict)
        for each in fields(target):
            if each.name in OF_THE_RUN:
                continue
            value, new = _of(raw, each.name), getattr(target, each.name)
            if each.name in special:
                setattr(target, each.name, special[each.name](value))
            elif isinstance(new, np.ndarray):
                setattr(target, each.name, _like(new, value))
            elif isinstance(new, Sums):
                self._fill(new, value, {})
            elif type(value) is type(new):
                setattr(target, each.name, value)
            else:
                raise ValueError(f"{each.name} is of another kind")

    def _checks(self, raw: Json) -> DataChecks:
        """Return what was seen in the columns; they have been decided on."""
        checks, identity = DataChecks(), _of(raw, "identity")
        checks.narrow = _mapping(_of(raw, "narrow"), _text, self._narrow)
        checks.formats = _mapping(
            _of(raw, "formats"), _text, lambda one: [_among(x, FORMATS) for x in _list(one)]
        )
        self._fill(
            checks.identity,
            identity,
            {
                "holds": lambda one: _optional(one, lambda value: bool(_is(value, bool))),
                "where": lambda one: _optional(one, self.place),
                "pairs": _pairs,
            },
        )
        return checks

    def _narrow(self, raw: Json) -> NarrowFound:
        return NarrowFound(
            _among(_of(raw, "format"), NARROW),
            _count(_of(raw, "looked")),
            _count(_of(raw, "files")),
            self.place(_of(raw, "where")),
        )

    def _suspect(self, raw: Json) -> Suspect:
        return Suspect(_count(_of(raw, "count")), self.place(_of(raw, "where")))

    def _counted_place(self, raw: Json) -> tuple[int, Place]:
        count, where = _exactly(raw, 2)
        return _count(count), self.place(where)

    def _top(self, raw: Json) -> TopSequence:
        row, key, n, *sums = (_of(raw, each.name) for each in fields(TopSequence) if each.name != "path")
        return TopSequence(self.path, _count(row), _whole(key), _count(n), *(as_float(one) for one in sums))

    def _kept(self, raw: Json) -> Kept:
        size, by, where, new, old, adv, log_ratio, ratio, loss, branch = _exactly(raw, 10)
        advantage, *others = (_optional(one, as_float) for one in (adv, log_ratio, ratio, loss))
        token = WorstToken(
            _among(by, ("log_ratio", "loss")), self.place(where), as_float(new), as_float(old), advantage,
            others[0], others[1], others[2], _text(branch),
        )  # fmt: skip
        return Kept(as_float(size), token, None)


def statistics_from_json(raw: Json) -> Totals:
    """Return totals that `Writing.fields` made JSON of, places without a path.

    Raises
    ------
    ValueError
    """
    return Reading("").totals(raw)


def report_from_json(raw: Json) -> InputReport:
    """Return the report of an input."""
    names = [each.name for each in fields(InputReport)]
    path, form, layout, rows, n_bytes, tokens, masked, columns, notes = (_of(raw, name) for name in names)
    return InputReport(
        _text(path), _text(form), _text(layout), _count(rows), _count(n_bytes), _count(tokens),
        _count(masked), {_text(role): _column(one) for role, one in _is(columns, dict).items()},
        tuple(_text(one) for one in _list(notes)),
    )  # fmt: skip


def _column(raw: Json) -> ColumnReport:
    """Return the report of a column."""
    column, dtype, *counts = (_of(raw, each.name) for each in fields(ColumnReport))
    return ColumnReport(_text(column), _text(dtype), *(_count(one) for one in counts))


def _table(raw: Json) -> KeyedTable:
    """Return groups."""
    keys, states = unpacked(_of(raw, "keys")), unpacked(_of(raw, "states"))
    n = keys.shape[0] if keys.ndim == 2 else -1
    n_keyed = next(
        (k for k in range(sequence.N_KEYED + 1) if states.shape == (n, sequence.width_of(k))), None
    )
    if keys.shape != (n, 2) or keys.dtype != np.int64 or n_keyed is None:
        raise ValueError("groups of another shape")
    if n > GROUP_LIMIT or states.dtype != np.float64:
        raise ValueError("more groups than are kept, or of another type")
    table = KeyedTable.narrow(n_keyed, timed=False)
    table.reserve(n)
    table.keys[:n], table.states[:n], table.n = keys, states, n
    table.slots[:] = -1
    sequence.rebuild(table.slots, table.keys, n)
    return table


# ------------------------------------------------------------------------------------------ small things


def _of(raw: Json, name: str) -> Json:
    if name not in _is(raw, dict):
        raise ValueError(f"no '{name}'")
    return raw[name]


def _is(raw: Json, kind: type) -> Any:
    if type(raw) is not kind:
        raise ValueError(f"a value of type {type(raw).__name__}, not {kind.__name__}")
    return raw


def _list(raw: Json) -> list[Json]:
    out: list[Json] = _is(raw, list)
    return out


def _text(raw: Json) -> str:
    out: str = _is(raw, str)
    return out


def _whole(raw: Json) -> int:
    out: int = _is(raw, int)
    return out


def _count(raw: Json) -> int:
    if _whole(raw) < 0:
        raise ValueError("a count below 0")
    return int(raw)


def _optional(raw: Json, read: Callable[[Json], Value]) -> Value | None:
    return None if raw is None else read(raw)


def _text_or_none(raw: Json) -> str | None:
    return _optional(raw, _text)


def _exactly(raw: Json, n: int) -> list[Json]:
    if len(_list(raw)) != n:
        raise ValueError(f"{len(raw)} values, not {n}")
    return _list(raw)


def _among(raw: Json, allowed: Iterable[str]) -> Any:
    if raw not in allowed:
        raise ValueError(f"a name that is not known: {raw!r}")
    return raw


def _mapping(raw: Json, key: Callable[[Json], Key], value: Callable[[Json], Value]) -> dict[Key, Value]:
    return {key(name): value(one) for name, one in (_exactly(pair, 2) for pair in _list(raw))}


def _name_and_side(raw: Json) -> tuple[str, int]:
    name, side = _exactly(raw, 2)
    return _text(name), _count(side)


def _two_numbers(raw: Json) -> tuple[int, int]:
    first, second = _exactly(raw, 2)
    return _count(first), _count(second)


def _like(new: np.ndarray[Any, Any], raw: Json) -> np.ndarray[Any, Any]:
    values = unpacked(raw)
    if values.shape != new.shape or values.dtype != new.dtype:
        raise ValueError("an array of another shape or type")
    return values


def _floats(n: int) -> Callable[[Json], np.ndarray[Any, Any]]:
    return lambda raw: _like(np.zeros(n), raw)


def _two_arrays(raw: Json) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    ids, rows = (_flat(unpacked(one)) for one in _exactly(raw, 2))
    if ids.size != rows.size:
        raise ValueError("ids without their rows")
    return ids, rows


def _pairs(raw: Json) -> np.ndarray[Any, Any]:
    values = unpacked(raw)
    if values.ndim != 2 or values.shape[0] != 2 or values.dtype != np.float64:
        raise ValueError("pairs of another shape or type")
    return values


def _flat(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if values.ndim != 1 or values.dtype != np.int64:
        raise ValueError("ids of another shape or type")
    return values
