"""What a row of a framework asks of `evaluate`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from goldens.rows import Arrays, Row

import ppocli
from ppocli.core.presets import preset
from ppocli.core.sequence_objectives import Sequences
from ppocli.core.terms import TERMS
from ppocli.core.tokens import Tokens


@dataclass
class Asked:
    """A call of `evaluate` and how its metrics are to be compared.

    Attributes
    ----------
    names : peer's output to the preset's metric, where they differ
    factors : what ours is multiplied by first (a peer that returns a sum where it logs a mean)
    values : numbers got otherwise
    missing : why an output is not compared
    scale : the mean absolute term of sums that cancel
    slack : what decisions within rounding of a bound may change
    bounds, decided : ratios at which exp() of different libraries may decide differently, and the outputs
        that may then change by the share of the tokens there
    float32 : outputs that the peer computes in float32 although its row is float64
    terms : the preset's terms of each token, (n,), by the peer's name for the array
    """

    like: str
    arrays: Arrays
    settings: dict[str, Any] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    factors: dict[str, float] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    scale: dict[str, float] = field(default_factory=dict)
    slack: dict[str, float] = field(default_factory=dict)
    bounds: tuple[float, ...] = ()
    decided: tuple[str, ...] = ()
    float32: tuple[str, ...] = ()
    terms: dict[str, np.ndarray] = field(default_factory=dict)


def term(asked: Asked, name: str, **options: Any) -> np.ndarray:
    """A term of the preset's vocabulary at every valid token, (n,), under the settings asked for."""
    given = {role: np.stack(list(values)) for role, values in asked.arrays.items()}
    valid = given["mask"] != 0 if "mask" in given else np.ones(given["log_probs"].shape, bool)
    columns = {role: values[valid].astype(float) for role, values in given.items()}
    tokens = Tokens(columns, Sequences.from_ids(np.nonzero(valid)[0]))
    values: np.ndarray = TERMS[name].compute(tokens, preset(asked.like).loss_spec(asked.settings), **options)
    return values


Mapping = Callable[[Row, Arrays], Asked]
"""A row and its arrays by role in, the call out. Raises NotExpressed with the reason."""


def inputs(arrays: Arrays, *roles: str) -> Arrays:
    """The arrays of these roles as `evaluate` takes them; (B, 1) as a list, for it would be read as flat."""
    out: dict[str, Any] = {}
    for role in roles:
        if role in arrays:
            values = arrays[role]
            out[role] = list(values) if values.ndim == 2 and values.shape[1] == 1 else values
    return out


def dirty(arrays: Arrays) -> bool:
    """Whether log-probs in the padding are not finite."""
    padding = arrays["mask"] == 0
    return any(not np.isfinite(arrays[name][padding]).all() for name in ("log_probs", "old_log_probs"))


def flips(asked: Asked, arrays: Arrays, name: str) -> float:
    """The share of valid tokens whose log-ratio is within 4 units of a bound, for outputs that count them."""
    if name not in asked.decided:
        return 0.0
    log_ratio = arrays["log_probs"] - arrays["old_log_probs"]
    near = np.zeros(log_ratio.shape, bool)
    for bound in asked.bounds:
        if 0.0 < bound < math.inf:
            at = math.log(bound)
            near |= (np.abs(log_ratio - at) <= 4.0 * np.spacing(abs(at))) & (log_ratio != 0.0)
    valid = arrays["mask"] != 0 if "mask" in arrays else np.ones(log_ratio.shape, bool)
    return float(near[valid].mean()) if valid.any() else 0.0


def metrics_of(asked: Asked) -> dict[str, float | None]:
    """The framework's metrics as `evaluate` gives them; what is not finite as the number that it is."""
    like = ppocli.evaluate(**asked.arrays, like=asked.like, **asked.settings).like
    assert like is not None
    out = dict(like.metrics)
    for name, note in like.nulls.items():
        out[name] = None if note.nonfinite is None else float(note.nonfinite)
    return out
