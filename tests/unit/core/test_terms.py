"""Terms with values by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from ppocli.core.sequence_objectives import Sequences
from ppocli.core.spec import LossSpec
from ppocli.core.terms import TERMS
from ppocli.core.tokens import Tokens

LN2 = math.log(2.0)
SPEC = LossSpec(clip_low=0.2, clip_high=0.28, value_clip=0.5)
# Ratios 2, 1/2, 1, 2; the first two tokens are one sequence of ratio 1, the others one of ratio sqrt(2).
COLUMNS = {
    "log_probs": [-1.0 + LN2, -1.0 - LN2, -1.0, -1.0 + LN2],
    "old_log_probs": [-1.0, -1.0, -1.0, -1.0],
    "rollout_log_probs": [-1.0 - LN2, -1.0, -1.0, -1.0],
    "advantages": [1.0, 1.0, -1.0, -1.0],
    "values": [1.0, 2.0, 0.0, 4.0],
    "old_values": [0.0, 2.25, 0.0, 4.0],
    "returns": [0.0, 0.0, 3.0, 4.0],
}


def tokens() -> Tokens:
    columns = {role: np.array(values) for role, values in COLUMNS.items()}
    return Tokens(columns, Sequences.from_offsets(np.array([0, 2, 4])))


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("loss", {}, [-1.28, -0.5, 1.0, 2.0]),
        ("clip", {"kind": "active"}, [1, 0, 0, 0]),
        ("clip", {"kind": "region"}, [1, 1, 0, 1]),
        ("clip", {"kind": "low"}, [0, 1, 0, 0]),
        ("clip", {"kind": "positive"}, [1, 1, 0, 0]),
        ("clip", {"kind": "negative"}, [0, 0, 0, 1]),
        ("sequence_vote", {"kind": "region"}, [0, 0, 1, 1]),
        ("sequence_vote", {"kind": "active"}, [0, 0, 0, 0]),
        ("distance", {}, [1, 1, 0, 1]),
        ("distance", {"eps": 0.7}, [1, 0, 0, 1]),
        ("kl", {}, [-LN2, LN2, 0.0, -LN2]),
        ("kl", {"estimator": "k2"}, [LN2**2 / 2, LN2**2 / 2, 0.0, LN2**2 / 2]),
        ("kl", {"estimator": "k3"}, [1 - LN2, LN2 - 0.5, 0.0, 1 - LN2]),
        ("kl", {"estimator": "k3_reverse"}, [LN2 - 0.5, 1 - LN2, 0.0, LN2 - 0.5]),
        ("kl", {"estimator": "abs", "clamp": 0.5}, [0.5, 0.5, 0.0, 0.5]),
        ("kl", {"estimator": "k1", "cap": 0.25}, [-0.25, 0.25, 0.0, -0.25]),
        ("ratio", {}, [2.0, 0.5, 1.0, 2.0]),
        ("ratio", {"power": 2}, [4.0, 0.25, 1.0, 4.0]),
        ("ratio", {"low": 0.8, "high": 1.28}, [1.28, 0.8, 1.0, 1.28]),
        ("ratio", {"level": "geometric"}, [1.0, 1.0, math.sqrt(2), math.sqrt(2)]),
        ("ratio", {"level": "sequence"}, [1.0, 1.0, 2.0, 2.0]),
        ("statistic", {"name": "k2"}, [LN2**2 / 2, 0.0, 0.0, 0.0]),
        ("value_error", {"form": "plain"}, [1.0, 4.0, 9.0, 0.0]),
        # Clipped values: 0.5, 2, 0, 4.
        ("value_error", {"form": "clipped"}, [0.25, 4.0, 9.0, 0.0]),
        ("value_error", {"form": "max"}, [1.0, 4.0, 9.0, 0.0]),
        ("value_error", {"form": "plain", "error": "huber", "delta": 1.0}, [0.5, 1.5, 2.5, 0.0]),
        ("value_error", {"form": "plain", "error": "smooth-l1", "delta": 2.0}, [0.25, 1.0, 2.0, 0.0]),
        ("value_clip", {"kind": "outside"}, [1, 0, 0, 0]),
        ("value_clip", {"kind": "active"}, [0, 0, 0, 0]),
        ("column", {"role": "returns"}, [0.0, 0.0, 3.0, 4.0]),
    ],
)
def test_values(name: str, options: dict[str, Any], expected: list[float]) -> None:
    assert TERMS[name].compute(tokens(), SPEC, **options) == pytest.approx(expected, rel=1e-14, abs=1e-15)


def test_weights() -> None:
    spec = LossSpec(rollout_is="sequence", rollout_is_cap=1.5)
    assert TERMS["weight"].compute(tokens(), spec).tolist() == pytest.approx([1.5, 1.5, 1.0, 1.0])
    assert TERMS["weight"].compute(tokens(), spec, kind="raw").tolist() == pytest.approx([2.0, 2.0, 1.0, 1.0])
    assert TERMS["weight"].compute(tokens(), spec, kind="high").tolist() == [1.0, 1.0, 0.0, 0.0]
    assert TERMS["weight"].compute(tokens(), LossSpec()).tolist() == [1.0] * 4


def test_a_weighted_loss() -> None:
    spec = LossSpec(clip_low=0.2, clip_high=0.28, rollout_is="token")
    assert TERMS["loss"].compute(tokens(), spec) == pytest.approx([-2.56, -0.5, 1.0, 2.0])


def test_what_a_term_needs() -> None:
    assert TERMS["loss"].roles(LossSpec(), {}) == ("log_probs", "old_log_probs", "advantages")
    assert "rollout_log_probs" in TERMS["loss"].roles(LossSpec("decoupled"), {})
    assert TERMS["loss"].sequences(LossSpec("gspo"), {})
    assert not TERMS["loss"].sequences(LossSpec("cispo"), {})
    assert TERMS["ratio"].sequences(LossSpec(), {"level": "geometric"})
    assert TERMS["value_error"].roles(LossSpec(), {}) == ("values", "returns")
