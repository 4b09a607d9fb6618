"""Kill processes that save, at random moments: `python -m tests.faults.kills --kills 500`.

A child saves two models in turn over the same file or folder and is killed (SIGKILL). Then it must hold one
of the two, whole. Prints one line per kind of file, and exits with 1 if a kill lost or mixed anything.
"""

import argparse
import functools
import importlib.util
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import manylens
from manylens import ModularAutoencoder, ModuleNeighbors

WIDTH, QUERIES = 30, 5
LARGE = 300_000  # numbers beside a model, so that saving takes a while


def rows(seed, n=2000):
    return np.random.default_rng(seed).standard_normal((n, WIDTH)).astype(np.float32)


def make_model(seed):
    X = rows(seed)
    pipeline = make_pipeline(ModularAutoencoder(3, 4, random_state=0), LogisticRegression())
    return {"model": pipeline.fit(X, X[:, 0] > 0), "beside": rows(seed, LARGE // WIDTH)}


def ask_model(loaded):
    return [loaded["model"].predict_proba(rows(9, QUERIES)), loaded["beside"]]


def make_index(seed, **options):
    return ModuleNeighbors(ModularAutoencoder(3, 4, random_state=0), **options).fit(rows(seed, 4000))


def ask_index(index):
    return [*index.kneighbors(rows(9, QUERIES)), index.coordinates_]


def make_folder(seed, n=4000):
    from manylens.cluster import DistributedNeighbors

    modules = ModularAutoencoder(3, 4, random_state=0)
    return DistributedNeighbors(modules, n_groups=3, n_shards=2).fit(rows(seed, n))


def save_folder(index, path):
    index.save(path)


def load_folder(path):
    from manylens.cluster import DistributedNeighbors

    return DistributedNeighbors.load(path)


def ask_folder(index):
    found = index.kneighbors(rows(9, QUERIES))
    return [found.distances, found.rows]


# kind of file -> make a model from a seed, save it, load it, and ask it
KINDS = {
    "model": (make_model, manylens.save, manylens.load, ask_model),
    "index": (make_index, ModuleNeighbors.save, ModuleNeighbors.load, ask_index),
}
if importlib.util.find_spec("faiss"):
    make_lists = functools.partial(make_index, backend="faiss")
    KINDS["faiss index"] = (make_lists, ModuleNeighbors.save, ModuleNeighbors.load, ask_index)

if importlib.util.find_spec("distributed"):
    KINDS["index folder"] = (make_folder, save_folder, load_folder, ask_folder)


def start(act):
    """Run a function without end in a child process, and return its id."""
    child = os.fork()
    if child:
        return child
    try:
        while True:
            act()
    except BaseException as error:
        os.write(2, f"the child failed: {error!r}\n".encode())
        os._exit(1)


def kill(child):
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def run(kind, kills, folder, seed):
    """Numbers of files that were whole, lost and mixed after a kill, and of files left at the end."""
    make, save, load, ask = KINDS[kind]
    models = [make(0), make(1)]
    expected = [ask(model) for model in models]
    path, chance = Path(folder) / kind.replace(" ", "-"), random.Random(seed)
    began = time.perf_counter()
    save(models[0], path)
    duration = time.perf_counter() - began
    n_files = count_files(folder)
    count = {"first": 0, "second": 0, "lost": 0, "mixed": 0}
    for _ in range(kills):
        child = start(lambda: [save(model, path) for model in models])
        time.sleep(chance.uniform(0, 4 * duration + 0.02))
        if kill(child) != -signal.SIGKILL:
            raise RuntimeError("the child ended before it was killed")
        try:
            found = ask(load(path))
        except Exception as error:
            print(f"{kind}: {error!r}", file=sys.stderr)
            count["lost"] += 1
            continue
        is_one = [same(found, each) for each in expected]
        count[("first" if is_one[0] else "second") if any(is_one) else "mixed"] += 1
    save(models[0], path)  # removes what killed processes left
    count["left"] = count_files(folder) - n_files
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    return count


def count_files(folder):
    return sum(len(names) for _, _, names in os.walk(folder))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="in total, over all kinds of files")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    bad = 0
    for number, kind in enumerate(KINDS):
        kills = given.kills // len(KINDS) + (number < given.kills % len(KINDS))
        with tempfile.TemporaryDirectory() as folder:
            count = run(kind, kills, folder, given.seed)
        bad += count["lost"] + count["mixed"] + count["left"]
        print(f"{kind}: {kills} kills (seed {given.seed}), {count}", flush=True)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
