from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import reports

from ppocli.cli.eval import in_order
from ppocli.core.report import Skipped


@pytest.mark.parametrize("name", ["table", "json", "jsonl", "csv", "tsv", "md"])
def test_every_format_ends_with_a_newline_and_says_nothing_else(run: Any, name: str) -> None:
    code, out, err = run("eval", "x", "-f", name)
    assert (code, err) == (0, "")
    assert out.endswith("\n")
    assert not out.endswith("\n\n")


def test_table_is_the_default(run: Any) -> None:
    assert run("eval", "x")[1] == run("eval", "x", "-f", "table")[1]
    assert run("eval", "x")[1].startswith("rollouts.parquet  3 rows, 7 tokens")


def test_digits_change_tables_and_never_data(run: Any) -> None:
    assert "-0.012 " in run("eval", "x", "--digits", "2")[1]
    assert (
        json.loads(run("eval", "x", "--digits", "2", "-f", "json")[1])["metrics"]["policy_loss"] == -0.0124817
    )
    assert "-0.0124817" in run("eval", "x", "--digits", "2", "-f", "csv")[1]


def test_color_always_and_never(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" in run("eval", "x", "--color", "always")[1]
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in run("eval", "x")[1]
    assert "\x1b" not in run("eval", "x", "--color", "never")[1]
    assert "\x1b" not in run("eval", "x", "-f", "json", "--color", "always")[1]


def test_nothing_valid_prints_the_document_and_one_line(engine: Any, run: Any) -> None:
    engine.answer = reports.empty()
    code, out, err = run("eval", "none.parquet", "masked.npz", "-f", "json")
    assert code == 5
    assert json.loads(out)["exit_code"] == 5
    line = "no valid token in 'none.parquet' (no rows), 'masked.npz' (9 masked)\n"
    assert err == f"error: {line}"
    assert run("eval", "none.parquet", "-q")[::2] == (5, f"error: {line}")
    engine.answer = reports.empty().with_exit_code(0)
    assert run("eval", "none.parquet", "--allow-empty")[::2] == (0, f"warning: {line}")
    assert run("eval", "none.parquet", "--allow-empty", "-q")[::2] == (0, "")


def test_many_empty_files_are_counted(engine: Any, run: Any) -> None:
    inputs = tuple(reports.one_input(f"{k}\n.npz", rows=0, tokens=0, masked=0) for k in range(5))
    engine.answer = replace(reports.empty(), inputs=inputs)
    err = run("eval", "x")[2]
    assert err == (
        "error: no valid token in '0\\x0a.npz' (no rows), '1\\x0a.npz' (no rows), '2\\x0a.npz' (no rows) "
        "and 2 more files\n"
    )


def test_quiet_and_very_quiet(engine: Any, run: Any) -> None:
    engine.answer = reports.report(skipped=(Skipped("a", "cut"), Skipped("b", "cut")))
    assert run("eval", "x", "--skip-bad")[2] == "warning: 2 files skipped; the first: a: cut\n"
    assert run("eval", "x")[2] == ""
    code, out, err = run("eval", "x", "--skip-bad", "-q")
    assert (code, err) == (0, "")
    assert out
    assert run("eval", "x", "--skip-bad", "-qq") == (0, "", "")


def test_verbose_says_how_the_run_went(run: Any) -> None:
    assert run("eval", "x", "-v")[2] == "run: threads 2, seconds 0.25\n"


def test_what_the_engine_has_to_say_is_said_unless_quiet(engine: Any, run: Any) -> None:
    engine.notices = ("warning: 512 threads asked for, 64 used",)
    engine.answer = reports.report(run={"threads": 64})
    assert run("eval", "x")[2] == "warning: 512 threads asked for, 64 used\n"
    assert run("eval", "x", "-q")[2] == ""
    assert run("eval", "x", "-v")[2].splitlines()[1:] == ["run: threads 64"]


def test_an_empty_file_beside_a_good_one_is_named_in_the_document(engine: Any, run: Any) -> None:
    inputs = (reports.one_input("none.parquet", rows=0, tokens=0), reports.one_input("good.parquet"))
    engine.answer = reports.report(inputs=inputs)
    code, out, err = run("eval", "x", "-f", "json")
    assert (code, err) == (0, "")
    assert [one["path"] for one in json.loads(out)["inputs"]] == ["none.parquet", "good.parquet"]


@pytest.mark.parametrize(
    ("metric", "order"),
    [
        ("policy_loss", ["b.parquet", "c.parquet", "a.parquet"]),
        ("n_tokens", ["c.parquet", "b.parquet", "a.parquet"]),
        ("ess_frac", ["a.parquet", "b.parquet", "c.parquet"]),
        ("clip_frac", ["a.parquet", "b.parquet", "c.parquet"]),
        (None, ["a.parquet", "b.parquet", "c.parquet"]),
    ],
)
def test_worst_file_first(metric: str | None, order: list[str]) -> None:
    made = in_order(reports.several(), metric)
    assert [one.key["file"] for one in made.groups] == order


def test_sort_orders_every_format(engine: Any, run: Any) -> None:
    engine.answer = reports.several()
    for name in ("table", "json", "jsonl", "csv", "md"):
        out = run("eval", "x", "--sort", "n_tokens", "-f", name)[1]
        assert out.index("1048578" if name != "table" and name != "md" else "1,048,578") < out.index(
            "1048577" if name != "table" and name != "md" else "1,048,577"
        )


def test_the_bar_is_taken_away_when_the_run_fails(
    engine: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = []

    class Bar:
        def finish(self) -> None:
            ended.append(True)

    monkeypatch.setattr("ppocli.cli.eval.progress_for", lambda *_, **__: Bar())
    engine.answer = KeyboardInterrupt()
    assert run("eval", "x")[0] == 130
    assert ended == [True]
    assert isinstance(engine.calls[0]["progress"], Bar)
