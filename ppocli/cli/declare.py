"""How options are declared, and how groups of them become the flat list that Typer wants."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import MISSING, fields
from typing import Annotated, Any, get_args, get_type_hints

import typer

from ppocli.cli.completion import Words, completion_of
from ppocli.cli.help import show_help
from ppocli.cli.settings import Configuration, origins_of, use_configuration
from ppocli.errors import UsageProblem

DATA, OBJECTIVE, OUTPUT, RUN = "Data", "Objective", "Output", "Run"
"""The panels of a command's help, in this order."""


def real(text: str | float) -> float:
    """Read a number from the command line."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"'{text}' is not a number") from None


def whole(text: str | int) -> int:
    """Read a whole number from the command line."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"'{text}' is not a whole number") from None


def real_option(panel: str, name: str, text: str, metavar: str = "X") -> Any:
    """Return an option that takes a number."""
    return typer.Option(name, parser=real, metavar=metavar, help=text, rich_help_panel=panel)


def whole_option(panel: str, name: str, text: str) -> Any:
    """Return an option that takes a whole number."""
    return typer.Option(name, parser=whole, metavar="N", help=text, rich_help_panel=panel)


def word_option(panel: str, *names: str, metavar: str, text: str, words: Words | None = None) -> Any:
    """Return an option that takes a word, or several times a word if its type is a list.

    `words`: what a shell completes, where neither name nor placeholder say it.
    """
    completion = completion_of(names[-1], metavar, words)
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel, autocompletion=completion)


def flag(panel: str, *names: str, text: str, count: bool = False) -> Any:
    """Return an option without a value."""
    return typer.Option(*names, help=text, rich_help_panel=panel, count=count)


ISOLATED = typer.Option(
    "--isolated",
    is_eager=True,
    help="Read no file with settings.",
    rich_help_panel=RUN,
)
FILE_OPTION = typer.Option(
    "--config",
    metavar="FILE",
    help="Read settings from FILE. Default: the nearest ppocli.toml or pyproject.toml with [tool.ppocli], "
    "upwards. Flags win over PPOCLI_OPTION variables, and these over the file.",
    rich_help_panel=RUN,
)
CONFIG = copy(FILE_OPTION)
"""The same, for commands whose other options are filled in from the file."""
CONFIG.parser, CONFIG.is_eager, CONFIG.callback = str, True, use_configuration

Help = Annotated[
    bool,
    typer.Option(
        "-h", "--help", is_eager=True, callback=show_help, help="Show this text.", rich_help_panel=RUN
    ),
]


def flatten(command: Callable[..., int]) -> Callable[..., Callable[[], int]]:
    """Return a function for Typer with one parameter for each field of the groups that `command` takes.

    Parameters
    ----------
    command : function
        Each parameter is annotated with one of the classes of options above, or is a plain Typer parameter.

    Returns
    -------
    function
        Takes the options by name, builds the groups and returns the call of `command`, to be made when Typer
        has returned: it would make exit code 1 of a closed pipe. Also takes `--help`. A usage problem of an
        option whose value comes from a file or the environment is raised with that place.
    """
    groups, flat = _flat(command)
    flat.append(_keyword("help_", Help, False))
    flat.append(_keyword("context_", typer.Context, inspect.Parameter.empty))

    def read(**values: Any) -> Callable[[], int]:
        del values["help_"]
        configuration, context = values.get("config"), values.pop("context_")
        arguments = {name: _take(group, values) for name, group in groups.items()}
        work = functools.partial(command, **arguments, **values)
        if not isinstance(configuration, Configuration):
            return work
        configuration.origins = origins_of(context, configuration)
        return functools.partial(_called, configuration, work)

    read.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    read.__annotations__ = {}
    return read


def options_of(command: Callable[..., int]) -> dict[str, tuple[Any, str | None, bool]]:
    """Return type, placeholder and whether it counts, by name, for each option that `--config` can fill in.

    A command without `CONFIG` has none.
    """
    parameters = _flat(command)[1]
    if not any(CONFIG in get_args(parameter.annotation) for parameter in parameters):
        return {}
    out = {}
    for parameter in parameters:
        kind, *declared = get_args(parameter.annotation) or (parameter.annotation,)
        for one in declared:
            words = (one.default, *(one.param_decls or ()))  # Typer keeps the first name as `default`
            names = [name for name in words if isinstance(name, str) and name.startswith("--")]
            if names:
                out[names[-1][2:]] = kind, one.metavar, bool(one.count)
    return out


def _flat(command: Callable[..., int]) -> tuple[dict[str, type], list[inspect.Parameter]]:
    """Return the groups that a command takes, and one parameter for each of their fields."""
    groups: dict[str, type] = {}
    flat: list[inspect.Parameter] = []
    hints = get_type_hints(command, include_extras=True)
    for parameter in inspect.signature(command).parameters.values():
        group = hints[parameter.name]
        if isinstance(group, type) and hasattr(group, "__dataclass_fields__"):
            groups[parameter.name] = group
            flat += _parameters(group)
        else:
            flat.append(parameter.replace(annotation=group, kind=inspect.Parameter.KEYWORD_ONLY))
    return groups, flat


def _called(configuration: Configuration, work: Callable[[], int]) -> int:
    """Do what a command line says; a usage problem names the place of the value at fault."""
    try:
        return work()
    except UsageProblem as problem:
        raise configuration.located(problem) from problem


def take_as_typed(command: Any) -> None:
    """Let the options of a Typer command hand over words, lists of words and parsed numbers by themselves.

    Typer builds a pydantic model for each option of which it reads a value, given or not: 85 ms before any
    work. Options of other types are left to it.
    """
    for name, one in inspect.signature(command.callback, eval_str=True).parameters.items():
        convert = _converter(one.annotation)
        parameter = next((mine for mine in command.params if mine.name == name), None)
        if convert is not None and parameter is not None:
            parameter.process_value = functools.partial(_process, parameter.process_value, parameter, convert)


def _process(
    slow: Callable[..., Any], parameter: Any, convert: Callable[..., Any], at: Any, value: Any
) -> Any:
    """Convert a value; what is missing is left to Typer, which has the words for it."""
    if parameter.required and (value is None or value in ((), [])):
        return slow(at, value)
    value = convert(value)
    return value if parameter.callback is None else parameter.callback(at, parameter, value)


def _converter(annotation: Any) -> Callable[[Any], Any] | None:
    """Return what makes the value of an option out of its text, or None where Typer has to."""
    kind, *declared = get_args(annotation) or (annotation,)
    parser = next((one.parser for one in declared if getattr(one, "parser", None)), None)
    if parser is not None:
        return lambda value: None if value is None else parser(value)
    if kind in (str, str | None) or (kind is int and any(getattr(one, "count", False) for one in declared)):
        return lambda value: value
    return (lambda value: list(value or ())) if kind in (list[str], list[str] | None) else None


def _parameters(group: type) -> list[inspect.Parameter]:
    """Return one keyword parameter for each field of a group."""
    hints: Mapping[str, Any] = get_type_hints(group, include_extras=True)
    empty = inspect.Parameter.empty
    return [
        _keyword(one.name, hints[one.name], empty if one.default is MISSING else one.default)
        for one in fields(group)
    ]


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """Return a keyword-only parameter."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _take(group: type, values: dict[str, Any]) -> Any:
    """Build a group from its values, which are taken out of `values`."""
    return group(**{one.name: values.pop(one.name) for one in fields(group)})
