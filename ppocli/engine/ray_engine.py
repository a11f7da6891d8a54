"""Units on a Ray cluster: submitted in order, a bounded number at a time, taken back in order."""

from __future__ import annotations

import json
import os
import resource
import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ppocli.core.progress import NoProgress, Progress
from ppocli.errors import InputError, InternalError, Lines, PpoCliError, UsageProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ppocli.engine.where import Plan

Json = Any

INSTALL = "pip install 'ppocli[ray]'"

RETRIES = 3
"""How often a unit is given to another worker when its own is lost."""

AHEAD = 2
"""Units in flight for each worker: one at work, one to follow. Results wait for those before them."""

STORE_BYTES = 256 << 20
"""Object store of a cluster of our own: parts are some kilobytes, and a million groups 200 MB."""


class Cluster:
    """Works on units as Ray tasks; use it as a context, at whose end what was started here is stopped.

    Parameters
    ----------
    address : str, optional
        Of a running cluster, or "auto" for the one that this machine belongs to. None: the one that the
        variable RAY_ADDRESS names, else one of this machine's processors, for as long as the context lasts.
    threads : int, optional
        Processors of each task. Default 1.
    progress : Progress, optional

    Attributes
    ----------
    seconds : list of float
        How long each unit took its worker.
    peak_bytes : int
        The largest resident size that any worker has had.
    """

    name = "--engine ray"

    def __init__(
        self, address: str | None = None, threads: int | None = None, progress: Progress | None = None
    ) -> None:
        self.address, self.threads = address, threads or 1
        self.progress = progress or NoProgress()
        self.seconds: list[float] = []
        self.peak_bytes = 0
        self._ray: Any = None
        self._ours = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ours:
            self._ray.shutdown()
            self._ours = False

    @property
    def said(self) -> dict[str, Any]:
        """What a report says of the run."""
        return {"engine": "ray", "units": len(self.seconds), "peak_worker_bytes": self.peak_bytes}

    def results(
        self,
        task: str,
        plan: Plan,
        inputs: Sequence[tuple[int, str]],
        given: Callable[[int], Json],
        *,
        one_by_one: bool = False,
    ) -> Iterator[tuple[int, Json | InputError]]:
        """Yield what a task gives for each input, in order; see `where.Where`.

        Raises
        ------
        UsageProblem
            Ray is not installed, or there is no such cluster.
        """
        ray = self._start()
        remote = ray.remote(num_cpus=self.threads, max_retries=RETRIES, name="ppocli")(work)
        shared = ray.put(plan)
        slots = max(int(ray.cluster_resources().get("CPU", 1)) // self.threads, 1)
        most = 1 if one_by_one else AHEAD * slots
        waiting: deque[tuple[int, str, Any]] = deque()
        left, last, reference = iter(inputs), object(), None
        try:
            while True:
                while len(waiting) < most and (one := next(left, None)) is not None:
                    told = given(one[0])
                    if told is not last:  # put into the store once, however many units it is told
                        last, reference = told, ray.put(told)
                    waiting.append((*one, remote.remote(task, shared, one[1], reference, self.threads)))
                if not waiting:
                    return
                index, path, awaited = waiting[0]
                found = self._result(awaited, path)
                waiting.popleft()
                yield index, found
        finally:
            for _, _, awaited in waiting:
                ray.cancel(awaited)

    def _result(self, reference: Any, path: str) -> Json | InputError:
        """Wait for a unit, and return its result or what is wrong with its input."""
        errors = self._ray.exceptions
        try:
            told = json.loads(self._ray.get(reference))
        except errors.RayTaskError as problem:
            raise InternalError(f"a worker failed at '{path}': {problem.cause!r}", where=path) from problem
        except errors.RayError as problem:
            return InputError(
                f"its worker was lost {RETRIES + 1} times ({type(problem).__name__})",
                where=path,
                hint="ppocli eval reads it in this process, without --engine ray; a worker also needs the "
                "memory that ppocli inspect names",
            )
        self.seconds.append(told["seconds"])
        self.peak_bytes = max(self.peak_bytes, told["peak_bytes"])
        if "problem" in told:
            return _problem(*told["problem"])
        report = told["result"].get("state", told["result"]).get("input", {})
        self.progress.advance(told["bytes"], report.get("tokens", 0), report.get("rows", 0))
        return told["result"]

    def _start(self) -> Any:
        """Return Ray, connected."""
        if self._ray is not None:
            return self._ray
        # Ray reads these when it is imported.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        os.environ.setdefault("RAY_task_oom_retries", str(RETRIES))
        try:
            import ray
        except ImportError:
            raise UsageProblem(f"{self.name} needs the package ray", hint=INSTALL) from None
        self._ray = ray
        if ray.is_initialized():
            return ray
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        address = self.address or os.environ.get("RAY_ADDRESS")
        self._ours = True
        if address is None:
            n = max(len(os.sched_getaffinity(0)), self.threads)
            ray.init(num_cpus=n, include_dashboard=False, object_store_memory=STORE_BYTES, **quiet)
            return ray
        try:
            ray.init(address=address, **quiet)
        except (ConnectionError, ValueError, RuntimeError) as problem:
            self._ray, self._ours = None, False
            first = str(problem).partition("\n")[0]
            raise UsageProblem(
                f"no Ray cluster at '{address}': {first}",
                hint="ray start --head starts one; without --ray-address this machine's processors are used",
            ) from None
        return ray


def work(task: str, plan: Plan, path: str, given: Json, threads: int) -> str:
    """Work on one unit, in a worker; return JSON, of an input that cannot be read what is wrong with it."""
    from ppocli.engine.reading import read_small_chunks
    from ppocli.kernels import _jit

    read_small_chunks()
    began = time.perf_counter()
    told: dict[str, Json] = {"bytes": 0}
    try:
        try:
            os.chdir(plan.folder)
        except OSError:
            if not os.path.isabs(path) and "://" not in path:  # noqa: PTH117 (it may be a URL)
                raise InputError(
                    f"a worker does not have the folder '{plan.folder}'",
                    where=path,
                    hint="all workers need to reach the files under the same path: a shared file system, or "
                    "URLs",
                ) from None
        _jit.set_threads(threads)
        unit = plan.unit(path, None, given)
        told["bytes"] = unit.total_bytes()
        told["result"] = getattr(unit, task)()
    except PpoCliError as problem:
        where = problem.where
        told["problem"] = [
            type(problem).__name__,
            problem.message,
            where,
            isinstance(where, Lines),
            problem.hint,
        ]
    told["seconds"] = time.perf_counter() - began
    told["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return json.dumps(told, allow_nan=False)


def _problem(kind: str, message: str, where: str | None, lines: bool, hint: str | None) -> InputError:
    """Return the error of an input as its worker met it, or raise another one."""
    place = Lines(where) if lines and where is not None else where
    if kind == "UsageProblem":
        raise UsageProblem(message, where=place, hint=hint)
    if kind != "InputError":
        raise InternalError(message, where=place, hint=hint)
    return InputError(message, where=place, hint=hint)
