"""The options about input, output and the run, each declared once, in the groups that commands share.

A command takes groups as arguments; `ppocli.cli.declare.flatten` gives Typer the flat list of options.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from ppocli.cli.declare import CONFIG, DATA, ISOLATED, OUTPUT, RUN, flag, whole_option, word_option
from ppocli.cli.settings import Configuration  # noqa: TC001 (read at run time)
from ppocli.core.chunk import ReadOptions
from ppocli.core.roles import ROLES
from ppocli.core.spec import choose
from ppocli.core.url import addressed
from ppocli.errors import UsageProblem


@dataclass(frozen=True, slots=True)
class Sources:
    """The files."""

    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATHS...",
            help="Files (Parquet, NPZ, Arrow, JSON Lines, NPY), folders, quoted patterns such as "
            "'runs/*/rank*.parquet', the same as s3://, gs://, abfs:// or hf:// URLs, or - for standard "
            "input.",
        ),
    ]

    def __post_init__(self) -> None:
        """Take URLs as such, so that no message shows their secrets."""
        object.__setattr__(self, "paths", [addressed(path) for path in self.paths])


@dataclass(frozen=True, slots=True)
class ReadingOptions:
    """How columns and axes are to be understood."""

    col: Annotated[
        list[str] | None,
        word_option(
            DATA,
            "--col",
            metavar="ROLE=COLUMN",
            text="Column that plays a role, for example old_log_probs=logp_rollout. Repeatable. "
            "Without it columns are found by name (ppocli explain ROLE lists the names).",
        ),
    ] = None
    layout: Annotated[
        str,
        word_option(
            DATA,
            "--layout",
            metavar="auto|time|env",
            text="time: two-dimensional arrays are (time, environment). env: the same, and flat ones beside "
            "them go environment by environment, as SB3's after training. auto (default): (sequence, token).",
        ),
    ] = "auto"
    sum_dims: Annotated[
        bool,
        flag(DATA, "--sum-dims", text="Sum log-probs over the last axis: the dimensions of one action."),
    ] = False
    bits: Annotated[
        list[str] | None,
        word_option(
            DATA,
            "--bits",
            metavar="ROLE",
            text="The role's uint16 column holds the bits of bfloat16 numbers. Repeatable.",
        ),
    ] = None
    neglogp: Annotated[
        list[str] | None,
        word_option(
            DATA,
            "--neglogp",
            metavar="ROLE",
            text="The role's column holds minus the log-prob, as in baselines and rl_games. Repeatable.",
        ),
    ] = None
    probs: Annotated[
        list[str] | None,
        word_option(
            DATA,
            "--probs",
            metavar="ROLE",
            text="The role's column holds probabilities; their logarithms are taken. Repeatable.",
        ),
    ] = None

    def read_options(self) -> ReadOptions:
        """Return the options of the readers.

        Raises
        ------
        UsageProblem
            An unknown role or layout, a role given twice, or no column name.
        """
        choose("--layout", self.layout, ("auto", "time", "env"))
        bits = frozenset(choose("--bits: role", role, ROLES) for role in self.bits or ())
        neglogp, probs = _log_prob_roles("--neglogp", self.neglogp), _log_prob_roles("--probs", self.probs)
        if both := sorted(neglogp & probs):
            raise UsageProblem(
                f"--neglogp and --probs both name '{both[0]}'", hint="its column holds one of the two"
            )
        return ReadOptions(_columns(self.col or ()), self.layout, self.sum_dims, bits, neglogp, probs)


@dataclass(frozen=True, slots=True)
class FileOptions(ReadingOptions):
    """The same, and what to do about bad files."""

    skip_bad: Annotated[
        bool,
        flag(DATA, "--skip-bad", text="Pass over files that cannot be read; they are named in the output."),
    ] = False


@dataclass(frozen=True, slots=True)
class DataOptions(FileOptions):
    """The same, and what to do when there is nothing in them."""

    allow_empty: Annotated[
        bool,
        flag(DATA, "--allow-empty", text="Exit with 0, not 5, when there is no valid token."),
    ] = False


def _log_prob_roles(option: str, roles: list[str] | None) -> frozenset[str]:
    """Check that an option names roles of log-probs."""
    allowed = [role.name for role in ROLES.values() if role.kind == "log_prob"]
    return frozenset(choose(f"{option}: role", role, allowed) for role in roles or ())


def _columns(pairs: list[str] | tuple[str, ...]) -> dict[str, str]:
    """Read `ROLE=COLUMN` pairs."""
    out: dict[str, str] = {}
    for pair in pairs:
        role, equals, column = pair.partition("=")
        if not equals or not column:
            raise UsageProblem(
                f"--col takes ROLE=COLUMN, not '{pair}'", hint="for example: --col old_log_probs=logp_rollout"
            )
        choose("--col: role", role, ROLES)
        if role in out:
            raise UsageProblem(f"--col gives role '{role}' two columns: '{out[role]}' and '{column}'")
        out[role] = column
    return out


@dataclass(frozen=True, slots=True)
class WritingOptions:
    """What is written where, and how it looks."""

    format: Annotated[
        str,
        word_option(
            OUTPUT,
            "-f",
            "--format",
            metavar="FORMAT",
            text="table (default), json, jsonl, csv, tsv, md or html.",
        ),
    ] = "table"
    output: Annotated[
        str | None,
        word_option(
            OUTPUT,
            "-o",
            "--output",
            metavar="FILE",
            text="Write the result to FILE instead of standard output (-).",
        ),
    ] = None
    export: Annotated[
        list[str] | None,
        word_option(
            OUTPUT,
            "--export",
            metavar="FILE",
            text="Also write FILE; its suffix says the format: .json .jsonl .csv .tsv .md .html. Repeatable.",
        ),
    ] = None
    force: Annotated[bool, flag(OUTPUT, "--force", text="Overwrite files that exist.")] = False
    digits: Annotated[
        int,
        whole_option(
            OUTPUT, "--digits", "Significant digits in tables, 1 to 17. Default 6. Data are never rounded."
        ),
    ] = 6
    color: Annotated[
        str,
        word_option(
            OUTPUT,
            "--color",
            metavar="auto|always|never",
            text="auto (default): on a terminal, and NO_COLOR is obeyed.",
        ),
    ] = "auto"
    ascii: Annotated[bool, flag(OUTPUT, "--ascii", text="Draw with ASCII characters only.")] = False


@dataclass(frozen=True, slots=True)
class SortedOutput(WritingOptions):
    """The same, and which rows the tables have."""

    by: Annotated[
        str,
        word_option(
            OUTPUT,
            "--by",
            metavar="file|total",
            text="One row for each file (default), or the total only.",
        ),
    ] = "file"
    sort: Annotated[
        str | None,
        word_option(
            OUTPUT,
            "--sort",
            metavar="METRIC",
            text="Order the files by this metric, worst first: nulls, then the largest (for ess_frac and "
            "explained_variance the smallest).",
        ),
    ] = None
    hist: Annotated[
        bool,
        flag(OUTPUT, "--hist", text="Draw the histogram of log_ratio, with the ends of the clip interval."),
    ] = False


@dataclass(frozen=True, slots=True)
class OutputOptions(SortedOutput):
    """The same with rows of other kinds, and how many of the worst tokens are listed."""

    by: Annotated[
        str,
        word_option(
            OUTPUT,
            "--by",
            metavar="file|total|step|COLUMN",
            text="One row for each file (default), the total only, or one row for each training step, or for "
            "each value of a column of whole numbers or text, with trends and what changed.",
        ),
    ] = "file"
    worst: Annotated[
        int,
        whole_option(
            OUTPUT,
            "--worst",
            "List the N tokens with the largest |log_ratio| and with the largest |loss|. Default 0.",
        ),
    ] = 0


@dataclass(frozen=True, slots=True)
class SayingOptions:
    """What is said about the run. Nothing here changes a number."""

    progress: Annotated[
        str,
        word_option(
            RUN,
            "--progress",
            metavar="auto|always|never",
            text="Progress bar on a terminal. Default auto: after half a second, not where CI is set.",
        ),
    ] = "auto"
    quiet: Annotated[
        int,
        flag(
            RUN,
            "-q",
            "--quiet",
            text="-q: no notices. -qq: no result either, only the exit code.",
            count=True,
        ),
    ] = 0
    debug: Annotated[bool, flag(RUN, "--debug", text="Show the traceback of an error.")] = False
    isolated: Annotated[bool, ISOLATED] = False
    config: Annotated[Configuration | None, CONFIG] = None

    @property
    def is_quiet(self) -> bool:
        """Say nothing but what made the exit code other than 0."""
        return self.quiet > 0

    @property
    def is_silent(self) -> bool:
        """Print no result either."""
        return self.quiet > 1

    def check(self) -> None:
        """Refuse unknown words.

        Raises
        ------
        UsageProblem
        """
        choose("--progress", self.progress, ("auto", "always", "never"))


@dataclass(frozen=True, slots=True)
class RunOptions(SayingOptions):
    """The same, and how the work is done."""

    threads: Annotated[
        int | None,
        whole_option(RUN, "--threads", "Threads that compute. Default: the processors this process may use."),
    ] = None
    chunk_rows: Annotated[
        int | None, whole_option(RUN, "--chunk-rows", "Rows read at a time. Never changes a result.")
    ] = None
    verbose: Annotated[
        bool, flag(RUN, "-v", "--verbose", text="Say how the run went: time, threads, versions.")
    ] = False

    def check(self) -> None:
        """Refuse counts below 1 and unknown words.

        Raises
        ------
        UsageProblem
        """
        SayingOptions.check(self)
        for name, count in (("--threads", self.threads), ("--chunk-rows", self.chunk_rows)):
            if count is not None and count < 1:
                raise UsageProblem(f"{name} is a whole number of at least 1, not {count}")
