"""Our own metrics, which compiled kernels compute, against verl's numbers of the same definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from goldens.presets import MAPPINGS
from goldens.presets.asked import flips
from goldens.rows import Row, arrays_of, close, tolerance

import ppocli
from ppocli.core.presets import preset
from ppocli.core.spec import FRAMEWORK_ONLY

if TYPE_CHECKING:
    from pathlib import Path

CORE = "verl.trainer.ppo.core_algos."
OWN = {
    f"{CORE}POLICY_LOSS_REGISTRY['vanilla']": {
        "loss": ("policy_loss", 1.0),
        "actor/ppo_kl": ("approx_kl_k1", 1.0),
        "actor/pg_clipfrac": ("clip_frac_active", 1.0),
        "actor/pg_clipfrac_lower": ("dual_clip_frac", 1.0),
    },
    f"{CORE}compute_value_loss": {
        "vf_loss": ("value_loss", 0.5),
        "vf_clipfrac": ("value_clip_frac_active", 1.0),
    },
    f"{CORE}kl_penalty": {"masked_mean": ("ref_kl", 1.0)},
}
EPS = 1e-8
"""verl adds this to the number of tokens; our own means have no epsilon."""


def covers(row: Row) -> bool:
    return row["function"] in OWN and "ref_minus_logprob" not in row["settings"]


def test_row(folder: Path, row: Row) -> None:
    arrays = arrays_of(folder, row)
    asked = MAPPINGS[row["function"]](row, dict(arrays))
    spec = preset(asked.like).loss_spec(asked.settings)
    if spec.denominator is not None or spec.loss_scale != 1.0:
        pytest.skip("divisors of a global batch are the preset's")
    settings = {name: one for name, one in spec.to_dict().items() if name not in FRAMEWORK_ONLY}
    ours = ppocli.evaluate(**asked.arrays, **settings).metrics
    for peer, (name, factor) in OWN[row["function"]].items():
        want = row["outputs"][peer]
        if want == "NaN" or not comparable(row, arrays, name, spec.agg):
            continue
        name = f"ref_kl_{spec.ref_kl}" if name == "ref_kl" else name
        got = ours[name]
        assert got is not None
        if peer == "loss" or name == "value_loss":
            slack = 2.0 * EPS * max(1.0, abs(got)) if spec.agg == "seq-mean-token-mean" else 0.0
        else:
            got, slack = got * ours["n_tokens"] / (ours["n_tokens"] + EPS), flips(asked, arrays, peer)
        close(got * factor, want, peer, rel=tolerance(row, peer), slack=slack)


def comparable(row: Row, arrays: dict[str, np.ndarray], name: str, agg: str) -> bool:
    """Whether verl's definition is ours: no clamp that bites, and one aggregation of values."""
    if name == "value_loss":
        return agg == "token-mean"
    ends = {"approx_kl_k1": "old_log_probs", "ref_kl": "ref_log_probs"}.get(name)
    if ends is None:
        return True
    difference = np.abs(arrays["log_probs"] - arrays[ends])[arrays["mask"] != 0]
    limit = 20.0 if name == "approx_kl_k1" else 2.0  # k3 of 2 is below its cap of 10
    return row["settings"].get("kl_penalty") != "abs" and float(difference.max()) <= limit
