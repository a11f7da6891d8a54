"""The metrics of `drift` against what verl's rollout correction logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from goldens.rows import Row, arrays_of, close, tolerance

import ppocli

EPS = 1e-8
PREFIX = "rollout_corr/"
FUNCTION = "verl.trainer.ppo.rollout_corr_helper.compute_rollout_correction_and_rejection_mask"


def covers(row: Row) -> bool:
    return row["function"] == FUNCTION and "raises" not in row["outputs"]


def test_row(folder: Path, row: Row) -> None:
    """verl counts rows without a token, with perplexities of 1 and a weight of 1; ours leaves them out."""
    arrays = arrays_of(folder, row)
    settings = row["settings"]
    caps: dict[str, Any] = {}
    if settings.get("rollout_is") == "token":
        ends = [float(part) for part in str(settings["rollout_is_threshold"]).split("_")]
        caps = (
            {"tis_cap": ends[0]}
            if len(ends) == 1
            else dict(zip(("mask_low", "mask_high"), ends, strict=True))
        )
    given = {name: list(arrays[name]) for name in ("old_log_probs", "rollout_log_probs", "mask")}
    m = ppocli.drift(**given, **caps).metrics
    n, filled, every = m["n_tokens"], m["n_sequences"], len(arrays["mask"])
    share, rest = filled / every, 1.0 - filled / every
    ours = {
        "kl": m["drift_kl_k1"] * n / (n + EPS),
        "k3_kl": m["drift_kl_k3"] * n / (n + EPS),
        "log_ppl_diff": m["log_ppl_diff"] * share,
        "ppl_ratio": m["ppl_ratio"] * share + rest,
        "chi2_token": (m["chi2_token"] + 1.0) * n / (n + EPS) - 1.0,
        "chi2_seq": (m["chi2_seq"] + 1.0) * share + rest - 1.0,
    }
    if "tis_cap" in caps:
        ours["rollout_is_mean"] = m["tis_weight_mean"] * n / (n + EPS)
        ours["rollout_is_ratio_fraction_high"] = m["tis_frac_capped"] * n / (n + EPS)
    if "mask_low" in caps:
        ours["rollout_is_mean"] = m["masked_weight_mean"] * n / (n + EPS)
        ours["rollout_is_oob_ratio"] = m["masked_frac"] * n / (n + EPS)
    for name, value in ours.items():
        # verl's epsilons in the means over rows are relative to their lengths, of which one is 1.
        slack = 2.0 * EPS if name in ("log_ppl_diff", "ppl_ratio") else 0.0
        scale = 1.0 if "chi2" in name else 0.0
        want = row["outputs"][PREFIX + name]
        close(value, want, name, rel=tolerance(row, PREFIX + name), scale=scale, slack=slack)


def test_some_rows_are_covered() -> None:
    from goldens.conftest import HERE
    from goldens.rows import read

    assert sum(covers(row) for row in read(HERE)) == pytest.approx(134)
