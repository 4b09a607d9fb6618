"""`python -m benchmarks run [NAME ...] [--quick]` and `python -m benchmarks report`."""

import argparse
import sys

from benchmarks import harness, report
from benchmarks.running import run_one, run_side_by_side


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


if __name__ == "__main__":
    sys.exit(main())
