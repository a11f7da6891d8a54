"""The worst tokens. Advantages are 1 unless said, so that a loss is -min(ratio, 1.2)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ppocli
from ppocli.core.report import Place
from ppocli.engine.sequences import SequenceStage
from ppocli.render.json import to_json

if TYPE_CHECKING:
    from ppocli.core.report import WorstToken
    from ppocli.engine.span import Span


def found(log_ratios: list[float], n: int, adv: list[float] | None = None, **more: Any) -> list[WorstToken]:
    old = np.full(len(log_ratios), -1.0)
    advantages = np.ones(len(log_ratios)) if adv is None else np.array(adv)
    arrays = {"log_probs": old + np.array(log_ratios), "old_log_probs": old, "advantages": advantages}
    return list(ppocli.evaluate(**arrays, worst=n, **more).worst)


def by(tokens: list[WorstToken], name: str) -> list[int]:
    return [token.where.row for token in tokens if token.by == name]


def test_by_log_ratio_and_by_loss() -> None:
    tokens = found([0.0, 0.5, -2.0, 0.25], 2, adv=[3.0, 1.0, -1.0, -2.0])
    assert by(tokens, "log_ratio") == [2, 1]
    # Losses: -3, -1.2 (clipped), 0.8 (clipped), 2 e^0.25 = 2.57
    assert by(tokens, "loss") == [0, 3]
    assert [token.loss for token in tokens if token.by == "loss"] == pytest.approx([-3, 2 * math.exp(0.25)])


def test_ties_go_to_the_earlier_token() -> None:
    log_ratios = [0.0] * 5000
    for row in (4999, 2048, 2047, 256, 255):
        log_ratios[row] = 0.5 if row % 2 else -0.5
    tokens = found(log_ratios, 4, chunk_rows=1000)
    assert by(tokens, "log_ratio") == [255, 256, 2047, 2048]
    # The loss of 255, 2047 and 4999 is -1.2; then come the tokens on policy, -1, in order.
    assert by(tokens, "loss") == [255, 2047, 4999, 0]


def test_ties_go_to_the_earlier_file(tmp_path: Path) -> None:
    paths = []
    for name in ("b.parquet", "a.parquet"):
        paths.append(tmp_path / name)
        table = {"log_probs": [-1.0, -0.5], "old_log_probs": [-1.0, -1.0], "advantages": [1.0, 1.0]}
        pq.write_table(pa.table(table), paths[-1])
    tokens = ppocli.evaluate(paths, worst=3).worst[:3]
    assert [(Path(token.where.path).name, token.where.row) for token in tokens] == [
        ("b.parquet", 1),
        ("a.parquet", 1),
        ("b.parquet", 0),
    ]


def test_no_more_than_there_are() -> None:
    tokens = found([0.1, 0.2], 10)
    assert by(tokens, "log_ratio") == [1, 0]
    assert by(tokens, "loss") == [1, 0]
    assert found([0.1, 0.2], 0) == []


def test_masked_tokens_and_those_without_a_value_are_left_out() -> None:
    nan, inf = math.nan, math.inf
    tokens = found([5.0, nan, inf, 0.1, 0.2], 5, adv=[1.0, 1.0, 1.0, nan, 1.0], mask=[0, 1, 1, 1, 1])
    assert by(tokens, "log_ratio") == [4, 3]
    assert by(tokens, "loss") == [4]
    assert [token.advantage for token in tokens] == [1.0, None, 1.0]
    assert tokens[1].loss is None
    assert tokens[1].branch == "unknown"


def test_a_ratio_that_overflows_is_listed_without_a_number() -> None:
    tokens = found([800.0, 0.0, 800.0], 3, adv=[1.0, 1.0, -1.0])
    assert by(tokens, "log_ratio") == [0, 2, 1]
    assert by(tokens, "loss") == [2, 0, 1]  # infinite, 1.2, 1
    assert (tokens[0].ratio, tokens[0].loss) == (None, -1.2)
    assert tokens[3].loss is None


@pytest.mark.parametrize(
    ("log_ratio", "adv", "settings", "branch"),
    [
        (0.1, 1.0, {}, "unclipped"),
        (0.5, 1.0, {}, "clipped high"),
        (0.5, -1.0, {}, "unclipped"),
        (-0.5, 1.0, {}, "unclipped"),
        (-0.5, -1.0, {}, "clipped low"),
        (0.5, 0.0, {}, "zero advantage"),
        (2.0, -1.0, {"dual_clip": 3.0}, "dual clip"),  # e^2 = 7.39
        (1.0, -1.0, {"dual_clip": 3.0}, "unclipped"),  # e = 2.72
        (2.0, -1.0, {"delta": 4.0}, "delta"),
        (2.0, -1.0, {"delta": 4.0, "dual_clip": 3.0}, "dual clip"),
        (2.0, -1.0, {"dual_clip": 3.0, "log_ratio_clamp": 1.0}, "unclipped"),
    ],
)
def test_branches(log_ratio: float, adv: float, settings: dict[str, float], branch: str) -> None:
    (token, _) = found([log_ratio], 1, adv=[adv], **settings)
    assert token.branch == branch
    assert token.log_ratio == pytest.approx(log_ratio)


def test_normalised_advantages_decide_the_loss_and_stored_ones_are_shown() -> None:
    # Mean 5, deviation 4: the losses are 1, -1; the second token is masked.
    tokens = found(
        [0.0, 0.0, 0.0], 1, adv=[1.0, 77.0, 9.0], adv_norm="batch", adv_norm_eps=0.0, mask=[1, 0, 1]
    )
    assert [(token.by, token.where.row, token.advantage, token.loss) for token in tokens] == [
        ("log_ratio", 0, 1.0, 1.0),
        ("loss", 0, 1.0, 1.0),
    ]


def test_finite_log_probs_whose_difference_overflows_are_the_worst() -> None:
    new, old = np.full(5000, -1.0), np.full(5000, -1.0)
    new[[3, 2500, 4000]], old[[3, 2500, 4000]] = [-5.0, 1e308, -1e308], [-1.0, -1e308, 1e308]
    new[9] = math.nan
    adv = np.where(np.arange(5000) == 4000, -3.0, 1.0)
    report = ppocli.evaluate(log_probs=new, old_log_probs=old, advantages=adv, worst=3)
    first, second, third = report.worst[:3]
    assert (first.where.row, second.where.row, third.where.row) == (2500, 4000, 3)
    assert (first.log_ratio, first.ratio, first.loss, first.branch) == (None, None, -1.2, "clipped high")
    assert (second.log_ratio, second.ratio, second.branch) == (None, 0.0, "clipped low")
    assert second.loss == pytest.approx(2.4)
    assert by(list(report.worst), "loss") == [4000, 2500, 0]
    document = to_json(report.to_dict())
    assert json.loads(document)["worst"][0]["log_ratio"] is None


def test_places_are_looked_for_only_for_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    position = SequenceStage.position

    def counted(self: SequenceStage, span: Span, token: int) -> int | None:
        calls.append(token)
        return position(self, span, token)

    monkeypatch.setattr(SequenceStage, "position", counted)
    n = 20_000
    log_ratios = (np.arange(n) / n).tolist()  # every token is the worst so far
    ids = np.arange(n) // 7
    tokens = found(log_ratios, 5, sequence_id=ids)
    assert by(tokens, "log_ratio") == list(range(n - 1, n - 6, -1))
    assert [token.where.position for token in tokens[:5]] == [row % 7 for row in range(n - 1, n - 6, -1)]
    # Nine blocks in one span, the rest in another: five tokens by each measure and four extremes at most.
    assert len(calls) <= 2 * (5 + 5 + 4)
    again = found(log_ratios, 5, sequence_id=ids, chunk_rows=4096)
    assert again == tokens


def test_a_placeholder_is_placed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    position = SequenceStage.position

    def counted(self: SequenceStage, span: Span, token: int) -> int | None:
        calls.append(token)
        return position(self, span, token)

    monkeypatch.setattr(SequenceStage, "position", counted)
    n = 40_000
    new = np.full(n, -1.0)
    new[100::2048] = -9999.0
    ids = np.arange(n) // 7
    report = ppocli.evaluate(
        log_probs=new, old_log_probs=np.full(n, -1.0), advantages=np.ones(n), sequence_id=ids
    )
    (one,) = (one for one in report.findings if one.code == "PPO402")
    assert (one.count, one.where) == (20, Place("<arrays>", 100, 100 % 7))
    assert len(calls) <= 5
