"""A process that runs one contestant when asked: a line of JSON in, a line of JSON out."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.contestants import CONTESTANTS


def main() -> None:
    """Answer until the input ends; what a contestant prints goes nowhere."""
    answers, sys.stdout = sys.stdout, sys.stderr
    work = CONTESTANTS[sys.argv[1]]
    for line in sys.stdin:
        began, cpu = time.perf_counter(), time.process_time()
        try:
            numbers = work(json.loads(line))
        except (LookupError, ImportError) as missing:  # a command or a peer that is not there
            numbers = {"missing": str(missing)}
        reply = {
            "seconds": time.perf_counter() - began,
            "cpu": time.process_time() - cpu,
            "numbers": numbers,
            "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        print(json.dumps(reply), file=answers, flush=True)


if __name__ == "__main__":
    main()
