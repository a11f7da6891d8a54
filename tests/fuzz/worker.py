"""Reads files that are named on standard input, one after the other, and says what came of each as JSON.

python worker.py            the library: inspect_files with scan, then evaluate
python worker.py oracle     the second opinion
"""

from __future__ import annotations

import contextlib
import io
import json
import resource
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))


def library(path: str, kind: str) -> dict[str, Any]:
    """Return what ppocli makes of a file."""
    import ppocli

    said: dict[str, Any] = {}
    for name in ("inspect", "evaluate"):
        try:
            if name == "inspect":
                ppocli.inspect_files([path], scan=True)
                continue
            report = ppocli.evaluate(path, threads=1)
            metrics = report.metrics
            counts = {key: metrics[key] for key in ("n_rows", "n_tokens", "n_masked", "n_null", "n_nan")}
            counts |= {key: metrics[key] for key in ("n_posinf", "n_neginf")}
            said |= counts | {"loss": metrics.get("policy_loss_finite", metrics["policy_loss"])}
        except ppocli.PpoCliError as problem:
            said[f"{name} error"] = [int(problem.exit_code), str(problem.message), str(problem.where)]
    return said


def second_opinion(path: str, kind: str) -> dict[str, Any]:
    """Return what the other reader makes of a file."""
    from oracle import metrics_of

    try:
        return metrics_of(kind, Path(path).read_bytes())
    except Exception as problem:
        return {"error": f"{type(problem).__name__}: {problem}"[:300]}


def most_memory() -> int:
    """Return the most memory that this program had, in kilobytes.

    Linux counts the memory of the process that started it in `ru_maxrss` too, the whole test run's here.
    """
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    """Answer until standard input ends."""
    look = second_opinion if sys.argv[1:] == ["oracle"] else library
    answers = sys.stdout
    for line in sys.stdin:
        path, kind = json.loads(line)
        noise = io.StringIO()
        try:
            with contextlib.redirect_stdout(noise), contextlib.redirect_stderr(noise):
                said = look(path, kind)
        except BaseException as problem:
            said = {"crash": f"{type(problem).__name__}: {problem}"[:300]}
        said["kilobytes"] = most_memory()
        answers.write(json.dumps(said) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
