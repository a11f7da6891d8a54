"""Damaged files of every format: an error in words, or the answer of a whole read of the damaged file.

A few hundred files in CI; `pytest tests/fuzz --fuzz 20000` reads so many of each format.
"""

from __future__ import annotations

import json
import math
import random
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from contract.command import ppocli
from fuzz.mutate import mutate
from fuzz.oracle import COMPARED
from fuzz.pool import Worker
from fuzz.seeds import seeds

SEEDS = seeds()
# Imports and kernels take about 200 MB; the files are some kB.
MOST_KILOBYTES = 600_000


@pytest.fixture(scope="module")
def workers() -> Iterator[tuple[Worker, Worker]]:
    both = Worker(), Worker("oracle")
    yield both
    for one in both:
        one.close()


@pytest.mark.parametrize("kind", SEEDS)
def test_damaged_files(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, workers: tuple[Worker, Worker]
) -> None:
    count = request.config.getoption("--fuzz")
    keep = Path(request.config.getoption("--fuzz-keep") or tmp_path)
    keep.mkdir(parents=True, exist_ok=True)
    library, other = workers
    whole = {name: _ask(library, tmp_path, kind, content) for name, content in SEEDS[kind].items()}
    assert all("loss" in one for one in whole.values()), whole
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    for number in range(count):
        rng = random.Random(f"{kind} {number}")
        name = rng.choice(sorted(SEEDS[kind]))
        content = mutate(SEEDS[kind][name], rng)
        if content == SEEDS[kind][name]:
            outcomes["not damaged"] += 1
            continue
        said = _ask(library, tmp_path, kind, content)
        outcome = _judge(said, whole[name], lambda content=content: _ask(other, tmp_path, kind, content))
        outcomes[outcome.partition(":")[0]] += 1
        if "memory grew" in outcome:
            library.close()  # a process never tells less than it once had
        if outcome.startswith(("failure", "death")):
            path = keep / f"{kind}-{number}"
            path.write_bytes(content)
            failures += [f"{path} (from {name}): {outcome}"] if outcome.startswith("failure") else []
    print(f"\n{kind}: {dict(outcomes)}")
    assert not failures, "\n".join(failures[:20])
    assert outcomes["clean error"] > count // 4, outcomes
    assert sum(outcomes.values()) == count


@pytest.mark.parametrize("kind", SEEDS)
def test_damaged_files_through_the_command(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, workers: tuple[Worker, Worker]
) -> None:
    library, other = workers
    whole = {name: _ask(library, tmp_path, kind, content) for name, content in SEEDS[kind].items()}
    assert all("loss" in one for one in whole.values()), whole
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    for number in range(request.config.getoption("--fuzz-command")):
        rng = random.Random(f"command {kind} {number}")
        name = rng.choice(sorted(SEEDS[kind]))
        content = mutate(SEEDS[kind][name], rng)
        path = tmp_path / f"damaged.{kind}"
        path.write_bytes(content)
        done = ppocli("eval" if number % 2 else "inspect", str(path), "-f", "json", engine=False)
        said = _said(done, path)
        if said.get("kind") == "inspect":
            outcome = "described"
        else:
            outcome = _judge(said, whole[name], lambda content=content: _ask(other, tmp_path, kind, content))
        outcomes[outcome.partition(":")[0]] += 1
        failures += [f"{number} (from {name}): {outcome}"] if outcome.startswith("failure") else []
    print(f"\n{kind} through the command: {dict(outcomes)}")
    assert not failures, "\n".join(failures[:20])


def _said(done: subprocess.CompletedProcess[bytes], path: Path) -> dict[str, Any]:
    """What a command printed, as the library would have answered; "crash" where it may not print that."""
    if done.returncode < 0:
        return {"death": done.returncode}
    text = done.stdout + done.stderr
    if done.returncode not in (0, 3, 5) or b"Traceback" in text or b"\x1b" in text:
        return {"crash": repr(done)}
    if done.returncode == 3:
        line = done.stderr.decode()
        named = line.startswith("error: ") and str(path) in line
        return {"evaluate error": [3, line, "damaged."], "kilobytes": 0} if named else {"crash": line}
    try:
        document = json.loads(done.stdout, parse_constant=_no_constant)
    except ValueError as problem:
        return {"crash": f"{problem}: {done.stdout!r}"}
    if document["kind"] == "inspect":
        return {"kind": "inspect"}
    metrics = document["metrics"]
    loss = metrics.get("policy_loss_finite", metrics["policy_loss"])
    return {key: metrics[key] for key in COMPARED} | {"loss": loss, "kilobytes": 0}


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def _ask(worker: Worker, folder: Path, kind: str, content: bytes) -> dict[str, Any]:
    path = folder / f"damaged.{kind}"
    path.write_bytes(content)
    return worker.ask(path, kind)


def _judge(said: dict[str, Any], whole: dict[str, Any], second_opinion: Any) -> str:
    """Sort one answer into: clean error, unchanged, equal, death in pyarrow; or a failure with the reason."""
    if "death" in said:
        other = second_opinion()
        dies = "death" in other
        return f"death in pyarrow: {other}" if dies else f"failure: the process died ({said}); alone: {other}"
    if "hang" in said or "crash" in said:
        return f"failure: {said}"
    if said["kilobytes"] > MOST_KILOBYTES:
        return f"failure: memory grew to {said['kilobytes']:,} kB"
    for name in ("inspect error", "evaluate error"):
        if name in said and (
            said[name][0] not in (3, 5) or not said[name][1] or "damaged." not in said[name][2]
        ):
            return f"failure: {name} without code or place: {said[name]}"
    if "evaluate error" in said:
        return "clean error"
    if {key: said[key] for key in (*COMPARED, "loss")} == {key: whole[key] for key in (*COMPARED, "loss")}:
        return "unchanged"
    other = second_opinion()
    if "loss" not in other:
        return f"failure: read as {said}, and the second opinion is {other}"
    wrong = [key for key in COMPARED if said[key] != other[key]]
    if wrong:
        return f"failure: {wrong} differ: {said} and {other}"
    if not _close(said["loss"], other["loss"], other["scale"]):
        return f"failure: the loss is {said['loss']}, the second opinion {other['loss']}"
    return "equal"


def _close(one: float | None, other: float | None, scale: float | None) -> bool:
    """Whether two losses agree; infinite ones are null here."""
    if other is None or not math.isfinite(other):
        return one is None
    return one is not None and abs(one - other) <= 1e-12 * (scale or 0.0)


WHOLE = dict.fromkeys(COMPARED, 1) | {"loss": 0.5, "kilobytes": 1}
OTHER = WHOLE | {"scale": 1.0}


@pytest.mark.parametrize(
    ("said", "other", "outcome"),
    [
        (WHOLE, None, "unchanged"),
        (WHOLE | {"loss": 0.75}, OTHER | {"loss": 0.75}, "equal"),
        (WHOLE | {"loss": 0.75}, OTHER, "failure: the loss"),
        (WHOLE | {"loss": None}, OTHER, "failure: the loss"),
        (WHOLE | {"loss": None}, OTHER | {"loss": math.inf}, "equal"),
        (WHOLE | {"n_tokens": 2}, OTHER, "failure: ['n_tokens'] differ"),
        (WHOLE | {"loss": 0.75}, {"error": "unreadable"}, "failure: read as"),
        (WHOLE | {"kilobytes": MOST_KILOBYTES + 1}, OTHER, "failure: memory grew"),
        ({"crash": "KeyError", "kilobytes": 1}, None, "failure: {'crash'"),
        ({"hang": 30.0}, None, "failure: {'hang'"),
        ({"death": -11}, {"death": -11}, "death in pyarrow"),
        ({"death": -11}, OTHER, "failure: the process died"),
        ({"evaluate error": [3, "cut", "damaged.npz"], "kilobytes": 1}, None, "clean error"),
        ({"evaluate error": [4, "bug", "damaged.npz"], "kilobytes": 1}, None, "failure: evaluate error"),
        ({"evaluate error": [3, "cut", "None"], "kilobytes": 1}, None, "failure: evaluate error"),
        (WHOLE | {"inspect error": [3, "", "damaged.npz"]}, None, "failure: inspect error"),
    ],
)
def test_the_judge(said: dict[str, Any], other: dict[str, Any] | None, outcome: str) -> None:
    assert _judge(said, WHOLE, lambda: other).startswith(outcome)


def test_a_worker_that_died_is_started_again(tmp_path: Path) -> None:
    worker = Worker("oracle")
    content = SEEDS["npy"]["records"]
    first = _ask(worker, tmp_path, "npy", content)
    assert first["n_tokens"] == 22
    assert worker._process is not None
    worker._process.kill()
    assert _ask(worker, tmp_path, "npy", content) == {"death": -9}
    assert _ask(worker, tmp_path, "npy", content)["loss"] == first["loss"]
    worker.close()
