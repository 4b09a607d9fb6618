"""Records of full runs: written as JSON, and read again for the reports."""

import json

import numpy as np

from benchmarks.harness.benchmark import HERE

RECORDS = HERE / "records"


def read_records(folder=RECORDS):
    """All records, by name; those written before there were kinds are comparisons."""
    records = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return {record["name"]: {"kind": "comparison", **record} for record in records}


def save(record, folder=RECORDS):
    """Write one record as JSON."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{record['name']}.json"
    path.write_text(json.dumps(record, indent=1, default=as_plain) + "\n")
    return path


def as_plain(value):
    """A NumPy scalar or array as JSON can hold it."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{type(value)} does not go into a record")
