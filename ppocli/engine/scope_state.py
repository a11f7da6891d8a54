"""Scopes in which advantages are normalised, as JSON and back: those of one file, and those of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ppocli.core.partial_document import packed, unpacked
from ppocli.engine.recode import recoded, texts_of
from ppocli.kernels import sequence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ppocli.core.chunk import IdCoder
    from ppocli.engine.advantages import AdvantageScopes

Json = Any


def scopes_to_json(scopes: AdvantageScopes, rows: int, coders: Mapping[str, IdCoder]) -> dict[str, Json]:
    """Return the scopes of one file with their moments, its rows, and its texts."""
    keys, moments = scopes.moments()
    texts = {role: list(each) for role, each in texts_of(coders).items()}
    return {"keys": packed(keys), "moments": packed(moments), "rows": rows, "texts": texts}


def merge_scopes(scopes: AdvantageScopes, raw: Json, coders: Mapping[str, IdCoder], path: str) -> None:
    """Add the scopes of the next file, in order.

    Raises
    ------
    InputError
        There are too many.
    """
    keys = unpacked(raw["keys"])
    if scopes.spec.adv_norm == "group":
        keys = recoded(keys, raw["texts"], coders)
    scopes.merge(keys, unpacked(raw["moments"]), path)


def finished_to_json(scopes: AdvantageScopes, coders: Mapping[str, IdCoder]) -> dict[str, Json]:
    """Return shift and scale of every scope of a run, and the texts of their keys."""
    return {
        "keys": packed(scopes.table.keys[: scopes.table.n]),
        **{name: packed(getattr(scopes, name)) for name in ("shift", "scale", "spoilt")},
        "texts": {role: list(each) for role, each in texts_of(coders).items()},
    }


def put_finished(scopes: AdvantageScopes, raw: Json, coders: Mapping[str, IdCoder]) -> None:
    """Take shift and scale from elsewhere, and the codes of the texts."""
    keys, table = unpacked(raw["keys"]), scopes.table
    table.reserve(keys.shape[0])
    table.keys[: keys.shape[0]], table.n = keys, keys.shape[0]
    table.slots[:] = -1
    sequence.rebuild(table.slots, table.keys, table.n)
    for name in ("shift", "scale", "spoilt"):
        setattr(scopes, name, unpacked(raw[name]))
    for role, texts in raw["texts"].items():
        for text in texts:
            coders[role].code(text)
