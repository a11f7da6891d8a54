"""`--export FILE.html` and `-f html` of every command that reports, on the sample files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from contract.command import ppocli
from pages import parsed

SAMPLES = Path(__file__).resolve().parents[2] / "sample_data"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["eval", "overflow.npz", "heavy_clipping.parquet", "--worst", "3"], 0),
        (["eval", "trainer_and_rollout.parquet", "--like", "verl", "--audit"], 0),
        (["eval", "healthy.parquet", "--objective", "gspo"], 0),
        (["check", "heavy_clipping.parquet", "--max", "clip_frac=0.1"], 1),
        (["audit", "healthy.parquet"], 0),
        (["drift", "trainer_and_rollout.parquet"], 0),
        (["parity", "healthy.parquet"], 0),
        (["inspect", "healthy.parquet"], 0),
        (["eval", "healthy.parquet", "--by", "group_id"], 0),
        (["check", "healthy.parquet", "--by", "group_id", "--max", "clip_frac=0.1"], 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_page_beside_the_document(tmp_path: Path, arguments: list[str], code: int) -> None:
    files = [str(SAMPLES / one) if (SAMPLES / one).is_file() else one for one in arguments]
    page, document = tmp_path / "report.html", tmp_path / "report.json"
    done = ppocli(*files, "--export", str(page), "--export", str(document), "-qq", engine=False)
    assert (done.returncode, done.stderr) == (code, b"")
    root, saved = parsed(page.read_text(encoding="utf-8")), json.loads(document.read_bytes())
    assert root.all("h1")[0].text() == ("2 files" if "overflow.npz" in arguments else files[1])
    assert len(root.all("section")) > 0
    text = root.text()
    for name, value in saved.get("metrics", {}).items():
        assert name in text
        assert isinstance(value, dict) or json.dumps(value) in text
    for one in saved.get("findings", ()):
        assert one["message"] in text
        assert one["advice"] in text
    for one in saved.get("frameworks", ()):
        for cell in one["metrics"].values():
            assert cell["definition"] in text
    groups = saved.get("groups", ())
    if "--by" in arguments:
        assert len(groups) == 16
        losses = [one["metrics"]["policy_loss"] for one in groups]
        dots = root.by_id("series-policy_loss").all("circle", "dot")
        assert len(dots) == sum(one is not None for one in losses)
        body = [row.all("td") for row in root.by_id("groups").all("table")[0].all("tr")[1:]]
        assert [row[0].text() for row in body] == [str(one["key"]["group_id"]) for one in groups]
    histograms: dict[str, Any] = saved.get("histograms", {})
    assert len(root.by_id("ratios").all("rect", "bar") if histograms else []) == len(
        histograms.get("log_ratio", ())
    )


def test_a_saved_report_gives_a_page_too(tmp_path: Path) -> None:
    saved, page = tmp_path / "report.json", tmp_path / "gate.html"
    data = str(SAMPLES / "heavy_clipping.parquet")
    assert ppocli("eval", data, "--export", str(saved), "-qq", engine=False).returncode == 0
    asked = ["check", "--max", "clip_frac=0.1", "-qq", "--export"]
    assert ppocli(asked[0], str(saved), *asked[1:], str(page), engine=False).returncode == 1
    again = tmp_path / "again.html"
    assert ppocli(asked[0], data, *asked[1:], str(again), engine=False).returncode == 1
    ours, direct = (parsed(one.read_text(encoding="utf-8")) for one in (page, again))
    for name in ("checks", "distribution", "metrics", "verdict"):
        assert ours.by_id(name).text() == direct.by_id(name).text()


def test_a_page_on_standard_output() -> None:
    done = ppocli("eval", "full", "-f", "html", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    parsed(done.stdout.decode("ascii"))


def test_convert_has_no_page(tmp_path: Path) -> None:
    done = ppocli(
        "convert", str(SAMPLES / "padded.npz"), "-o", str(tmp_path / "x.parquet"), "-f", "html", engine=False
    )
    assert done.returncode == 2
