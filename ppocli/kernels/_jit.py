"""The one door to the compiler: decorators, threads, the lock and fork safety.

Numba is imported inside function bodies, because its thread pool takes its size from the environment when
`numba` is imported: `set_threads` must be able to run before that.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from ppocli.errors import UsageProblem
from ppocli.kernels import _cache

Function = TypeVar("Function", bound=Callable[..., Any])
Parameters = ParamSpec("Parameters")

MAX_THREADS = 64
"""More threads than this are never started."""

COMPILE_NOTICE = "compiling kernels that are not in the cache yet, a few seconds"
"""What the callback of `on_first_compile` is called with."""


class _State:
    """What has been asked for and what has happened in this process."""

    wanted_threads: int | None = None
    numba_is_ours = False
    threads_lost_in_fork = False
    compile_callback: Callable[[str], None] | None = None
    listener: Any = None


class _KernelLock:
    """A re-entrant lock that a forked child gets anew: the thread that held it in the parent is not there."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Forget every holder."""
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


kernel_lock = _KernelLock()
"""Held while a parallel kernel runs: the work-queue threading layer aborts the process on a second caller."""


# ------------------------------------------------------------------------------------------- decorators


def jit(function: Function) -> Function:
    """Compile a kernel: IEEE arithmetic as written, division by zero as in NumPy, no interpreter lock.

    No fastmath flag is ever set, and fused multiply-adds are written out (`vector.fma`): the compiler can
    never change a bit of a result.
    """
    return cast("Function", compiled(function))


def inline(function: Function) -> Function:
    """Put the statements of a function into those of every caller, to be compiled there and nowhere else."""
    return cast("Function", compiled(function, inline="always", cache=False))


class parallel(Generic[Parameters]):  # noqa: N801 - a decorator
    """A kernel that is run once for each of some workers, which share its work.

    The compiled function takes the number of the worker and how many there are, then numbers and contiguous
    arrays. Called from Python without the first of these, it returns when all workers are done. More than one
    run in parallel on `thread_count()` threads, one caller at a time; in a child forked after threads were
    started they run one after the other, as neither thread pool survives a fork (OpenMP ends the child, the
    work queue loses its queues).

    Attributes
    ----------
    dispatcher
        The Numba dispatcher of one worker: signatures, statistics, assembly.
    """

    def __init__(self, function: Callable[Concatenate[int, int, Parameters], None]) -> None:
        self.dispatcher = compiled(function)
        self._addresses: dict[tuple[Any, ...], int] = {}

    def __call__(self, n_workers: int, *arguments: Parameters.args, **_: Parameters.kwargs) -> None:
        """Run all workers."""
        if n_workers == 1 or _State.threads_lost_in_fork:
            for worker in range(n_workers):
                self.dispatcher(worker, n_workers, *arguments)
            return
        import numba

        from ppocli.kernels.workers import run_workers

        address = self._address(n_workers, arguments)
        with kernel_lock:
            # The number belongs to the calling thread, and the caller may use Numba for other things.
            before = numba.get_num_threads()
            numba.set_num_threads(thread_count())
            try:
                run_workers(address, n_workers, arguments)
            finally:
                numba.set_num_threads(before)

    def _address(self, n_workers: int, arguments: tuple[Any, ...]) -> int:
        """Return where the machine code for arguments of these types is; compile it if it is nowhere."""
        # numba.typeof takes 0.1 ms for so many arguments.
        key = tuple(
            (one.dtype, one.ndim, one.flags.carray) if hasattr(one, "dtype") else type(one)
            for one in arguments
        )
        if key not in self._addresses:
            import numba

            types = tuple(numba.typeof(one) for one in (0, n_workers, *arguments))
            self.dispatcher.compile(types)
            result = self.dispatcher.overloads[types]
            name = result.fndesc.llvm_cfunc_wrapper_name
            self._addresses[key] = result.library.get_pointer_to_function(name)
        return self._addresses[key]


def compiled(
    function: Callable[..., Any], *, threads: bool = False, inline: str = "never", cache: bool = True
) -> Any:
    """Decorate with Numba; with a cache where there is a directory for it.

    Raises
    ------
    UsageProblem
        The compiler is turned off.
    """
    import numba

    if numba.config.DISABLE_JIT:  # Numba's own parts cannot be compiled then either
        raise UsageProblem(
            "NUMBA_DISABLE_JIT is set, and the kernels cannot run without the compiler",
            hint="unset NUMBA_DISABLE_JIT",
        )
    _prepare_numba()
    options = {"error_model": "numpy", "fastmath": False, "nogil": True, "inline": inline}
    dispatcher = numba.njit(parallel=threads, **options)(function)
    if cache:
        _cache.enable(dispatcher)
    return dispatcher


# ------------------------------------------------------------------------------------------- threads


def set_threads(count: int | None = None) -> str | None:
    """Set how many threads the parallel kernels use from now on.

    Call it before anything imports Numba: the size of the thread pool is fixed then, to `count`, but at least
    to the processors up to 8. Later calls can choose any number up to that size.

    Parameters
    ----------
    count : int, optional
        At least 1. None: `NUMBA_NUM_THREADS` where that is a positive integer, else `available_cpus()`.

    Returns
    -------
    str or None
        One sentence if fewer threads than asked for will run, else None.
    """
    wanted = count if count is not None else _default_threads()
    _State.wanted_threads = min(wanted, MAX_THREADS)
    if "numba" not in sys.modules:
        # A sleeping thread costs each call 0.01 ms, hence the 8. The variable stays: Numba reads it again.
        os.environ["NUMBA_NUM_THREADS"] = str(max(_State.wanted_threads, min(available_cpus(), 8)))
        _State.numba_is_ours = True
    runs = thread_count()
    return None if runs >= wanted else f"{wanted} threads asked for, {runs} used ({_why_fewer(runs)})"


def _why_fewer(runs: int) -> str:
    """Name the bound that was met."""
    if _State.threads_lost_in_fork:
        return "this process was forked from one whose kernels ran in threads"
    return "the most there can be" if runs == MAX_THREADS else "the thread pool of this process has that size"


def thread_count() -> int:
    """Return the number of threads on which a parallel kernel runs if it is called now."""
    if _State.threads_lost_in_fork:
        return 1
    if _State.wanted_threads is None:
        _State.wanted_threads = min(_default_threads(), MAX_THREADS)
    numba = sys.modules.get("numba")
    wanted = _State.wanted_threads
    return wanted if numba is None else min(wanted, numba.config.NUMBA_NUM_THREADS)


def _default_threads() -> int:
    """Read `NUMBA_NUM_THREADS`, else count processors."""
    value = os.environ.get("NUMBA_NUM_THREADS", "")
    return int(value) if value.isdecimal() and int(value) > 0 else available_cpus()


def available_cpus() -> int:
    """Count the processors this process may use: its affinity, and the quota of its control groups.

    A quota of 2.5 processors counts as 2; the result is at least 1.
    """
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(count, _cgroup_cpus(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"), count)))


def _cgroup_cpus(membership: Path, mount: Path, most: int) -> int:
    """Return the smallest quota, in whole processors, of the process's control groups and their parents."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return most
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = mount / "cpu" if controllers else mount
        relative = Path(group.lstrip("/"))
        # Inside a container the path may be the host's; the root of the mount is then the container's group.
        for directory in (root / relative, *(root / parent for parent in relative.parents), root):
            most = min(most, _quota(directory, most))
    return most


def _quota(directory: Path, most: int) -> int:
    """Read one control group's quota: `cpu.max` (version 2) or `cpu.cfs_*` (version 1)."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        with contextlib.suppress(OSError, ValueError):
            quota, period = " ".join((directory / name).read_text() for name in names).split()
            if quota != "max" and int(quota) > 0:
                return max(1, int(quota) // int(period))
    return most


def _after_fork_in_child() -> None:
    """Renew the lock; remember that the threads are gone, if there were any."""
    kernel_lock.renew()
    numba = sys.modules.get("numba")
    if numba is not None:
        with contextlib.suppress(ValueError, AttributeError):  # no threads were started, or half imported
            numba.threading_layer()
            _State.threads_lost_in_fork = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


# ------------------------------------------------------------------------------------------- notice


def on_first_compile(callback: Callable[[str], None] | None) -> None:
    """Call `callback(COMPILE_NOTICE)` once, before a kernel is compiled because the cache does not have it.

    None (the state at start) says nothing.
    """
    _State.compile_callback = callback


def _prepare_numba() -> None:
    """Choose the threading layer; hear from Numba when a function of this folder misses the cache.

    The work queue is in every wheel and starts exactly as many threads as it is told to. Its threads sleep
    between calls, where those of GNU OpenMP spin: beside a thread that decodes the next chunk, on two cores,
    the kernel got 1.02 to 1.6 times as many calls done. It costs 0.08 ms a call. The choice is for the whole
    process, so it is made only if `set_threads` came before anybody's `import numba` and the user made none.
    """
    if _State.listener is not None:
        return
    from numba import config
    from numba.core import event

    if _State.numba_is_ours and config.THREADING_LAYER == "default":
        config.THREADING_LAYER = "workqueue"

    class Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            callback = _State.compile_callback
            if callback and event.data["dispatcher"].py_func.__module__.startswith(f"{__package__}."):
                _State.compile_callback = None
                callback(COMPILE_NOTICE)

        def on_end(self, event: Any) -> None:
            pass

    _State.listener = Listener()
    event.register("numba:compile", _State.listener)
