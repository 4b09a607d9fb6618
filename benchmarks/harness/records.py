"""Records of full runs: one JSON file per family of benchmarks, one entry per benchmark."""

import fcntl
import json
import os
import re
from contextlib import contextmanager

import numpy as np

from benchmarks.harness.benchmark import HERE

RECORDS = HERE / "records"


def read_records(folder=RECORDS):
    """All records, by benchmark name."""
    return {
        name: record
        for path in sorted(folder.glob("*.json"))
        for name, record in json.loads(path.read_text()).items()
    }


def current_records(kinds, folder=RECORDS):
    """All records of benchmarks in `kinds` (name -> class), worded as the code words them.

    The measured numbers are those of the records. Descriptions, claims and bounds come from the code, so a
    report never shows a sentence that the code no longer contains.
    """
    kept = {name: record for name, record in read_records(folder).items() if name in kinds}
    return {name: kinds[name].reworded(record) for name, record in kept.items()}


def save(record, folder=RECORDS):
    """Add a record to the file of its family, or replace the one that is there."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{record['family']}.json"
    with locked(folder):  # benchmarks of one family may finish in several processes at once
        entries = json.loads(path.read_text()) if path.exists() else {}
        entries[record["name"]] = record
        path.write_text(as_text(dict(sorted(entries.items()))))
    return path


@contextmanager
def locked(folder):
    """Hold an exclusive lock on a folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def as_text(entries):
    """Indented JSON with each list of numbers on one line."""
    text = json.dumps(entries, indent=1, default=as_plain)
    return re.sub(r"\[\s+([^][{}]*?)\s+\]", lambda found: f"[{' '.join(found[1].split())}]", text) + "\n"


def as_plain(value):
    """Convert a NumPy scalar or array to what JSON can hold."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{type(value)} cannot be stored in a record: give a number, a string or an array")
