"""`python -m benchmarks run [NAME ...] [--quick]`, `python -m benchmarks list` and `... report`."""

import argparse
import sys

from benchmarks.harness import benchmark, figures, records, report
from benchmarks.harness.running import listing, run_in_full, run_quickly


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run benchmarks and write their records")
    run.add_argument("names", nargs="*", help="benchmarks to run (default: all)")
    run.add_argument("--quick", action="store_true", help="small sizes, one repeat, no record")
    run.add_argument("--kind", choices=sorted(report.ORDER), help="run only this kind")
    write = commands.add_parser("report", help="write RESULTS.md and the README's table from the records")
    write.add_argument(
        "--figures", action="store_true", help="draw all figures into benchmarks/figures instead"
    )
    write.add_argument("--site", action="store_true", help="write docs/benchmarks.md and its figures instead")
    commands.add_parser("list", help="list all benchmarks with the seconds of their records")
    arguments = parser.parse_args()
    if arguments.command == "report":
        write_report(arguments)
        return 0
    if arguments.command == "list":
        print("\n".join(listing()))
        return 0
    found = benchmark.discover()
    unknown = set(arguments.names) - set(found)
    if unknown:
        parser.error(f"no benchmark named {', '.join(sorted(unknown))}; known: {', '.join(found)}")
    names = arguments.names or [name for name, kind in found.items() if arguments.kind in (None, kind.kind)]
    failed = (run_quickly if arguments.quick else run_in_full)(names)
    for complaint in failed:
        print(complaint)
    return 1 if failed else 0


def write_report(arguments):
    """Write one of the three reports."""
    if arguments.figures:
        drawn = [figures.draw(record) for record in records.read_records().values()]
        print("\n".join(str(path) for path in drawn if path))
    elif arguments.site:
        report.write_site_page()
    else:
        report.write()


if __name__ == "__main__":
    sys.exit(main())
