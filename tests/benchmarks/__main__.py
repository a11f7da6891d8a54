"""Print the budget table: `python tests/benchmarks`, with `pip install 'ppocli[benchmark]'` for the peers.

Every line is measured in this run, in pairs of A and B taken in turn; shown is the median of the pairs with
the least and the most. A cost per token is a difference between two sizes, so that start-up drops out. The
answers of a pair are compared, and a difference stops the run. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.table import SECTIONS, Bench, machine


def main() -> int:
    """Measure, print line by line, and return 1 where a budget is not met."""
    parser = argparse.ArgumentParser(
        prog="python tests/benchmarks", description=(__doc__ or "").partition("\n\n")[0]
    )
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"some of: {', '.join(SECTIONS)}")
    parser.add_argument(
        "--small", type=int, default=4_000_000, metavar="N", help="tokens of the smaller files"
    )
    parser.add_argument(
        "--large", type=int, default=16_000_000, metavar="N", help="tokens of the larger files"
    )
    parser.add_argument("--pairs", type=int, default=5, metavar="N", help="pairs of runs (default 5)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="where files are written and kept")
    given = parser.parse_args()
    unknown = set(given.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"no section {min(unknown)}; there are {', '.join(SECTIONS)}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.data or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        missed = _print(
            Bench(folder, given.small, given.large, given.pairs), given.sections or list(SECTIONS)
        )
    print(f"\n{missed} over budget; {machine()}")
    return 1 if missed else 0


def _print(bench: Bench, sections: list[str]) -> int:
    """Print the lines as they are measured; return how many budgets are not met."""
    print(machine())
    shown, missed = "", 0
    for name in sections:
        for line in SECTIONS[name](bench):
            if line.section != shown:
                shown = line.section
                print(f"\n{shown}")
            verdict = {True: "met", False: "OVER", None: ""}[line.met]
            missed += line.met is False
            print(f"  {line.what:36}  {line.measured:60}  {line.budget:14}  {verdict}".rstrip(), flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main())
