"""The audit against PyTorch and verl computing the loss in float32, bfloat16 and float16 on a CPU."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
from audit_kernel import evaluate, rows_of
from audit_oracle import Bounds, nearest
from goldens.rows import WORDS, Arrays, Row, arrays_of

import ppocli
from ppocli.engine.audit_tables import Variant
from ppocli.kernels import audit_layout

PLAIN = "torch plain PPO"
VERL = "verl.trainer.ppo.core_algos.POLICY_LOSS_REGISTRY['vanilla'] in low precision"
ROLES = ("log_probs", "old_log_probs", "advantages", "mask")
MANTISSA_BITS = {"float64": 52, "float32": 23, "bfloat16": 7, "float16": 10}
ULPS = {"float64": 32, "float32": 4, "bfloat16": 0, "float16": 0}
"""PyTorch adds float32 in an order of its own, and its float32 exp is up to one unit off: the mean of at most
192 tokens is this many units from the right one. In bfloat16 and float16 none of that shows. Float64 rows are
in the whole set only: they are compared with `evaluate`, to 2^-47, to which its means are exact."""


def covers(row: Row) -> bool:
    return row["function"].startswith(PLAIN) or row["function"] == VERL


def test_row(folder: Path, row: Row) -> None:
    arrays = arrays_of(folder, row)
    if row["function"] == VERL:
        check_verl(row, arrays)
    else:
        if row["dtype"] != "float64":
            check_tokens(row, arrays)
        check_plain(row, arrays)


def audited(row: Row, arrays: Arrays, **loss: float) -> dict[str, Any]:
    """Metrics of the arithmetic question, or of the evaluation that the formats are held against in float64.

    (1, 1) is given as a sequence of one token.
    """
    roles = {role: list(arrays[role]) if arrays[role].shape == (1, 1) else arrays[role] for role in ROLES}
    named = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, None: None}
    if row["dtype"] == "float64":
        reference = ppocli.evaluate(**roles, **loss)
        nulls = {name: named[note.nonfinite] for name, note in reference.nulls.items()}
        metrics = {**reference.metrics, **nulls}
        return {**metrics, "policy_loss_of_rounded_sums": metrics["policy_loss"]}
    answer = ppocli.audit(**roles, **loss, formats=row["dtype"]).audit.formats[row["dtype"]].arithmetic
    assert answer is not None
    nulls = {name: named[note.nonfinite] for name, note in answer.nulls.items()}
    return {**answer.metrics, **nulls}


def number(value: Any) -> float:
    return WORDS[value] if isinstance(value, str) else value


def units(got: float, want: float, name: str) -> float:
    """How far two numbers of a format are apart, in steps of it."""
    if got == want or (math.isnan(got) and math.isnan(want)):
        return 0.0
    exponent = math.frexp(max(abs(got), abs(want)))[1] - 1
    return abs(got - want) / 2.0 ** (exponent - MANTISSA_BITS[name])


def check_plain(row: Row, arrays: Arrays) -> None:
    settings, want, name = row["settings"], row["outputs"], row["dtype"]
    got = audited(row, arrays, clip_low=settings["eps_low"], clip_high=settings["eps_high"])
    n = want["mask_sum"]
    off = units(got["policy_loss_of_rounded_sums"], number(want["loss"]), name)
    assert off <= ULPS[name]
    assert got["clip_frac_active"] * n == want["count_branch"]
    assert round(got["clip_frac"] * n) == want["count_above"] + want["count_below"]
    for ours, theirs in (("approx_kl_k1", "k1"), ("approx_kl_k3", "k3")):
        if number(want[theirs]) != got[ours] == math.inf:
            # The peer multiplies by the mask: a ratio that overflows in the padding makes NaN of infinity.
            assert math.isnan(number(want[theirs]))
            assert np.isinf(arrays["ratio"][arrays["mask"] == 0]).any()
            continue
        # PyTorch rounds the sum before it divides; ours is divided, then rounded: one step more or less.
        assert units(got[ours], number(want[theirs]), name) <= (ULPS[name] or 1)


def check_verl(row: Row, arrays: Arrays) -> None:
    """Dual clip and a clamp of the log-ratio; shares are float32 in verl."""
    settings, want, name = row["settings"], row["outputs"], row["dtype"]
    loss = {"clip_low": settings["clip_ratio_low"], "clip_high": settings["clip_ratio_high"]}
    got = audited(row, arrays, **loss, dual_clip=settings["clip_ratio_c"], log_ratio_clamp=20.0)
    off = units(got["policy_loss_of_rounded_sums"], number(want["loss"]), name)
    assert off <= ULPS[name]
    assert abs(got["clip_frac_active"] - want["actor/pg_clipfrac"]) <= 1e-6


def check_tokens(row: Row, arrays: Arrays) -> None:
    """Log-ratio, ratio, loss and clip decisions of every valid token, bit for bit."""
    name, keep = row["dtype"], arrays["mask"] != 0
    low, high = 1.0 - row["settings"]["eps_low"], 1.0 + row["settings"]["eps_high"]
    variants = (Variant("float64", audit_layout.IN_FLOAT64), Variant(name, audit_layout.IN_FORMAT))
    columns = tuple(np.ascontiguousarray(arrays[role][keep]) for role in ROLES[:3])
    n = int(keep.sum())
    ours = rows_of(evaluate(columns, variants, Bounds(low, high), dump=True), 1, n)  # type: ignore[arg-type]
    theirs = {key: arrays[key][keep].astype(np.float64) for key in ("log_ratio", "ratio", "token_loss")}
    assert ours["log_ratio audited"].tolist() == theirs["log_ratio"].tolist()
    other_exp = ours["ratio audited"] != theirs["ratio"]
    if name == "float32":
        assert other_exp.sum() <= 2
        for x, ratio, right in zip(
            theirs["log_ratio"][other_exp],
            theirs["ratio"][other_exp],
            ours["ratio audited"][other_exp],
            strict=True,
        ):
            # Ours is the float32 nearest to exp(x); PyTorch's float32 exp gave its neighbour.
            assert right == nearest(float(mpmath.exp(mpmath.mpf(float(x)))), "float32")
            assert units(float(ratio), float(right), "float32") == 1.0
    else:
        assert not other_exp.any()
    assert np.array_equal(ours["loss audited"][~other_exp], theirs["token_loss"][~other_exp], equal_nan=True)
    bounds = nearest(low, name), nearest(high, name)
    assert (ours["ratio audited"] < bounds[0]).tolist() == arrays["below"][keep].tolist()
    assert (ours["ratio audited"] > bounds[1]).tolist() == arrays["above"][keep].tolist()
    clipped = np.clip(ours["ratio audited"], *bounds)
    assert clipped[~other_exp].tolist() == arrays["clipped_ratio"][keep][~other_exp].tolist()
    assert (ours["side audited"] != 0).tolist() == arrays["branch"][keep].tolist()
