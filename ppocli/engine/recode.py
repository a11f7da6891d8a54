"""Codes of text ids from those of one input, numbered by itself, to those of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppocli.core.chunk import IdCoder
from ppocli.kernels import sequence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ppocli.engine.drift_passes import PairPart
    from ppocli.engine.file_part import FilePart
    from ppocli.engine.totals import Ints


def recode(part: FilePart, coders: Mapping[str, IdCoder]) -> None:
    """Replace the codes of a part by those of the run, where an id is a text."""
    if not part.texts:
        return
    codes = {role: _codes(part.texts.get(role, ()), coders[role]) for role in coders}
    if part.ids is not None:
        part.ids = _replaced(part.ids, codes["sequence_id"])
    groups = part.totals.groups
    if groups is not None and groups.n:
        groups.keys[: groups.n] = _of_groups(groups.keys[: groups.n], codes)
        groups.slots[:] = -1
        sequence.rebuild(groups.slots, groups.keys, groups.n)


def recode_pairs(part: PairPart, coders: Mapping[str, IdCoder]) -> None:
    """Replace the codes of what the comparisons of `drift` found."""
    if not part.texts:
        return
    codes = {role: _codes(part.texts.get(role, ()), coders[role]) for role in coders}
    for totals in part.totals.values():
        for one in totals.top:
            one.key = int(_replaced(np.array([one.key]), codes["sequence_id"])[0])
        steps = _replaced(np.array([*totals.steps], dtype=np.int64), codes["step"]).tolist()
        totals.steps = dict(zip(steps, totals.steps.values(), strict=True))
    for _, _, labels in part.sampler.parts:
        labels[:, 1] = _replaced(labels[:, 1].copy(), codes["sequence_id"])


def recoded(keys: Ints, texts: Mapping[str, Sequence[str]], coders: Mapping[str, IdCoder]) -> Ints:
    """Return keys of groups, (n, 2), with the codes of the run for texts of one input."""
    return _of_groups(keys, {role: _codes(texts.get(role, ()), coders[role]) for role in coders})


def texts_of(coders: Mapping[str, IdCoder]) -> dict[str, tuple[str, ...]]:
    """Return the texts that were coded, by role, in the order of their codes."""
    return {role: tuple(coder.codes) for role, coder in coders.items() if coder.codes}


def _of_groups(keys: Ints, codes: Mapping[str, Ints]) -> Ints:
    """Return keys of groups with the run's codes."""
    return np.column_stack(
        [_replaced(keys[:, k].copy(), codes[role]) for k, role in enumerate(("step", "group_id"))]
    )


def _codes(texts: Sequence[str], coder: IdCoder) -> Ints:
    """Return the run's code of each text."""
    return np.array([coder.code(text) for text in texts], dtype=np.int64)


def _replaced(ids: Ints, codes: Ints) -> Ints:
    """Return ids with the run's codes of those that are texts."""
    if not codes.size:
        return ids
    known = (ids >= IdCoder.FIRST) & (ids < IdCoder.FIRST + codes.size)
    at = np.where(known, ids, IdCoder.FIRST) - IdCoder.FIRST
    return np.where(known, codes[at], ids)
