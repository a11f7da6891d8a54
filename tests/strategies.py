"""What the property tests draw from: batches of tokens with every kind of trouble, in several layouts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import naive
import numpy as np
from hypothesis import strategies as st

# Values that break naive formulas: zeros of both signs, denormals, clamp bounds, the edges of the formats.
EDGES = (
    0.0,
    -0.0,
    5e-324,
    -1e-310,
    1e-300,
    1e-9,
    -1e-9,
    1e-4,
    10.0,
    -10.0,
    20.0,
    -20.0,
    11.1,
    88.8,
    -745.2,
    709.8,
)
WIDTHS = {"float16": np.float16, "float32": np.float32, "float64": np.float64}


@dataclass
class Batch:
    """Tokens as flat float64 columns, the row lengths of ragged data (None: flat), and the mask.

    A column holds only values of its own dtype, so that storing it in that dtype loses nothing. `nulls` are
    the places where a file holds no value; arrays in memory cannot have them.
    """

    columns: dict[str, np.ndarray]
    lengths: list[int] | None = None
    mask: np.ndarray | None = None
    groups: list[int] | None = None
    nulls: list[tuple[str, int]] = field(default_factory=list)
    dtype: str = "float64"
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def n_tokens(self) -> int:
        return len(self.columns["log_probs"])

    def tokens(self) -> list[naive.Token]:
        """The same batch as `naive` takes it."""
        out = [
            {role: float(values[i]) for role, values in self.columns.items()} for i in range(self.n_tokens)
        ]
        for role, place in self.nulls:
            out[place][role] = None
        if self.mask is not None:
            for token, keep in zip(out, self.mask, strict=True):
                token["mask"] = int(keep)
        for place, token in enumerate(out):
            token["row"] = place
        if self.lengths is not None:
            rows = np.repeat(np.arange(len(self.lengths)), self.lengths)
            for token, row in zip(out, rows, strict=True):
                token["row"] = token["sequence"] = int(row)
                if self.groups is not None:
                    token["group"] = self.groups[row]
        return out

    @property
    def n_rows(self) -> int:
        return self.n_tokens if self.lengths is None else len(self.lengths)

    def naive(self) -> naive.Result:
        horizon = self.settings.get("horizon") or (max(self.lengths, default=0) if self.lengths else None)
        choices = {**self.settings, **({"horizon": horizon} if horizon else {})}
        return naive.evaluate(self.tokens(), n_rows=self.n_rows, **choices)


def log_ratios(widest: float) -> st.SearchStrategy[float]:
    """Log-ratios: mostly small, some at edges, some up to `widest`."""
    usual = st.floats(-0.6, 0.6, allow_subnormal=False)
    edges = st.sampled_from([x for x in EDGES if abs(x) <= widest])
    return st.one_of(usual, usual, usual, edges, st.floats(-widest, widest))


def stored_as(values: list[float], dtype: str) -> np.ndarray:
    """The values rounded to a dtype and widened again; what overflows the dtype becomes its largest value."""
    largest = float(np.finfo(WIDTHS[dtype]).max)
    return np.clip(np.array(values, np.float64), -largest, largest).astype(WIDTHS[dtype]).astype(np.float64)


REALS = st.one_of(st.floats(-4, 4), st.floats(-4, 4), st.just(0.0), st.floats(-1e5, 1e5))
SPOILED = st.sampled_from([math.nan, math.inf, -math.inf, None])
SPEC_CHOICES: dict[str, st.SearchStrategy[Any]] = {
    "clip_low": st.sampled_from([0.2, 0.0, 1.0, 0.1]),
    "clip_high": st.sampled_from([0.2, 0.28, 0.0]),
    "dual_clip": st.sampled_from([None, None, 3.0, 1.1]),
    "delta": st.sampled_from([None, None, 1.5, 10.0]),
    "log_ratio_clamp": st.sampled_from([None, None, 20.0, 0.5]),
    "value_clip": st.sampled_from([None, 0.2]),
    "vf_coef": st.sampled_from([None, None, 0.0, 0.25]),
    "ent_coef": st.sampled_from([None, None, 0.01]),
    "kl_coef": st.sampled_from([None, None, 0.0, 0.04]),
    "adv_norm": st.sampled_from(["none", "none", "batch"]),
    "adv_norm_ddof": st.sampled_from([0, 1]),
    "adv_norm_form": st.sampled_from(["add", "max", "var"]),
    "agg": st.sampled_from(["token-mean", "token-sum"]),
    "micro_batch": st.sampled_from([None, None, 1, 3]),
}
SEQUENCE_AGGS = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm")
OPTIONAL_ROLES = ("values", "old_values", "returns", "rewards", "entropy", "ref_log_probs")


@st.composite
def specs(draw: st.DrawFn, *, ragged: bool) -> dict[str, Any]:
    """Settings of the loss that go together."""
    out = {name: draw(choice) for name, choice in SPEC_CHOICES.items()}
    if ragged:
        out["agg"] = draw(st.sampled_from(SEQUENCE_AGGS))
        out["horizon"] = draw(st.sampled_from([None, 7]))
    return out


@st.composite
def batches(
    draw: st.DrawFn,
    *,
    widest: float = 1000.0,
    spoil: bool = True,
    optional: bool = True,
    max_tokens: int = 60,
) -> Batch:
    """A batch: ragged or flat, masked or not, with or without optional columns and non-finite values."""
    ragged = draw(st.booleans())
    if ragged:
        lengths = draw(st.lists(st.integers(0, 12), min_size=1, max_size=8).filter(any))
        n = sum(lengths)
    else:
        lengths, n = None, draw(st.integers(1, max_tokens))
    dtype = draw(st.sampled_from(list(WIDTHS)))

    def column(values: st.SearchStrategy[float]) -> np.ndarray:
        return stored_as(draw(st.lists(values, min_size=n, max_size=n)), dtype)

    old = column(st.floats(-20, 0))
    moves = np.array(draw(st.lists(log_ratios(widest), min_size=n, max_size=n)))
    columns = {
        "log_probs": stored_as(list(old + moves), dtype),
        "old_log_probs": old,
        "advantages": column(REALS),
    }
    roles = draw(st.sets(st.sampled_from(OPTIONAL_ROLES))) if optional else set()
    if roles & {"values", "old_values"}:
        roles.add("returns")  # without them the values are of no use
    for role in sorted(roles):
        columns[role] = column(st.floats(-4, 4))
    mask = None
    if draw(st.booleans()):
        mask = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n).filter(any)))
    nulls: list[tuple[str, int]] = []
    if spoil and draw(st.booleans()):
        for _ in range(draw(st.integers(1, 3))):
            role, place = draw(st.sampled_from(sorted(columns))), draw(st.integers(0, n - 1))
            value = draw(SPOILED)
            if value is None:
                nulls.append((role, place))
            else:
                columns[role][place] = value
    groups = None
    if lengths is not None and draw(st.booleans()):
        groups = draw(st.lists(st.integers(0, 3), min_size=len(lengths), max_size=len(lengths)))
    settings = draw(specs(ragged=ragged))
    if groups is not None and draw(st.booleans()):
        settings["agg"] = "group-mean"
    return Batch(columns, lengths, mask, groups, nulls, dtype, settings)
