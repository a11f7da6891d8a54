"""A worker process that is started again when it dies or hangs."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("worker.py")
ROOT = Path(__file__).parents[2]
SECONDS = 30.0
FIRST_SECONDS = 300.0
"""For the first answer of a process, which may have kernels to compile."""


class Worker:
    """Asks one process about files."""

    def __init__(self, *arguments: str) -> None:
        self._arguments, self._process, self._answered = arguments, None, False

    def ask(self, path: Path, kind: str) -> dict[str, Any]:
        """Return the answer, or how the process ended: {"death": -11} or {"hang": 30.0}."""
        seconds = SECONDS if self._answered else FIRST_SECONDS
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps([str(path), kind]).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            return {"death": self._end()}
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(seconds):
                process.kill()
                self._end()
                return {"hang": seconds}
        line = process.stdout.readline()
        if not line:
            return {"death": self._end()}
        self._answered = True
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._end()

    def _running(self) -> Any:
        if self._process is None:
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            self._process = subprocess.Popen(
                [sys.executable, str(WORKER), *self._arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
        return self._process

    def _end(self) -> int:
        process, self._process, self._answered = self._process, None, False
        assert process is not None
        with suppress(BrokenPipeError):  # it died with a question unread, which closing tries to send again
            process.stdin.close()
        code = process.wait()
        process.stdout.close()
        return code
