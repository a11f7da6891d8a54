"""Partials merged are one run: the same bytes, however the files were divided among the runs."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import partial_files
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ppocli

SAME = ("metrics", "nulls", "groups", "findings", "worst", "places", "drift", "like", "settings", "inputs")

LOSSES: dict[str, dict[str, Any]] = {
    "ppo": {"worst": 3, "value_clip": None},
    "dual clip": {"worst": 2, "dual_clip": 3.0, "agg": "seq-mean-token-sum-norm"},
    "groups": {"agg": "group-mean", "clip_eps": 0.1},
    "like": {"like": "verl", "worst": 1},
    "corrected": {"rollout_is": "token", "rollout_is_cap": 2.0, "worst": 2},
    "dropped": {"rollout_rs": ("token_k1:0.97_1.03",), "rollout_rs_mode": "drop"},
}


def answer(report: Any) -> str:
    """All that one run over all the files would say, as text; its run apart."""
    document = report.to_dict()
    return json.dumps({key: document.get(key) for key in SAME}, sort_keys=True)


def merged(folder: Path, parts: list[list[Path]], **options: Any) -> Any:
    """Make a document of each part, and merge them."""
    documents = []
    for k, paths in enumerate(parts):
        documents.append(folder / f"{k}.json")
        text = json.dumps(ppocli.partials(paths, **options), allow_nan=False)
        documents[-1].write_text(text, encoding="utf-8")
    return ppocli.merge(documents)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Files of every layout; some without sequences, groups or rows."""
    folder = tmp_path_factory.mktemp("files")
    kinds = ("list", "text", "flat", "padded", "text", "plain", "list", "flat")
    rows = (120, 90, 150, 40, 70, 30, 1, 0)
    return [
        partial_files.write(kind, folder / f"{k}.parquet", k + 1, n, dirty=k in (1, 3))
        for k, (kind, n) in enumerate(zip(kinds, rows, strict=True))
    ]


@pytest.mark.parametrize("name", ["ppo", "like", "corrected"])
@given(data=st.data())
@settings(max_examples=6)
def test_any_split_in_any_order_is_one_run(
    name: str, files: list[Path], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(files))))
    chosen = [files[k] for k in order[: data.draw(st.integers(1, len(files)))]]
    if name == "corrected":  # the correction needs its column and says so of a file without it
        chosen = [path for path in chosen if path.suffix == ".parquet"] or [files[0]]
    cuts = sorted(data.draw(st.sets(st.integers(1, len(chosen)), max_size=3)) | {0, len(chosen)})
    parts = [chosen[a:b] for a, b in itertools.pairwise(cuts)]
    options = LOSSES[name]
    one = ppocli.evaluate(chosen, allow_empty=True, **options)
    assert answer(merged(tmp_path_factory.mktemp("parts"), parts, **options)) == answer(one)


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss(name: str, files: list[Path], tmp_path: Path) -> None:
    options = LOSSES[name]
    chosen = [files[0], files[2], files[6]] if name in ("groups", "dropped") else files
    one = ppocli.evaluate(chosen, **options)
    assert one.metrics["n_tokens"] > 3000
    parts = [chosen[:1], chosen[1:2], chosen[2:]]
    assert answer(merged(tmp_path, parts, **options)) == answer(one)


def test_sequence_objectives(files: list[Path], tmp_path: Path) -> None:
    chosen = [files[0], files[1], files[2]]
    for objective in ("gspo", "vespo", "cispo"):
        options = {"objective": objective, "worst": 2}
        one = ppocli.evaluate(chosen, **options)
        assert answer(merged(tmp_path, [chosen[:2], chosen[2:]], **options)) == answer(one)


def test_ids_that_stand_in_several_documents_are_repeated_ids(files: list[Path], tmp_path: Path) -> None:
    texts = [files[1], files[4]]
    report = merged(tmp_path, [[one] for one in texts])
    (found,) = [one for one in report.findings if one.code == "PPO405"]
    # s-0 and s-1 where both files have a token of them.
    counts = [np.random.default_rng(seed).integers(0, 40, n)[:2] > 0 for seed, n in ((2, 90), (5, 70))]
    assert found.count == int((counts[0] & counts[1]).sum())
    assert report.metrics["n_groups"] <= 15  # 3 steps of 5 groups, the same texts in both files
