"""Frameworks as data: what each one's loss is, and its metrics under its own names.

One module per family; `preset("trl:dapo")` loads the one that is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ppocli.core.spec import LossSpec, choose

if TYPE_CHECKING:
    from ppocli.core.measures import PresetMetric


@dataclass(frozen=True, slots=True)
class Preset:
    """A framework, as far as a batch of logged rollouts shows it.

    Attributes
    ----------
    name : str
        What `--like` takes: `NAME` or `NAME:VARIANT`.
    title, version : str
        The project, and the version whose code the numbers were compared with.
    spec : mapping of name to value
        Fields of `LossSpec` that differ from the defaults of ppocli.
    metrics : tuple of PresetMetric
    more : callable, optional
        (spec) to the metrics that the framework logs under some settings only.
    aliases : mapping of role to names of columns
        Names that this framework uses, beside those that are known anyway.
    tied : mapping of name to name
        Settings for which the framework has no value of its own: they follow another one that is given.
    spoils : tuple of str
        Metrics that the framework computes by multiplying with its mask: they are NaN there as soon as a
        masked value of their columns is not finite.
    selects : tuple of str
        Columns whose masked values it selects away before it multiplies: they spoil nothing.
    spoils_by_sequence : tuple of str
        Metrics that it computes so where the loss is aggregated by sequences only.
    notes : tuple of str
        What a user of the framework should know: knobs without effect, divisors that a file does not hold.
    """

    name: str
    title: str
    version: str
    spec: Mapping[str, Any]
    metrics: tuple[PresetMetric, ...]
    more: Callable[[LossSpec], tuple[PresetMetric, ...]] | None = None
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tied: Mapping[str, str] = field(default_factory=dict)
    spoils: tuple[str, ...] = ()
    selects: tuple[str, ...] = ()
    spoils_by_sequence: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def metrics_under(self, spec: LossSpec) -> tuple[PresetMetric, ...]:
        """Return all metrics that the framework logs with this loss."""
        return self.metrics + (self.more(spec) if self.more else ())

    def names_under(self, spec: LossSpec) -> tuple[str, ...]:
        """Return the names of these metrics."""
        return tuple(metric.name for metric in self.metrics_under(spec))

    def spoilt(self, name: str, spec: LossSpec) -> bool:
        """Return whether a masked value that is not finite makes this metric NaN."""
        by_sequence = spec.agg.startswith("seq-")
        return name in self.spoils or (by_sequence and name in self.spoils_by_sequence)

    def loss_spec(self, overrides: Mapping[str, Any] | None = None) -> LossSpec:
        """Return the loss; `overrides` win over what the framework does by default."""
        given = dict(overrides or {})
        for name, other in self.tied.items():
            if name not in given and other in given and self.spec.get(name) is not None:
                given[name] = given[other]
        return LossSpec(**{**self.spec, **given})


FAMILIES: dict[str, str] = {
    "verl": "verl",
    "openrlhf": "openrlhf",
    "areal": "areal",
    "skyrl": "skyrl",
    "sb3": "sb3",
    "trl": "trl",
    "liger": "liger",
    "nemo-rl": "nemo_rl",
    "slime": "slime",
    "prime-rl": "prime_rl",
    "roll": "roll",
    "open-instruct": "open_instruct",
    "cleanrl": "cleanrl",
    "spinup": "spinup",
    "rllib": "rllib",
    "tianshou": "tianshou",
    "rl-games": "rl_games",
    "rsl-rl": "rsl_rl",
    "skrl": "skrl",
    "torchrl": "torchrl",
    "rlinf": "rlinf",
    "tinker": "tinker",
}
"""The module of each name before the colon."""


def preset(name: str, option: str = "--like") -> Preset:
    """Return a preset by name; `option` is what a wrong one was given to.

    Raises
    ------
    UsageProblem
        An unknown name, with the nearest one.
    """
    family = name.partition(":")[0]
    choose(option, family, FAMILIES)
    known: Mapping[str, Preset] = import_module(f"ppocli.core.presets.{FAMILIES[family]}").PRESETS
    choose(option, name, known)
    return known[name]


def all_presets() -> tuple[Preset, ...]:
    """Return every preset, in the order of `FAMILIES`."""
    modules = dict.fromkeys(FAMILIES.values())
    return tuple(
        one for name in modules for one in import_module(f"ppocli.core.presets.{name}").PRESETS.values()
    )
