from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import audited
import checked
import compared
import inspected
import pytest
import reports

from ppocli.core.notebook import summary_lines, table_html
from ppocli.core.report import Finding, Group, NullNote, Place

if TYPE_CHECKING:
    from ppocli.core.shown import Shown

HOSTILE = "\"'><script>alert(1)</script>&lt;\x1b[31m\n"


ELEMENTS = {"div", "p", "b", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "details", "summary"}


class Tree(HTMLParser):
    """The elements, the text of each cell, and whether all that was opened was closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.rows: list[list[str]] = []
        self.data: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.names.add(tag)
        assert not [name for name, _ in attrs if name not in ("scope", "style")]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.data.append(data)
        if self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data

    @property
    def text(self) -> str:
        return "\n".join(self.data)


def lines(report: Shown) -> list[str]:
    return list(summary_lines(report.to_dict()))


def table(report: Shown) -> Tree:
    tree = Tree(table_html(report.to_dict()))
    assert tree.open == []
    return tree


def test_an_evaluation_says_what_it_is_and_its_headline() -> None:
    assert lines(reports.report()) == [
        "ppocli eval: ok  7 tokens, rollouts.parquet",
        "policy_loss -0.0124817  clip_frac 0.1234  clip_frac_active 0.0902  approx_kl_k3 0.00412306",
    ]


def test_findings_follow_and_several_files_and_groups_are_counted() -> None:
    made = replace(reports.several(), findings=(reports.overflow(),))
    assert lines(made)[0] == "ppocli eval: findings  7 tokens, 3 files, 3 groups"
    assert lines(made)[2:] == [
        "warning PPO102 (12): 12 ratios overflow float16, first at rollouts.parquet, row 812,044, "
        "position 3, token 1555"
    ]


def test_a_null_says_what_the_arithmetic_would_have_given() -> None:
    assert "policy_loss null (nan)" in lines(reports.with_nulls())[1]
    assert "ratio_max null (inf)" in lines(reports.with_nulls())[1]


def test_of_many_findings_the_rest_is_counted() -> None:
    found = tuple(Finding(f"PPO10{k}", "warning", k, "said", "advice") for k in range(1, 8))
    made = lines(reports.report(findings=found))
    assert len(made) == 2 + 5 + 1
    assert made[-2:] == ["warning PPO105 (5): said", "and 2 more"]


def test_a_gate_names_what_failed() -> None:
    assert lines(checked.mixed())[0].startswith("ppocli check: failed  7 tokens")
    failed = [line for line in lines(checked.mixed()) if line.startswith("FAIL ")]
    assert failed[0].startswith("FAIL clip_frac <= 0.1: ")
    by_file = [line for line in lines(checked.files()) if line.startswith("FAIL ")]
    assert by_file[0].startswith("FAIL file b.parquet: policy_loss <= 0.125: ")


def test_an_audit_names_its_verdict_and_the_format_it_recommends() -> None:
    assert "verdict: error, store log-probs as float16, compute in float32" in lines(audited.report())


def test_parity_gives_the_ends_of_each_quantity() -> None:
    assert lines(compared.parity()) == [
        "ppocli parity: ok  7 tokens, rollouts.parquet",
        "loss -0.375 to -0.125, 2 frameworks",
        "clip fraction 0.25 to 0.25, 1 frameworks",
        "approx KL 0.0625 to 0.0625, 1 frameworks",
        "value loss 0.5 to 0.5, 1 frameworks",
    ]


def test_drift_has_its_own_headline() -> None:
    made = compared.drift()
    assert f"diff_mean {made.metrics['diff_mean']:.6g}" in lines(made)[1]
    assert lines(made)[2] == (
        "warning PPO501 (7): a constant offset, first at rollouts.parquet, row 1, position 2, token 1555"
    )


def test_inspect_and_convert_name_their_files() -> None:
    made = inspected.report()
    assert lines(made)[1].startswith(f"{made.files[0].path}: parquet, ")
    assert lines(compared.converted())[1] == "wrote out.parquet: 3 rows, 9 tokens"


def test_the_table_has_each_number_once_with_its_definition() -> None:
    made = reports.full()
    rows = {row[0]: row for row in table(made).rows if row[0] != "metric"}
    names = [name for name in made.metrics if name != "policy_loss_by_agg"]
    names += [f"policy_loss_by_agg.{name}" for name in made.metrics["policy_loss_by_agg"]]
    assert sorted(rows) == sorted(names)
    assert len([row for row in table(made).rows if row[0] != "metric"]) == len(names)
    value = made.metrics["clip_frac"]
    assert rows["clip_frac"][1:] == [
        f"{value:.6g}", "ratio strictly outside [1 - clip_low, 1 + clip_high], any sign of the advantage",
    ]  # fmt: skip
    assert rows["n_rows"][1] == f"{made.metrics['n_rows']:,}"


def test_the_reason_of_a_null_stands_in_place_of_its_definition() -> None:
    rows = {row[0]: row for row in table(reports.with_nulls()).rows}
    assert rows["policy_loss"][1:] == ["null (nan)", "2 NaN in advantages"]
    assert rows["explained_variance"][1:] == ["null", "all returns are equal"]
    assert rows["adv_min"][1] == "0"
    assert rows["policy_loss_finite"][2].startswith("the same over the tokens whose columns are finite: ")


def test_groups_are_rows_and_of_many_the_rest_is_counted() -> None:
    groups = tuple(
        Group({"step": k if k else None}, {"policy_loss": k / 8}, {}) if k != 2 else
        Group({"step": 2}, {"policy_loss": None}, {"policy_loss": NullNote("1 NaN", "nan")})
        for k in range(23)
    )  # fmt: skip
    tree = table(reports.report(groups=groups))
    rows = [row for row in tree.rows if len(row) == 2]
    assert rows[0] == ["step", "policy_loss"]
    assert rows[1:4] == [["null", "0"], ["1", "0.125"], ["2", "null (nan)"]]
    assert len(rows) == 1 + 20
    assert "and 3 more groups" in tree.text


def test_frameworks_are_rows_of_parity() -> None:
    rows = {row[0]: row[1:] for row in table(compared.parity()).rows}
    assert rows["trl 1.0: loss"] == ["-0.375", "mean over sequences of the token mean"]
    assert rows["verl 0.7.0: clip fraction"] == ["null (nan)", "1 NaN"]


@pytest.mark.parametrize("name", ["eval", "check", "inspect", "parity", "drift"])
def test_text_from_the_data_is_no_markup(name: str) -> None:
    where = Place(HOSTILE, 0)
    found = (Finding("PPO101", "error", 1, HOSTILE, HOSTILE, where),)
    groups = (Group({HOSTILE: HOSTILE}, {"policy_loss": None}, {"policy_loss": NullNote(HOSTILE)}),)
    evaluated = reports.report(
        {"policy_loss": None},
        inputs=(reports.one_input(HOSTILE),),
        nulls={"policy_loss": NullNote(HOSTILE, "nan", where)},
        findings=found,
        groups=groups,
    )
    framework = compared.parity().frameworks[0]
    cell = replace(framework.metrics["loss"], name=HOSTILE, definition=HOSTILE)
    made: dict[str, Shown] = {
        "eval": evaluated,
        "check": checked.judged(evaluated),
        "inspect": inspected.report(inspected.parquet_file(path=HOSTILE)),
        "parity": compared.parity(
            inputs=(reports.one_input(HOSTILE),),
            frameworks=(replace(framework, name=HOSTILE, version=HOSTILE, metrics={"loss": cell}),),
        ),
        "drift": compared.drift(inputs=(reports.one_input(HOSTILE),), findings=found),
    }
    tree = table(made[name])
    assert tree.names <= {
        "div",
        "p",
        "b",
        "ul",
        "li",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "details",
        "summary",
    }
    assert "<script>alert(1)</script>" in tree.text
    assert "\x1b" not in "".join(lines(made[name]))
    assert not any("\n" in line for line in lines(made[name]))
