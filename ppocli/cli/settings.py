"""How options are filled in from a file and from the environment, and where each value is from."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args

import typer  # noqa: TC002 (the annotation of a callback is read at run time)

from ppocli.errors import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ppocli.config import ConfigFile, Kind, Kinds

ONLY_FLAGS = frozenset({"help", "config", "isolated", "debug", "output", "export", "force"})
"""Options that neither a file nor the environment sets."""

LIMITS = "METRIC="
"""How the placeholder of an option begins that a file gives as a table of metrics."""

OTHER_VARIABLES = ("PPOCLI_CACHE_DIR", "PPOCLI_CONFIG", "PPOCLI_DEBUG", "PPOCLI_ISOLATED")


@dataclass(slots=True)
class Configuration:
    """Where the values of a command's options come from.

    Attributes
    ----------
    file : ConfigFile, optional
    set_by_file : mapping of option to (value, place)
        Options without dashes. Limits are lists of (text, place).
    set_by_environment : mapping of option to value
    origins : mapping of option to str
        "flag", "environment", "file" or "default", once the command line is read.
    """

    file: ConfigFile | None = None
    set_by_file: Mapping[str, tuple[Any, str]] = field(default_factory=dict)
    set_by_environment: Mapping[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    def limits(self, option: str, given: Iterable[str] | None) -> list[tuple[str, str]]:
        """Return the limits of an option as (METRIC=TEXT, source): by metric, a flag wins over the rest.

        Parameters
        ----------
        given : iterable of str, optional
            What the command line says.
        """
        variable = variable_of(option)
        layers = [
            self.set_by_file.get(option, ((), ""))[0],
            [(pair, shown_variable(option)) for pair in os.environ.get(variable, "").split()],
            [(pair, f"--{option}") for pair in given or ()],
        ]
        out: dict[str, list[tuple[str, str]]] = {}
        for layer in layers:
            here: dict[str, list[tuple[str, str]]] = {}
            for pair, source in layer:
                here.setdefault(pair.partition("=")[0], []).append((pair, source))
            out |= here
        return [one for pairs in out.values() for one in pairs]

    def place_of(self, option: str) -> str | None:
        """Return where an option's value stands, if it is neither a flag nor the default."""
        origin = self.origins.get(option)
        if origin == "environment":
            return shown_variable(option)
        return self.set_by_file[option][1] if origin == "file" else None

    def located(self, problem: UsageProblem) -> UsageProblem:
        """Return the failure of an option with the place of its value, if a file or variable set it."""
        named = re.search(r"--([a-z][a-z0-9-]*)", problem.message)
        place = self.place_of(named[1]) if named and problem.where is None else None
        return UsageProblem(problem.message, where=place, hint=problem.hint) if place else problem


def variable_of(option: str) -> str:
    """Return the variable of an option."""
    from ppocli.config import environment_name

    return environment_name(option)


def shown_variable(option: str) -> str:
    """Return the variable of an option as the place of a value."""
    return f"environment variable {variable_of(option)}"


def use_configuration(context: typer.Context, value: str | None) -> Configuration | None:
    """Find the file, check it, and let Typer take its values for those of options that are not given.

    Called before the other options are read; what it returns is the value of `--config`.

    Raises
    ------
    UsageProblem
        Both --config and --isolated; an unknown key or a wrong value in the file.
    """
    if context.resilient_parsing:
        return None
    from ppocli import config

    command = str(context.info_name)
    kinds = kinds_of(command)
    _say_unknown_variables(kinds)
    file = configured_file(value, isolated=bool(context.params.get("isolated")))
    settings = config.settings_of(file, command, kinds, kinds_of_all) if file is not None else {}
    variables = {
        option: config.from_text(shown_variable(option), kind, os.environ[variable_of(option)])
        for option, kind in kinds.items()
        if kind != "limits" and os.environ.get(variable_of(option))
    }
    layers = {name: one for name, (one, _) in settings.items() if kinds[name] != "limits"} | variables
    context.default_map = {_parameter(name): one for name, one in layers.items()}
    return Configuration(file, settings, variables)


def configured_file(path: str | None, *, isolated: bool) -> ConfigFile | None:
    """Return the file that --config or PPOCLI_CONFIG names, or the nearest, or with --isolated none.

    Raises
    ------
    UsageProblem
        Both --config and --isolated; a file that is not TOML.
    InputError
        A file that was named and cannot be read.
    """
    from ppocli import config

    variable = os.environ.get("PPOCLI_ISOLATED")
    if variable and not isolated and path is None:
        isolated = config.from_text("environment variable PPOCLI_ISOLATED", "flag", variable)
    if isolated and path is not None:
        raise UsageProblem(
            "--isolated reads no file, and --config names one", hint="leave out one of the two"
        )
    named = path if path is not None else os.environ.get("PPOCLI_CONFIG")
    if isolated:
        return None
    return config.read(Path(named)) if named else config.find(Path.cwd())


def origins_of(context: typer.Context, configuration: Configuration) -> dict[str, str]:
    """Return for each option whether a flag, the environment, a file or the default decided."""
    out = {}
    for option in kinds_of(str(context.info_name)):
        source = context.get_parameter_source(_parameter(option))
        out[option] = "flag" if source is not None and source.name == "COMMANDLINE" else "default"
        if source is not None and source.name == "DEFAULT_MAP":
            out[option] = "environment" if option in configuration.set_by_environment else "file"
    return out


@cache
def kinds_of(command: str) -> dict[str, Kind]:
    """Return the options of a command that a file may set, and what each takes.

    Read from our own declarations: what Typer makes of them differs between its versions.
    """
    from ppocli.cli.app import COMMANDS
    from ppocli.cli.declare import options_of

    options = options_of(import_module(COMMANDS[command].module).run)
    return {name: _kind(*one) for name, one in options.items() if name not in ONLY_FLAGS}


def kinds_of_all() -> dict[str, Kinds]:
    """Return the options of every command that reads settings."""
    from ppocli.cli.app import COMMANDS

    return {name: kinds for name in COMMANDS if (kinds := kinds_of(name))}


def _parameter(option: str) -> str:
    """Return the name under which Typer keeps an option; one that Python keeps for itself ends with _."""
    return "set_" if option == "set" else option.replace("-", "_")


def _kind(annotation: Any, metavar: str | None, count: bool) -> Kind:
    """Return what an option takes, by its type and its placeholder."""
    if metavar == "ROLE=COLUMN":
        return "columns"
    if (metavar or "").startswith(LIMITS):
        return "limits"
    if count:
        return "whole"
    types = {one for one in get_args(annotation) or (annotation,) if one is not NoneType}
    kinds: dict[Any, Kind] = {bool: "flag", float: "number", int: "whole", list[str]: "words"}
    usual: Kind = "file" if metavar == "FILE" else "text"
    return kinds.get(types.pop(), usual) if len(types) == 1 else usual


def _say_unknown_variables(kinds: Mapping[str, Kind]) -> None:
    """Say which PPOCLI_ variables nothing reads: a limit in one of them would not be judged."""
    set_here = [name for name in os.environ if name.startswith("PPOCLI_") and name not in OTHER_VARIABLES]
    if all(name in map(variable_of, kinds) for name in set_here):
        return
    from difflib import get_close_matches

    from ppocli.cli.failures import notice
    from ppocli.render.console import printable

    known = sorted({variable_of(name) for one in kinds_of_all().values() for name in one})
    for name in sorted(set_here):
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            notice(f"warning: environment variable {printable(name)} is not known{hint}")
