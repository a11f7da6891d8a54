"""Where inputs are evaluated: in the process itself, or on a Ray cluster."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from ppocli.cli.declare import RUN, word_option
from ppocli.core.spec import choose
from ppocli.errors import UsageProblem

if TYPE_CHECKING:
    from ppocli.core.progress import Progress
    from ppocli.engine.ray_engine import Cluster


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The engine. It changes no result."""

    engine: Annotated[
        str,
        word_option(
            RUN,
            "--engine",
            metavar="local|ray",
            text="ray: evaluate each file in a task of a Ray cluster, --threads processors each, default 1 "
            "(pip install 'ppocli[ray]'). The result is the same. Default local.",
        ),
    ] = "local"
    ray_address: Annotated[
        str | None,
        word_option(
            RUN,
            "--ray-address",
            metavar="ADDRESS",
            text="A running Ray cluster; auto: the one this machine belongs to. Default: RAY_ADDRESS, else "
            "this machine's processors.",
        ),
    ] = None

    def check(self) -> None:
        """Refuse unknown words, and an address for nothing.

        Raises
        ------
        UsageProblem
            Also where Ray is wanted and not installed.
        """
        choose("--engine", self.engine, ("local", "ray"))
        if self.engine != "ray":
            if self.ray_address is not None:
                raise UsageProblem("--ray-address is for --engine ray", hint="add --engine ray")
            return
        from importlib.util import find_spec

        if find_spec("ray") is None:
            raise UsageProblem("--engine ray needs the package ray", hint="pip install 'ppocli[ray]'")

    def check_rows(self, by: str, *, is_merged: bool = False) -> None:
        """Refuse rows that no file has by itself, where files are evaluated so; or are merged later.

        Raises
        ------
        UsageProblem
        """
        if by not in ("file", "total") and (self.engine == "ray" or is_merged):
            other = "--partials" if is_merged else "--engine ray"
            raise UsageProblem(
                f"--by {by} reads all files in one process, so it takes no {other}",
                hint="leave out one of the two",
            )

    def cluster(self, threads: int | None, progress: Progress) -> AbstractContextManager[Cluster | None]:
        """Return the cluster, which is connected to when it is used first, or None."""
        if self.engine != "ray":
            return nullcontext()
        from ppocli.engine.ray_engine import Cluster

        return Cluster(self.ray_address, threads, progress)


def engine_settings(cluster: Cluster | None) -> dict[str, Any]:
    """Return what `evaluate_files` is to be told of the engine: nothing where it works by itself."""
    if cluster is None:
        return {}
    from ppocli.engine.by_file import ByFile

    return {"engine": lambda run, worst: ByFile(run, worst, cluster, keep=False)}
