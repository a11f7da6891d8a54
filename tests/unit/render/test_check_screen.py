"""The screen of a gate, and its checks as lines for programs."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import checked
import pytest
import reports

from ppocli.core.limits import Limit
from ppocli.render.check_formats import CHECK_FORMATS, check_text
from ppocli.render.check_screen import MOST_FAILED, MOST_PASSED, verdict
from ppocli.render.console import Look


def screen(name: str, width: int | None = None) -> str:
    return check_text(checked.BY_NAME[name](), "table", Look(width=width))


def rows(text: str) -> list[str]:
    """The lines of the table of checks, blanks run together."""
    lines = text.splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith(("check ", "file ")))
    end = next(k for k, line in enumerate(lines[start:], start) if not line)
    return [" ".join(line.split()) for line in lines[start + 2 : end]]


def test_failures_come_first_with_their_reason_and_source() -> None:
    text = screen("mixed")
    first = rows(text)
    assert first[0] == "clip_frac <= 0.1 0.1234 FAIL 0.1234 is more than 0.1"
    assert first[1] == "entropy_mean >= 0.5 null FAIL no column for entropy"
    assert first[2].startswith("PPO101 2 FAIL ")
    assert first[3] == "drift.diff_abs_mean <= 0.1 null skip no column for rollout_log_probs (profile slime)"
    assert "approx_kl_k3 <= 0.00412306 0.00412306 ok" in first
    assert text.endswith("\nFAIL  3 of 6 checks failed, 3 skipped\n")
    assert "warning PPO102" in text


def test_files_have_a_column() -> None:
    got = rows(screen("files"))
    assert got[0].startswith(
        "b.parquet policy_loss <= 0.125 null FAIL nan, not a number: 1 NaN in advantages"
    )
    assert got[1] == "--> b.parquet, row 0"
    assert [row.split()[0] for row in got[2:]] == ["c.parquet", "a.parquet", "total"]
    assert got[2] == "c.parquet policy_loss <= 0.125 0.25 FAIL 0.25 is more than 0.125"


def test_many_passed_checks_are_counted() -> None:
    limits = [Limit("clip_frac", "max", 1.0 + k) for k in range(MOST_PASSED + 7)]
    text = check_text(checked.judged(None, *limits), "table", Look())
    assert rows(text)[-1] == "8 more ok -f json lists all"
    assert len(rows(text)) == MOST_PASSED + 1
    assert text.endswith(f"\nok  {MOST_PASSED + 8} checks passed\n")


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (checked.judged(None, Limit("clip_frac", "max", 1.0)), "ok  2 checks passed"),
        (checked.judged(None, Limit("clip_frac", "max", 0.0)), "FAIL  1 of 2 checks failed"),
        (
            checked.judged(None, Limit("clip_frac", "max", 0.0), exit_zero=True),
            "FAIL  1 of 2 checks failed (exit code 0: --exit-zero)",
        ),
        (
            checked.judged(reports.empty(), Limit("clip_frac", "max", 0.0)),
            "FAIL  1 check had nothing to judge",
        ),
    ],
)
def test_the_verdict(report: object, said: str) -> None:
    assert verdict(report) == said  # type: ignore[arg-type]


def test_notes_of_the_gate_stand_in_the_header() -> None:
    from ppocli.core.gate import Gate
    from ppocli.engine.check import judge

    text = check_text(judge(reports.report().to_dict(), Gate()), "table", Look())
    assert "note: no limit is given: only findings are judged\n" in text


@pytest.mark.parametrize("name", checked.BY_NAME)
@pytest.mark.parametrize("form", CHECK_FORMATS)
def test_every_format_ends_with_a_newline_and_has_no_escape(form: str, name: str) -> None:
    text = check_text(checked.BY_NAME[name](), form, Look())
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert "\x1b" not in text


def test_colour_comes_with_a_word() -> None:
    text = check_text(checked.mixed(), "table", Look(color=True))
    assert "\x1b[1;31mFAIL" in text


def test_narrow_screens_keep_every_number() -> None:
    wide = screen("mixed")
    narrow = screen("mixed", 60)
    assert all(word in narrow for row in rows(wide) for word in row.split() if any(c.isdigit() for c in word))


def test_lines_of_json() -> None:
    report = checked.mixed()
    lines = [json.loads(line) for line in check_text(report, "jsonl", Look()).splitlines()]
    assert [one["kind"] for one in lines] == ["check"] * len(report.checks) + ["total"]
    document = report.to_dict()
    restored = [{**{k: v for k, v in one.items() if k not in ("schema_version", "check_kind")},
                 "kind": one["check_kind"]} for one in lines[:-1]]  # fmt: skip
    assert restored == document["checks"]
    assert lines[-1]["metrics"] == document["metrics"]
    assert "checks" not in lines[-1]


@pytest.mark.parametrize(("form", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_delimited(form: str, delimiter: str) -> None:
    report = checked.files()
    table = list(csv.DictReader(io.StringIO(check_text(report, form, Look())), delimiter=delimiter))
    assert [one["file"] for one in table] == ["a.parquet", "b.parquet", "c.parquet", ""]
    assert [one["status"] for one in table] == ["pass", "fail", "fail", "pass"]
    assert [one["value"] for one in table] == ["0.0", "", "0.25", "0"]
    assert {one["limit"] for one in table} == {"0.125", ""}


def test_by_step_the_first_that_breaks_each_limit_comes_before_the_checks() -> None:
    lines = [" ".join(line.split()) for line in screen("steps").splitlines()]
    start = lines.index("limit first step that breaks it value broken in")
    assert lines[start + 2] == "policy_loss <= 0.5 10 null 3 of 5"
    assert lines.index("step check value status note") > start


def test_failed_checks_of_thousands_of_groups_are_counted() -> None:
    one = reports.steps().groups[3]
    made = reports.report(groups=tuple(replace(one, key={"step": k}) for k in range(3000)))
    text = check_text(checked.judged(made, Limit("policy_loss", "max", 0.5), by="step"), "table", Look())
    assert f"{3000 - MOST_FAILED:,} more" in text
    assert sum("FAIL" in line for line in text.splitlines()) == MOST_FAILED + 2
    assert text.endswith("\nFAIL  3,000 of 3,001 checks failed\n")
