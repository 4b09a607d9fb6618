"""`python -m benchmarks run [NAME ...] [--quick]` and `python -m benchmarks report`."""

import argparse
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from benchmarks import harness, report
from manylens.datasets import data_available


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run benchmarks and write their records")
    run.add_argument("names", nargs="*", help="which (all)")
    run.add_argument("--quick", action="store_true", help="small sizes, one repeat, no record")
    commands.add_parser("report", help="write RESULTS.md from the records")
    commands.add_parser("list", help="name the benchmarks")
    arguments = parser.parse_args()
    if arguments.command == "report":
        report.write()
        return 0
    found = harness.discover()
    if arguments.command == "list":
        print("\n".join(f"{name}: {kind.__doc__.splitlines()[0]}" for name, kind in found.items()))
        return 0
    unknown = set(arguments.names) - set(found)
    if unknown:
        parser.error(f"no benchmark named {', '.join(sorted(unknown))}; known: {', '.join(found)}")
    names = arguments.names or list(found)
    if arguments.quick:
        run_side_by_side(names)
        return 0
    for name in names:
        run_one(name, quick=False)
    return 0


def run_side_by_side(names):
    """Quick runs show that nothing is broken, not how fast it is: one a core, on one thread each."""
    os.environ.update(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        for finished in [pool.submit(run_one, name, quick=True) for name in names]:
            finished.result()


def run_one(name, quick):
    kind = harness.discover()[name]
    missing = [name for name in kind.needs if not data_available(name)]
    if missing:
        print(f"{kind.__name__}: left out, $MANYLENS_DATA has no {', '.join(missing)}", flush=True)
        return
    start = time.perf_counter()
    record = harness.run(kind(quick))
    if not quick:
        harness.save(record)
    print(f"{kind.__name__}: {time.perf_counter() - start:.1f} s", flush=True)
    for contender, values in record["results"].items():
        shown = {key: value for key, value in values.items() if key != "all_seconds"}
        print("   ", contender, report.inline(shown), flush=True)
    for claim in record["claims"]:
        print("   ", report.verdict(claim), flush=True)


if __name__ == "__main__":
    sys.exit(main())
