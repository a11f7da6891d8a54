"""prime-rl 0.8.0: its metrics are one number per sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goldens.presets.asked import Asked, Mapping, inputs

import ppocli

if TYPE_CHECKING:
    from goldens.rows import Arrays, Row

COLUMNS = ("log_probs", "old_log_probs", "advantages", "mask")


def compute_loss(row: Row, arrays: Arrays) -> Asked:
    """The loss over all sequences, the metrics of each one alone."""
    settings = row["settings"]
    columns = {**arrays, "advantages": settings["adv_tau"] * arrays["advantages"]}
    ipo = settings["loss"] == "ipo"
    asked = Asked("prime-rl:ipo" if ipo else "prime-rl", inputs(columns, *COLUMNS))
    asked.settings = {"log_ratio_penalty": settings["kl_tau"], "denominator": settings["rl_scale"]}
    if ipo:
        asked.settings["clip_eps"] = settings["ipo_threshold"]
    else:
        asked.settings["clip_low"] = settings["dppo_mask_low"]
        asked.settings["clip_high"] = settings["dppo_mask_high"]
    asked.names["mismatch_kl_token_mean"] = "mismatch_kl/all/mean"
    lists = [name for name, want in row["outputs"].items() if isinstance(want, list)]
    asked.values = {name: [] for name in lists}
    for i in range(arrays["mask"].shape[0]):
        one = inputs({role: columns[role][i : i + 1] for role in COLUMNS}, *COLUMNS)
        like = ppocli.evaluate(**one, like=asked.like, allow_empty=True, **asked.settings).like
        assert like is not None
        for name in lists:
            value = like.metrics[f"{name}/mean"] if arrays["mask"][i].any() else 0.0
            assert value == like.metrics[f"{name}/max"] or not arrays["mask"][i].any()
            asked.values[name].append(value)
    return asked


MAPPINGS: dict[str, Mapping] = {"prime_rl.trainer.rl.loss.compute_loss": compute_loss}
