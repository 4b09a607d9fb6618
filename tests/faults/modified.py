"""Load and use files modified on purpose, with correct checksums: `python -m tests.faults.modified`.

A modified file must be refused, or give answers; it must not crash the process. The loops are compiled with
bounds checks, so that an access outside an array is an error even where it would not crash.
"""

import argparse
import copy
import os
import random
import sys
import tempfile
import warnings
from pathlib import Path

OUTSIDE = "index is out of bounds"  # what a loop with bounds checks raises, and nothing else
NUMBERS = (0, 1, -1, 2, 7, 255, 2**31 - 1, 2**31, 2**63 - 1, -(2**31), 0.5, 1e300, None, "x", True)
KINDS = (
    "CountSketch",
    "index, exact",
    "index, paper",
    "pruning.PrunedEnsemble",
    "KD tree",
    "voting by trees",
)


def leaves(node, at=()):
    """Paths to all plain values of the description."""
    if isinstance(node, dict | list):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from leaves(value, (*at, key))
    else:
        yield at


def change(parts, content, chance):
    """Change one array or one value of the description."""
    import numpy as np

    if parts and chance.random() < 0.5:
        number = chance.choice([k for k, part in enumerate(parts) if len(part)])
        part = bytearray(parts[number])
        width = chance.choice((1, 4, 8))
        for _ in range(chance.choice((1, 1, 4))):
            at = chance.randrange(0, len(part), width)
            extreme = chance.choice((b"\0", b"\xff", b"\x7f", os.urandom(1))) * width
            part[at : at + width] = extreme
        parts[number] = np.frombuffer(bytes(part), dtype=np.uint8)
        return
    *steps, last = chance.choice(list(leaves(content)))
    for step in steps:
        content = content[step]
    content[last] = chance.choice(NUMBERS)


def rewrite(source, path, chance):
    """Write a copy of a file with one change and correct checksums."""
    from manylens.persistence.files import PartReader, PartWriter

    with PartReader.open(source) as reader:
        parts = [reader.read(k, length) for k, (_, length, _) in enumerate(reader.parts)]
        content = [copy.deepcopy(reader.content)]
    change(parts, content, chance)
    with open(path, "wb") as stream:
        writer = PartWriter(stream)
        for part in parts:
            writer.add(part)
        writer.finish(content[0])


def use(name, loaded):
    """Answers of a loaded model, and its update if it is a sketch."""
    from tests.persistence.fitted import X, answers

    found = answers(name, loaded)
    if name == "CountSketch":
        loaded.update(X)
    return found


def run(name, files, seed):
    """Numbers of files that were refused and answered, and messages of accesses outside an array."""
    import manylens
    from tests.persistence.fitted import fitted

    chance, count, outside = random.Random(seed), {"refused": 0, "answered": 0}, []
    with tempfile.TemporaryDirectory() as folder:
        source, path = Path(folder) / "source", Path(folder) / "modified"
        manylens.save(fitted(name), source)
        for _ in range(files):
            rewrite(source, path, chance)
            try:
                found = use(name, manylens.load(path))
            except Exception as error:
                count["refused"] += 1
                found = {"load": f"{type(error).__name__}: {error}"}
            else:
                count["answered"] += 1
            outside += [each for each in found.values() if isinstance(each, str) and OUTSIDE in each[:60]]
    return count, outside


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1000, help="per kind of model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", default=None, help="folder for compiled loops")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=given.cache or folder)
        warnings.simplefilter("ignore")
        bad = 0
        for name in KINDS:
            count, outside = run(name, given.files, given.seed)
            bad += len(outside)
            print(
                f"{name}: {given.files} files (seed {given.seed}), {count}, outside an array {len(outside)}"
            )
            for each in outside[:3]:
                print(f"  {each}")
            sys.stdout.flush()
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
