"""`evaluate` as a function of the process: called from threads, after an exception, in a forked child."""

from __future__ import annotations

import json
import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ppocli
from ppocli.core.progress import NoProgress
from ppocli.errors import UsageProblem


def batch(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    old = -rng.random(20_000)
    new = old + rng.normal(0.0, 0.3, 20_000)
    return {"log_probs": new, "old_log_probs": old, "advantages": rng.normal(0.0, 1.0, 20_000)}


def answer(arrays: dict[str, Any], **settings: Any) -> str:
    document = ppocli.evaluate(**arrays, **settings).to_dict()
    document.pop("run")
    return json.dumps(document, sort_keys=True)


def test_from_several_threads_at_once() -> None:
    arrays = [batch(0), batch(1)]
    settings: list[dict[str, Any]] = [{"worst": 3}, {"adv_norm": "batch", "dual_clip": 3.0}]
    alone = [answer(a, **s) for a, s in zip(arrays, settings, strict=True)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda k: answer(arrays[k % 2], **settings[k % 2]), range(12)))
    assert together == alone * 6


def test_after_an_exception_in_the_middle_of_a_run() -> None:
    class Broken(NoProgress):
        def advance(self, *_: Any) -> None:
            raise RuntimeError("the bar broke")

    arrays = batch(0)
    before = answer(arrays)
    with pytest.raises(RuntimeError, match="the bar broke"):
        ppocli.evaluate(**arrays, progress=Broken())
    assert answer(arrays) == before


# Python 3.12 and later warn of any fork beside threads, of which this process has those of the kernels.
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_in_a_forked_child() -> None:
    arrays = batch(0)
    here = answer(arrays)
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sender.send(answer(arrays)))
    child.start()
    assert receiver.poll(60)
    assert receiver.recv() == here
    child.join(10)
    assert child.exitcode == 0


def test_the_arrays_are_not_changed() -> None:
    arrays = batch(0)
    copies = {role: values.copy() for role, values in arrays.items()}
    ppocli.evaluate(**arrays, adv_norm="batch", log_ratio_clamp=0.1)
    for role, values in arrays.items():
        np.testing.assert_array_equal(values, copies[role])


def test_arrays_of_any_memory_order_and_width() -> None:
    arrays = {role: np.round(values * 8.0) / 8.0 for role, values in batch(0).items()}
    plain = answer(arrays)
    assert answer({role: np.repeat(values, 2)[::2] for role, values in arrays.items()}) == plain
    assert answer({role: values[::-1].copy()[::-1] for role, values in arrays.items()}) == plain
    swapped = ppocli.evaluate(**{role: values.astype(">f8") for role, values in arrays.items()})
    half = ppocli.evaluate(**{role: values.astype(np.float16) for role, values in arrays.items()})
    assert swapped.metrics == half.metrics == ppocli.evaluate(**arrays).metrics


def test_a_generator_of_paths_is_a_list_of_them(tmp_path: Path) -> None:
    for name in "ab":
        np.savez(tmp_path / f"{name}.npz", **batch(0))
    names = [str(tmp_path / f"{name}.npz") for name in "ab"]
    assert ppocli.evaluate(name for name in names).metrics == ppocli.evaluate(names).metrics


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clip_epss": 0.2}, "clip_eps"),
        ({"clip_eps": float("nan")}, "clip-low"),
        ({"dual_clip": 1.0}, "dual-clip"),
        ({"agg": "mean"}, "agg"),
        ({"vf_coef": float("inf")}, "vf-coef"),
    ],
)
def test_settings_out_of_range_are_usage_errors(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageProblem, match=message):
        ppocli.evaluate(**batch(0), **settings)


def test_clip_eps_sets_both_ends_unless_one_is_given() -> None:
    arrays = {"log_probs": [-0.9, -1.1], "old_log_probs": [-1.0, -1.0], "advantages": [1.0, 1.0]}
    # The ratios are 1.105 and 0.905.
    shares = {}
    for name, settings in {
        "both": {"clip_eps": 0.05},
        "low": {"clip_eps": 0.05, "clip_high": 0.2},
        "high": {"clip_eps": 0.05, "clip_low": 0.2},
        "default": {},
    }.items():
        metrics = ppocli.evaluate(**arrays, **settings).metrics
        shares[name] = (metrics["clip_frac_low"], metrics["clip_frac_high"])
    assert shares == {"both": (0.5, 0.5), "low": (0.5, 0.0), "high": (0.0, 0.5), "default": (0.0, 0.0)}
