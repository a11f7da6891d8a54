"""Presets as data: they are complete, and settings follow each other as in the framework."""

from __future__ import annotations

import math

import pytest

from ppocli.core.measures import METRIC, resolve
from ppocli.core.presets import FAMILIES, all_presets, preset
from ppocli.core.presets.common import explained, over_padding
from ppocli.core.presets.rlinf import over_kept
from ppocli.core.presets.rllib import explained_floored
from ppocli.core.presets.torchrl import ess
from ppocli.core.roles import ROLES
from ppocli.core.spec import LossSpec
from ppocli.core.terms import TERMS
from ppocli.errors import UsageProblem

SPEC = LossSpec()


@pytest.mark.parametrize("one", all_presets(), ids=lambda one: str(one.name))
def test_every_preset_holds_together(one: object) -> None:
    from ppocli.core.presets import Preset

    assert isinstance(one, Preset)
    spec = one.loss_spec()
    # Some metrics come with settings: take one that brings the correction's.
    corrected = one.loss_spec({"rollout_is": "token"})
    names = [metric.name for metric in one.metrics_under(spec)]
    known = {*names, *(metric.name for metric in one.metrics_under(corrected))}
    assert len(set(names)) == len(names)
    assert {*one.spoils, *one.spoils_by_sequence} <= known
    assert set(one.aliases) | set(one.selects) <= ROLES.keys()
    assert set(one.tied) <= set(one.spec)
    kinds = [metric.kind for metric in one.metrics if metric.kind]
    assert len(set(kinds)) == len(kinds)
    for metric in one.metrics:
        assert metric.text
        for measure in metric.measures:
            if measure.term == METRIC:
                continue
            resolve(measure, spec)
            assert set(TERMS[measure.term].roles(spec, measure.term_options)) <= ROLES.keys()


def test_names_of_families_are_names_of_presets() -> None:
    assert [preset(name).name for name in FAMILIES] == list(FAMILIES)
    with pytest.raises(UsageProblem, match="sb4"):
        preset("sb4")


def test_a_value_clip_follows_the_ratio_clip_where_the_framework_has_one_setting() -> None:
    cleanrl = preset("cleanrl")
    assert cleanrl.loss_spec().value_clip == 0.2
    given = {"clip_low": 0.1, "clip_high": 0.1}
    assert cleanrl.loss_spec(given).value_clip == 0.1
    assert cleanrl.loss_spec({**given, "value_clip": 0.3}).value_clip == 0.3
    assert cleanrl.loss_spec({**given, "value_clip": None}).value_clip is None
    # skrl has settings of their own.
    assert preset("skrl").loss_spec(given).value_clip == 0.2


def test_combinations() -> None:
    assert explained(SPEC, 1.0, 4.0) == 0.75
    assert math.isnan(explained(SPEC, 1.0, 0.0))
    assert math.isnan(explained(SPEC, math.nan, math.nan))
    assert explained_floored(SPEC, 3.0, 1.0 - 1e-6) == -1.0
    assert explained_floored(SPEC, 0.5, 1.0 - 1e-6) == 0.5
    assert math.isnan(explained_floored(SPEC, math.nan, 1.0))
    assert over_padding(SPEC, 3.0, 4.0, 2.0) == 0.5
    assert over_kept(SPEC, 0.25, 0.5) == 0.5
    assert over_kept(SPEC, 0.0, 1.0) == 0.0
    # Ratios 1 and 3: 16 / (2 * 10).
    assert ess(SPEC, 2.0, 5.0) == 0.8
