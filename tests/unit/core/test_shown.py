from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import audited
import checked
import compared
import inspected
import pytest
import reports

from ppocli.core.notebook import summary_lines, table_html

if TYPE_CHECKING:
    from collections.abc import Callable

    from ppocli.core.shown import Shown

MADE: dict[str, Callable[[], Shown]] = {
    "eval": reports.full,
    "check": checked.mixed,
    "audit": audited.report,
    "drift": compared.drift,
    "parity": compared.parity,
    "inspect": inspected.report,
    "convert": compared.converted,
}


@pytest.mark.parametrize("kind", MADE)
def test_a_report_shows_its_summary_and_a_notebook_its_table(kind: str) -> None:
    made = MADE[kind]()
    assert str(made) == repr(made) == "\n".join(summary_lines(made.to_dict()))
    assert str(made).startswith(f"ppocli {kind}: ")
    assert made._repr_html_() == table_html(made.to_dict())


@pytest.mark.parametrize("kind", MADE)
def test_reports_of_the_same_numbers_are_equal(kind: str) -> None:
    assert MADE[kind]() == MADE[kind]()
    assert MADE[kind]() != kind


@pytest.mark.parametrize("kind", ["eval", "drift", "parity", "inspect", "convert"])
def test_the_run_is_no_part_of_it(kind: str) -> None:
    made = MADE[kind]()
    assert replace(made, run={"seconds": 99.5}) == made  # type: ignore[type-var]


def test_the_run_is_no_part_of_an_audit_or_a_gate() -> None:
    audit = audited.report()
    assert replace(audit, evaluation=replace(audit.evaluation, run={"seconds": 99.5})) == audit
    gate = checked.mixed()
    assert replace(gate, document={**gate.document, "run": {"seconds": 99.5}}) == gate


def test_one_other_number_makes_another_report() -> None:
    assert reports.report() != reports.report({"clip_frac": 0.1235})
    gate = checked.mixed()
    changed = {**gate.document, "metrics": {**gate.document["metrics"], "clip_frac": 0.5}}
    assert replace(gate, document=changed) != gate
    assert replace(gate, exit_code=0) != gate
    assert audited.report() != audited.report(n_left_out=1)
    assert compared.parity() != compared.parity(n_tokens=8)
    assert compared.drift() != compared.drift(by_position=())
