"""The cache of machine code: where it is, what makes it stale, and what happens when it is damaged."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_CONSTANTS = tuple(
    _HERE.parent / "core" / name for name in ("drift_partials.py", "formats.py", "partials.py")
)
"""Files outside this folder whose values are compiled into kernels; a test compares this with the imports."""


def enable(dispatcher: Any) -> None:
    """Give a Numba dispatcher our cache; silently none where there is no directory for it."""
    directory = cache_directory()
    if directory is None:
        return
    without = dispatcher._cache
    with contextlib.suppress(RuntimeError), _numba_cache_settings(directory):
        dispatcher.enable_caching()  # RuntimeError: the source is not a file
    # Numba quietly falls back to directories that do not have our key in their path.
    ours = directory in Path(dispatcher._cache.cache_path or "").parents
    dispatcher._cache = _CarefulCache(dispatcher._cache, directory) if ours else without


@functools.cache
def cache_directory() -> Path | None:
    """Return `<directory>/ppocli/<key>` for this version of the kernels on this machine, or None.

    The first writable one of `PPOCLI_CACHE_DIR`, `NUMBA_CACHE_DIR`, `XDG_CACHE_HOME`, `~/.cache` and a
    directory of this user below the system's temporary directory. A cached file is code that will be run,
    so the `ppocli` directory must belong to this user and be writable by nobody else.
    """
    try:
        key = _cache_key()
    except OSError:
        return None  # not installed as plain files
    return next((base / key for base in _cache_bases() if _is_private_and_writable(base)), None)


def _cache_key() -> str:
    """Hash what compiled code depends on; Numba's own key sees only the file of the outermost function."""
    import llvmlite
    import numba
    import numpy as np

    cpu = numba.config.CPU_NAME or llvmlite.binding.get_host_cpu_name()
    digest = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__} {np.__version__} {cpu}".encode())
    for path in (*sorted(_HERE.glob("*.py")), *_CONSTANTS):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)} ".encode() + content)
    return digest.hexdigest()[:32]


def _cache_bases() -> Iterator[Path]:
    """Directories to try, in order; missing parents are created only where the user named the directory."""
    for name in ("PPOCLI_CACHE_DIR", "NUMBA_CACHE_DIR"):
        if os.environ.get(name):
            path = Path(os.environ[name]).absolute()
            with contextlib.suppress(OSError):
                path.mkdir(parents=True, exist_ok=True)
            yield path / "ppocli"
    for name, rest in (("XDG_CACHE_HOME", ""), ("HOME", ".cache")):
        path = Path(os.environ.get(name, "")) / rest
        if path.is_absolute():
            with contextlib.suppress(OSError):
                path.mkdir(mode=0o700, exist_ok=True)
            yield path / "ppocli"
    with contextlib.suppress(OSError):
        temporary = Path(tempfile.gettempdir())
        if temporary != Path.cwd():  # its last resort; a working directory is not ours to fill
            yield temporary / f"ppocli-{os.getuid() if hasattr(os, 'getuid') else 'cache'}"


def _is_private_and_writable(directory: Path) -> bool:
    """Whether it is, or could be made, a real directory that this user alone can write."""
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        status = directory.lstat()
        if hasattr(os, "geteuid") and (status.st_uid != os.geteuid() or status.st_mode & 0o022):
            return False
        tempfile.TemporaryFile(dir=directory).close()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode)


@contextlib.contextmanager
def _numba_cache_settings(directory: Path) -> Iterator[None]:
    """Point Numba's cache at our directory while a function is decorated."""
    from numba import config

    ours = {"CACHE_DIR": str(directory), "CACHE_LOCATOR_CLASSES": ""}
    before = {name: getattr(config, name, "") for name in ours}
    for name, value in ours.items():
        setattr(config, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(config, name, value)


class _CarefulCache:
    """Numba's cache of one function, where a damaged file, a full disk or a second process does no harm."""

    def __init__(self, cache: Any, directory: Path) -> None:
        self._cache = cache
        self._directory = directory

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Load machine code; anything unreadable is dropped and compiled again."""
        try:
            return self._load(signature, context)
        except Exception:  # whatever unpickling half a file raises
            with contextlib.suppress(OSError):
                self._cache.flush()
            return None

    def _load(self, signature: Any, context: Any) -> Any:
        """Load machine code without what only compiling needs.

        Numba's own `load_overload` first registers the implementations of everything it can compile, which
        takes 0.13 s and 70 modules; what compiles registers them anyway. Machine code needs the runtime's
        symbols alone.
        """
        load = getattr(self._cache, "_load_overload", None)
        if load is None:  # a Numba with other names inside
            return self._cache.load_overload(signature, context)
        from numba.core.runtime import rtsys

        rtsys.initialize(context)
        return load(signature, context)

    def save_overload(self, signature: Any, result: Any) -> None:
        """Save machine code, one process at a time.

        Numba numbers its files from an index read without a lock: two processes that save different
        signatures together would leave an index that gives one the code of the other.
        """
        with contextlib.suppress(OSError), (self._directory / "lock").open("ab") as lock:
            if sys.platform != "win32":
                import fcntl

                fcntl.flock(lock, fcntl.LOCK_EX)
            self._cache.save_overload(signature, result)
