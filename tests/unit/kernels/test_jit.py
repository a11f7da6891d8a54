"""Threads, forks and the cache, in processes of their own: Numba reads its settings once."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import ppocli
from ppocli.kernels import _cache, _jit
from ppocli.kernels._jit import jit

PACKAGE = Path(ppocli.__file__).parent

PROBE = """
from __future__ import annotations
import numba
import numpy as np
from ppocli.core.formats import FORMATS
from ppocli.kernels import _jit
from ppocli.kernels._jit import jit, parallel
from ppocli.kernels.math import exp

LIMIT = FORMATS["float16"].max_finite

@jit
def add_limit(x):
    return exp(x) + LIMIT

@parallel
def work(worker, n_workers, x, out, threads):
    for i in range(worker * x.size // n_workers, (worker + 1) * x.size // n_workers):
        out[i] = add_limit(x[i])
        threads[i] = numba.get_thread_id()

def run():
    numba.get_num_threads()  # starts the threads, as get_thread_id needs them
    x = np.linspace(-1.0, 1.0, 256)
    out, threads = np.empty_like(x), np.empty(x.size, np.int64)
    work(_jit.thread_count(), x, out, threads)
    return out, len(set(threads.tolist()))
"""
"""A kernel inside the package, with a helper in another module of it and a constant from `core`."""


def environment(**settings: str | None) -> dict[str, str]:
    """Build an environment without the settings under test, then with these."""
    dropped = re.compile(r"NUMBA_.*|PPOCLI_.*|OMP_.*|XDG_CACHE_HOME|PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if not dropped.fullmatch(name)}
    kept.update({name: value for name, value in settings.items() if value is not None})
    return {name: value for name, value in kept.items() if settings.get(name, "") is not None}


def python(code: str, **settings: str | None) -> list[str]:
    """Run code in a new process; return the words it prints."""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=environment(**settings),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    return run.stdout.split()


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """Copy the package, with the probe in it, to where every user can read it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        shutil.copytree(PACKAGE, folder / "ppocli", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "ppocli" / "kernels" / "probe.py").write_text(PROBE)
        yield folder


@pytest.fixture
def settings(home: Path, tmp_path: Path) -> dict[str, str]:
    """Use the copied package and a cache that is empty at first."""
    return {"PYTHONPATH": str(home), "PPOCLI_CACHE_DIR": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture(scope="module")
def warm(home: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Use the copied package and a cache shared by this module's tests."""
    cache = str(tmp_path_factory.mktemp("cache"))
    return {"PYTHONPATH": str(home), "PPOCLI_CACHE_DIR": cache, "PYTHONDONTWRITEBYTECODE": "1"}


# ---- arithmetic ------------------------------------------------------------------------------------------


@jit
def multiply_add(a: np.ndarray, b: np.ndarray, c: np.ndarray, out: np.ndarray) -> None:
    for i in range(a.size):
        out[i] = a[i] * b[i] + c[i]


@jit
def total(x: np.ndarray) -> float:
    result = 0.0
    for i in range(x.size):
        result += x[i]
    return result


@jit
def divide(a: float, b: float) -> float:
    return a / b


def test_nothing_is_fused_or_reordered() -> None:
    u = 2.0**-30  # (1 + u)(1 - u) rounds to 1; a fused operation would leave -u^2
    a, b, c = np.full(64, 1 + u), np.full(64, 1 - u), np.full(64, -1.0)
    out = np.empty(64)
    multiply_add(a, b, c, out)
    assert out.tolist() == [0.0] * 64
    # In order, each 1.0 is lost beside 2^53; summed apart in lanes they would survive.
    assert total(np.array([2.0**53] + [1.0] * 63 + [-(2.0**53)])) == 0.0


def test_division_by_zero_is_numpy_s() -> None:
    assert divide(1.0, 0.0) == np.inf
    assert np.isnan(divide(0.0, 0.0))


# ---- threads ---------------------------------------------------------------------------------------------

COUNT = """
from ppocli.kernels import _jit
note = _jit.set_threads({count})
from ppocli.kernels.probe import run
out, ran = run()
print(ran, _jit.thread_count(), note is None)
"""


@pytest.mark.parametrize("count", [1, 2, 7])
def test_as_many_threads_run_as_are_asked_for(warm: dict[str, str], count: int) -> None:
    assert python(COUNT.format(count=count), **warm) == [str(count), str(count), "True"]


def test_more_than_64_threads_are_clamped_with_a_note(warm: dict[str, str]) -> None:
    code = "from ppocli.kernels import _jit; print(_jit.set_threads(65)); " + COUNT.format(count=65)
    words = python(code, **warm)
    assert " ".join(words[:-3]) == "65 threads asked for, 64 used (the most there can be)"
    assert words[-3:] == ["64", "64", "False"]


def test_the_pool_of_an_imported_numba_is_the_limit(warm: dict[str, str]) -> None:
    words = python("import numba; " + COUNT.format(count=5), NUMBA_NUM_THREADS="3", **warm)
    assert words == ["3", "3", "False"]


def test_the_number_can_change_within_the_pool(warm: dict[str, str]) -> None:
    code = (
        COUNT.format(count=4)
        + """
import threading
_jit.set_threads(3)
print(run()[1])
seen = []
thread = threading.Thread(target=lambda: seen.append(run()[1]))  # the number holds for every caller
thread.start(); thread.join()
import numba
print(seen[0], numba.get_num_threads(), _jit.set_threads(4), run()[1])
"""
    )
    assert python(code, **warm) == ["4", "4", "True", "3", "3", "4", "None", "4"]


def test_numba_s_own_variable_is_the_default(warm: dict[str, str]) -> None:
    assert python(COUNT.format(count=""), NUMBA_NUM_THREADS="3", **warm) == ["3", "3", "True"]


@pytest.mark.parametrize("value", ["0", "many", ""])
def test_a_useless_variable_is_passed_over(warm: dict[str, str], value: str) -> None:
    cpus = str(_jit.available_cpus())
    assert python(COUNT.format(count=""), NUMBA_NUM_THREADS=value, **warm) == [cpus, cpus, "True"]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinity")
def test_the_default_follows_affinity(warm: dict[str, str]) -> None:
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n" + COUNT.format(count="")
    assert python(code, **warm) == ["1", "1", "True"]


@pytest.mark.parametrize(
    ("membership", "files", "count"),
    [
        ("0::/a/b", {"a/b/cpu.max": "300000 100000\n"}, 3),
        ("0::/a/b", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "250000 100000\n"}, 2),  # a parent's
        ("0::/a", {"a/cpu.max": "50000 100000\n"}, 1),  # half a processor is one
        ("0::/a", {"a/cpu.max": "max 100000\n"}, 16),
        ("0::/not/mounted/here", {"cpu.max": "400000 100000\n"}, 4),  # inside a container
        ("0::/", {}, 16),
        ("0::/a", {"a/cpu.max": "garbage"}, 16),
        (
            "5:memory:/m\n4:cpuacct,cpu:/a\n1:name=systemd:/",
            {"cpu/a/cpu.cfs_quota_us": "600000\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
            6,
        ),
        (
            "4:cpu:/a\n0::/",
            {"cpu/a/cpu.cfs_quota_us": "-1\n", "cpu/a/cpu.cfs_period_us": "100000\n", "cpu.max": "max 1"},
            16,
        ),
    ],
)
def test_quota_of_control_groups(tmp_path: Path, membership: str, files: dict[str, str], count: int) -> None:
    (tmp_path / "membership").write_text(membership)
    for name, content in files.items():
        path = tmp_path / "mount" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    assert _jit._cgroup_cpus(tmp_path / "membership", tmp_path / "mount", 16) == count


def test_a_system_without_control_groups(tmp_path: Path) -> None:
    assert _jit._cgroup_cpus(tmp_path / "absent", tmp_path, 16) == 16


# ---- one caller at a time, forks -------------------------------------------------------------------------


def test_callers_on_several_threads_do_not_meet(warm: dict[str, str]) -> None:
    # The work queue ends the process when they do.
    code = """
import threading
from ppocli.kernels import _jit
_jit.set_threads(2)
from ppocli.kernels.probe import run
right = run()[0].tobytes()
import numba
print(numba.threading_layer())
wrong = []
def many():
    for _ in range(200):
        if run()[0].tobytes() != right:
            wrong.append(1)
threads = [threading.Thread(target=many) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(wrong))
"""
    assert python(code, **warm) == ["workqueue", "0"]


FORK = """
import os, sys, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on, about forking beside threads
from ppocli.kernels import _jit
_jit.set_threads(2)
from ppocli.kernels import probe
{before}
sys.stdout.flush()
child = os.fork()
if child == 0:
    out, ran = probe.run()
    print(ran, _jit.thread_count(), _jit.set_threads(2))
    sys.stdout.flush()
    os._exit(0 if out.tobytes() == right else 9)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")


@needs_fork
@pytest.mark.parametrize("layer", ["workqueue", "omp"])
def test_a_child_forked_after_threads_started_runs_alone(warm: dict[str, str], layer: str) -> None:
    if layer == "omp" and importlib.util.find_spec("numba.np.ufunc.omppool") is None:
        pytest.skip("this Numba has no OpenMP layer")
    code = FORK.format(
        before="right = probe.run()[0].tobytes()\nimport numba; print(numba.threading_layer())"
    )
    words = python(code, NUMBA_THREADING_LAYER=layer, **warm)
    assert words[:3] == [layer, "1", "1"]
    note = "2 threads asked for, 1 used (this process was forked from one whose kernels ran in threads)"
    assert " ".join(words[3:-1]) == note
    assert words[-1] == "0"


@needs_fork
def test_a_child_forked_before_has_its_own_threads(warm: dict[str, str]) -> None:
    reference = "import numpy as np; right = (np.frombuffer(bytes.fromhex(os.environ['RIGHT']))).tobytes()"
    right = python("from ppocli.kernels.probe import run; print(run()[0].tobytes().hex())", **warm)[0]
    assert python(FORK.format(before=reference), RIGHT=right, **warm) == ["2", "2", "None", "0"]


@needs_fork
def test_a_child_forked_while_a_kernel_runs_does_not_wait_for_it(warm: dict[str, str]) -> None:
    before = """
right = probe.run()[0].tobytes()
held = threading.Event()
def hold():
    with _jit.kernel_lock:
        held.set()
        threading.Event().wait()
threading.Thread(target=hold, daemon=True).start()
held.wait()
"""
    assert python(FORK.format(before=before), **warm)[-1] == "0"


# ---- the cache -------------------------------------------------------------------------------------------

RESULT = """
from ppocli.kernels import _jit
_jit.on_first_compile(lambda text: print("compiled"))
from ppocli.kernels.probe import add_limit, run
print(repr(run()[0][-1].item()))
print(repr(add_limit(1.0)))
"""
RIGHT = "65506.71828182846"  # 65504 + e


def test_code_is_compiled_once_and_said_once(settings: dict[str, str]) -> None:
    assert python(RESULT, **settings) == ["compiled", RIGHT, RIGHT]
    assert python(RESULT, **settings) == [RIGHT, RIGHT]


def test_nothing_is_said_without_a_callback(settings: dict[str, str]) -> None:
    assert python("from ppocli.kernels.probe import run; run()", **settings) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "result"),
    [
        ("kernels/math.py", "Q0 = 0.5\n", "Q0 = 0.25\n", None),
        ("core/formats.py", "65504.0", "1.0", "3.718281828459045"),
    ],
)
def test_an_edited_constant_is_seen_by_the_next_process(
    home: Path, settings: dict[str, str], tmp_path: Path, file: str, old: str, new: str, result: str | None
) -> None:
    shutil.copytree(home / "ppocli", tmp_path / "edited" / "ppocli")
    settings = {**settings, "PYTHONPATH": str(tmp_path / "edited"), "PYTHONDONTWRITEBYTECODE": "1"}
    assert python(RESULT, **settings) == ["compiled", RIGHT, RIGHT]
    path = tmp_path / "edited" / "ppocli" / file
    assert path.read_text().count(old) == 1
    path.write_text(path.read_text().replace(old, new))
    first, *values = python(RESULT, **settings)
    assert first == "compiled"
    assert len(set(values)) == 1
    # exp(1) = 2 e^r with r = 1 - ln 2, of which half of r^2 / 2 is now missing.
    assert float(values[0]) == pytest.approx(
        float(result) if result else 65504 + np.e - 2 * (1 - np.log(2)) ** 2 / 4, abs=1e-9
    )


def test_the_key_covers_every_file_that_kernels_take_constants_from() -> None:
    def imported(path: Path) -> set[Path]:
        modules = [
            node.module for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)
        ]
        names = [
            name.removeprefix("ppocli.core.") for name in modules if name and name.startswith("ppocli.core.")
        ]
        return {PACKAGE / "core" / f"{name}.py" for name in names}

    found = set().union(*(imported(path) for path in (PACKAGE / "kernels").glob("*.py")))
    while more := set().union(*(imported(path) for path in found)) - found:
        found |= more
    assert set(_cache._CONSTANTS) >= found


@pytest.mark.parametrize(("suffix", "content"), [("nbi", b""), ("nbc", b"\x80\x04damaged")])
def test_a_damaged_cache_is_compiled_anew(
    settings: dict[str, str], tmp_path: Path, suffix: str, content: bytes
) -> None:
    python(RESULT, **settings)
    for path in tmp_path.rglob(f"*.{suffix}"):
        path.write_bytes(content)
    assert python(RESULT, **settings) == ["compiled", RIGHT, RIGHT]
    assert python(RESULT, **settings) == [RIGHT, RIGHT]


def test_a_full_disk_costs_only_the_cache(settings: dict[str, str]) -> None:
    code = (
        """
import errno
from numba.core import caching
def full(self, name, data):
    raise OSError(errno.ENOSPC, "no space left")
caching.IndexDataCacheFile._save_data = full
"""
        + RESULT
    )
    assert python(code, **settings) == ["compiled", RIGHT, RIGHT]


WHERE = "from ppocli.kernels._cache import cache_directory; print(cache_directory())"


def place(**settings: str | None) -> Path | None:
    """Return the directory chosen by a new process, without the key."""
    (word,) = python(WHERE, **settings)
    return None if word == "None" else Path(word).parent


UNUSABLE = "/dev/null/x"  # cannot be made, not even by root


def test_directories_in_order(tmp_path: Path) -> None:
    names = ("PPOCLI_CACHE_DIR", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME", "TMPDIR")
    (tmp_path / "HOME").mkdir()
    (tmp_path / "TMPDIR").mkdir()
    settings = {name: str(tmp_path / name) for name in names}
    chosen = []
    for name in names:
        chosen.append(place(**settings))
        settings[name] = UNUSABLE
    assert chosen == [
        tmp_path / "PPOCLI_CACHE_DIR" / "ppocli",
        tmp_path / "NUMBA_CACHE_DIR" / "ppocli",
        tmp_path / "XDG_CACHE_HOME" / "ppocli",
        tmp_path / "HOME" / ".cache" / "ppocli",
        tmp_path / "TMPDIR" / f"ppocli-{os.getuid()}",
    ]


def test_only_named_directories_are_created_with_their_parents(tmp_path: Path) -> None:
    deep = {name: str(tmp_path / name / "a" / "b") for name in ("PPOCLI_CACHE_DIR", "XDG_CACHE_HOME", "HOME")}
    assert place(**deep) == tmp_path / "PPOCLI_CACHE_DIR" / "a" / "b" / "ppocli"
    (tmp_path / "TMPDIR").mkdir()
    rest = {**deep, "PPOCLI_CACHE_DIR": None, "TMPDIR": str(tmp_path / "TMPDIR")}
    assert place(**rest) == tmp_path / "TMPDIR" / f"ppocli-{os.getuid()}"
    assert not (tmp_path / "HOME").exists()
    assert not (tmp_path / "XDG_CACHE_HOME").exists()


def test_a_directory_made_here_is_this_user_s_alone(settings: dict[str, str], tmp_path: Path) -> None:
    python(RESULT, **settings)
    assert (tmp_path / "ppocli").stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the system has no permission bits")
@pytest.mark.parametrize("kind", ["group can write", "all can write", "link", "file", "of another user"])
def test_a_directory_that_others_could_fill_is_passed_over(tmp_path: Path, kind: str) -> None:
    directory = tmp_path / "first" / "ppocli"
    directory.mkdir(parents=True)
    if kind.endswith("can write"):
        directory.chmod(0o770 if kind.startswith("group") else 0o777)
    elif kind == "of another user":
        if os.geteuid() != 0:
            pytest.skip("only root can give a directory away")
        os.chown(directory, 12345, 12345)
    else:
        directory.rmdir()
        if kind == "link":
            (tmp_path / "elsewhere").mkdir(mode=0o700)
            directory.symlink_to(tmp_path / "elsewhere")
        else:
            directory.touch()
    second = tmp_path / "second"
    chosen = place(PPOCLI_CACHE_DIR=str(tmp_path / "first"), NUMBA_CACHE_DIR=str(second))
    assert chosen == second / "ppocli"


def test_without_any_directory_there_is_no_cache_and_no_complaint(settings: dict[str, str]) -> None:
    names = ("PPOCLI_CACHE_DIR", "XDG_CACHE_HOME", "HOME")
    code = f"import tempfile; tempfile.tempdir = {UNUSABLE!r}\n" + RESULT
    words = python(f"{code}\n{WHERE}", **{**settings, **dict.fromkeys(names, UNUSABLE)})
    assert words == ["compiled", RIGHT, RIGHT, "None"]


def test_a_working_directory_is_not_filled(settings: dict[str, str], tmp_path: Path) -> None:
    names = ("PPOCLI_CACHE_DIR", "XDG_CACHE_HOME", "HOME")
    code = f"import os; os.chdir({str(tmp_path)!r})\n"
    unusable = dict.fromkeys(names, UNUSABLE)
    assert python(code + WHERE, **{**settings, **unusable, "TMPDIR": str(tmp_path)}) == ["None"]
    assert list(tmp_path.iterdir()) == []


DROP_PRIVILEGES = """
# The interpreter's own files may lie where only root can read: load what is needed of them first.
import __future__, dataclasses, fcntl, hashlib, os, tempfile
import numba
@numba.njit(parallel=True)
def load_the_compiler(x):
    for i in numba.prange(x.size):
        x[i] += 1.0
import numpy as np
import numpy.typing
load_the_compiler(np.zeros(4))
os.setgid(65534)
os.setuid(65534)
"""


def test_a_read_only_package_and_no_home(home: Path) -> None:
    """Run as a user who can write neither the package nor a home: the temporary directory serves."""
    code = (DROP_PRIVILEGES if os.geteuid() == 0 else "") + RESULT
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o1777)
        nowhere = {"HOME": "/nonexistent", "XDG_CACHE_HOME": "/nonexistent/cache", "TMPDIR": name}
        settings = {"PYTHONPATH": str(home), "PYTHONDONTWRITEBYTECODE": "1", **nowhere}
        assert python(code, **settings) == ["compiled", RIGHT, RIGHT]
        assert python(code, **settings) == [RIGHT, RIGHT]


def test_settings_of_numba_are_put_back() -> None:
    code = """
import numba
numba.config.CACHE_DIR = "/elsewhere"
numba.config.CACHE_LOCATOR_CLASSES = "InTreeCacheLocator"
from ppocli.kernels import math, loops
print(numba.config.CACHE_DIR, numba.config.CACHE_LOCATOR_CLASSES, numba.config.THREADING_LAYER)
"""
    assert python(code) == ["/elsewhere", "InTreeCacheLocator", "default"]


def test_numba_s_other_places_are_not_fallen_back_to(home: Path, settings: dict[str, str]) -> None:
    code = """
from numba.core import caching
locator = getattr(caching, "UserProvidedCacheLocator", None) or caching._UserProvidedCacheLocator
locator.from_function = classmethod(lambda *_: None)
"""
    assert python(code + RESULT, **settings) == ["compiled", RIGHT, RIGHT]
    assert list(home.rglob("*.nbi")) == []


def test_a_locator_chosen_by_the_environment_does_not_replace_the_key(
    home: Path, settings: dict[str, str], tmp_path: Path
) -> None:
    python(RESULT, NUMBA_CACHE_LOCATOR_CLASSES="InTreeCacheLocator", **settings)
    assert list(home.rglob("*.nbi")) == []
    assert len(list(tmp_path.rglob("probe.work-*.nbi"))) == 1
