"""A small policy trained with Stable-Baselines3 and recorded with RolloutWriter: our numbers are SB3's own.

The files and how they came about: `sb3/record.py`. SB3 computes in float32, hence the tolerance.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import ppocli

HERE = Path(__file__).parent / "sb3"
LOGGED = json.loads((HERE / "logged.json").read_text())


def evaluate(number: int) -> dict[str, float]:
    settings = LOGGED["settings"]
    report = ppocli.evaluate(
        HERE / f"minibatch_{number}.parquet",
        clip_eps=settings["clip_range"],
        adv_norm="batch",
        adv_norm_ddof=1,
        adv_norm_eps=1e-8,
        vf_coef=settings["vf_coef"],
        ent_coef=settings["ent_coef"],
    )
    return report.metrics


FIRST, LAST = evaluate(0), evaluate(1)


def mean(name: str) -> float:
    return (FIRST[name] + LAST[name]) / 2


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("policy_gradient_loss", mean("policy_loss")),  # means over all minibatches of all epochs
        ("value_loss", mean("value_loss")),
        ("entropy_loss", -mean("entropy_mean")),
        ("clip_fraction", mean("clip_frac")),
        ("approx_kl", LAST["approx_kl_k3"]),  # of the last epoch
        ("loss", LAST["total_loss"]),  # of the last minibatch
        ("explained_variance", LAST["explained_variance_old"]),  # of the values at rollout time
    ],
)
def test_what_sb3_logged(name: str, ours: float) -> None:
    assert LOGGED["versions"]["stable-baselines3"] == "2.9.2"
    assert ours == pytest.approx(LOGGED["logged"][f"train/{name}"], rel=2e-5, abs=2e-7)


def test_the_policy_had_moved() -> None:
    assert FIRST["ratio_max"] == pytest.approx(1.0, abs=1e-6)
    assert LAST["clip_frac"] > 0.01
    assert LAST["approx_kl_k3"] > 1e-4


def test_the_recorded_files_say_where_they_come_from() -> None:
    said = json.loads(pq.read_schema(HERE / "minibatch_1.parquet").metadata[b"ppocli"])
    assert said["metadata"] == {"torch": LOGGED["versions"]["torch"]}
    assert said["layout"] == "flat"
    assert {one["origin"] for one in said["roles"].values()} == {"float32"}
