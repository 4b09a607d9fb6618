"""Search among 10^5 to 10^7 embeddings: ours, faiss's HNSW and IVF-PQ fast-scan, hnswlib and usearch.

    python -m benchmarks.scale_search 100000 1000000 10000000
    python -m benchmarks.scale_search 100000 --contenders ours,hnswlib --threads 1
    python -m benchmarks.scale_search --estimate 1000000 10000000
    python -m benchmarks.scale_search --figure

The rows are made from the 8,677 embeddings of Caltech-101 images (EfficientNet-Lite0) in the shared data, on
their 128 leading principal axes: each is a random mixture of two images of a class, plus half the difference
of two others of a class times a normal number, plus noise of a tenth of the typical standard deviation. So no
row is a copy, rows of a class form curved, overlapping clouds, and the variances fall as those of embeddings
do. Queries are 1,000 more such rows.

Every contender runs in a process of its own, which reports the seconds (also of the processor) and the
memory of the build (without that of the rows) and, for recalls of .90, .95 and .99, queries per second in
the fastest of five searches of a batch, and the median milliseconds of one query. Ours calibrates itself;
the others get the first of several settings that reaches the recall on half of the queries, and all are
scored on the other half. The rows are written to a file in blocks and read from there, so they need not fit
into memory (`SCALE_FOLDER` is where, by default the system's temporary folder). The result of a contender is
added to `benchmarks/scale_search.json` as soon as it is there, and a run that was interrupted continues with
those that are missing (`--again` measures all). This is outside `make bench`: run it once, on an idle
machine.
"""

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from manylens.datasets import load_dataset

RESULTS = Path(__file__).with_name("scale_search.json")
FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "scale_search.png"
RECALLS = (0.90, 0.95, 0.99)
K, QUERIES, ALONE, BLOCK = 10, 1000, 300, 100_000
REPEATS = 5  # searches of a batch, the fastest of which counts
BEAMS = (10, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024)
PROBES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def embedding_axes(width):
    """Embeddings of Caltech-101 on their leading principal axes, (n, width), and their classes."""
    data = load_dataset("caltech101_effnetlite0_emb")
    X = data.X.astype(np.float32)
    X -= X.mean(axis=0)
    axes = np.linalg.eigh(X.T @ X)[1][:, ::-1][:, :width]
    return X @ axes, data.y


def mixed_block(X, y, n, rng):
    """Rows that mix and perturb embeddings of one class each, (n, width)."""
    order = np.argsort(y, kind="stable")
    sizes = np.bincount(y)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    of = rng.choice(y, n)  # classes, as often as they occur
    a, b, c, d = (order[starts[of] + (rng.random(n) * sizes[of]).astype(int)] for _ in range(4))
    share = rng.random((n, 1), dtype=np.float32)
    rows = share * X[a] + (1 - share) * X[b]
    rows += 0.5 * rng.standard_normal((n, 1), dtype=np.float32) * (X[c] - X[d])
    rows += 0.1 * X.std() * rng.standard_normal(rows.shape, dtype=np.float32)
    return rows


def mixed_embeddings(n, width, seed, out=None):
    """Rows (n, width) in float32, made in blocks so that the same seed gives the same first rows."""
    X, y = embedding_axes(width)
    out = np.empty((n, width), dtype=np.float32) if out is None else out
    for number, start in enumerate(range(0, n, BLOCK)):
        rng = np.random.default_rng([seed, number])
        out[start : start + BLOCK] = mixed_block(X, y, min(BLOCK, n - start), rng)
    return out


def exact_farthest(rows, queries):
    """Squared distances of the tenth nearest rows, (n_queries,)."""
    near = np.full((len(queries), K), np.inf, dtype=np.float32)
    for start in range(0, len(rows), BLOCK):
        some = np.asarray(rows[start : start + BLOCK])
        squares = np.einsum("ij,ij->i", some, some) - 2 * queries @ some.T
        squares += np.einsum("ij,ij->i", queries, queries)[:, None]
        near = np.partition(np.hstack([near, squares]), K - 1, axis=1)[:, :K]
    return near.max(axis=1)


class Ours:
    needs = "manylens"
    settings = RECALLS

    def __init__(self, rows, threads):
        from manylens import ModuleNeighbors

        self.index = ModuleNeighbors(n_neighbors=K, recall=max(RECALLS), n_jobs=threads).fit(rows)

    def at(self, recall):
        from manylens.ensembles.recall_calibration import calibrate_index

        request = replace(self.index._request(), recall=recall, n_leading=self.index.n_leading_)
        self.index._change(lambda index: calibrate_index(index, request))  # with rows of the base, like `fit`

    def search(self, queries):
        return self.index.kneighbors(queries, return_distance=False)


class FaissHNSW:
    needs = "faiss"
    description, settings = "HNSW32", BEAMS

    def __init__(self, rows, threads):
        import faiss

        faiss.omp_set_num_threads(threads)
        self.index = faiss.index_factory(rows.shape[1], self.description)
        self.index.train(np.ascontiguousarray(rows[:: max(1, len(rows) // 500_000)]))
        for start in range(0, len(rows), BLOCK):
            self.index.add(np.ascontiguousarray(rows[start : start + BLOCK]))

    def at(self, beam):
        self.index.hnsw.efSearch = beam

    def search(self, queries):
        return self.index.search(queries, K)[1]


class FaissIVFPQ(FaissHNSW):
    description, settings = "IVF4096,PQ64x4fs,RFlat", PROBES

    def at(self, probes):
        import faiss

        faiss.extract_index_ivf(self.index).nprobe = probes
        self.index.k_factor = 10


class Hnswlib:
    needs = "hnswlib"
    settings = BEAMS

    def __init__(self, rows, threads):
        import hnswlib

        self.index = hnswlib.Index("l2", rows.shape[1])
        self.index.init_index(len(rows), M=16, ef_construction=200, random_seed=0)
        self.index.set_num_threads(threads)
        for start in range(0, len(rows), BLOCK):
            self.index.add_items(rows[start : start + BLOCK])

    def at(self, beam):
        self.index.set_ef(beam)

    def search(self, queries):
        return self.index.knn_query(queries, K)[0].astype(np.int64)


class Usearch:
    needs = "usearch"
    settings = BEAMS

    def __init__(self, rows, threads):
        from usearch.index import Index

        self.threads = threads
        self.index = Index(ndim=rows.shape[1], metric="l2sq", dtype="f32", connectivity=16)
        for start in range(0, len(rows), BLOCK):
            some = np.ascontiguousarray(rows[start : start + BLOCK])
            self.index.add(np.arange(start, start + len(some)), some, threads=threads)

    def at(self, beam):
        self.index.expansion_search = beam

    def search(self, queries):
        found = self.index.search(queries, K, threads=self.threads)
        return found.keys.reshape(len(queries), -1).astype(np.int64)


CONTENDERS = {
    "ours": Ours,
    "faiss_hnsw": FaissHNSW,
    "faiss_ivfpq": FaissIVFPQ,
    "hnswlib": Hnswlib,
    "usearch": Usearch,
}


def share_found(found, rows, queries, farthest):
    """Fraction of the rows found that are no farther than the tenth nearest."""
    gaps = rows[np.maximum(found, 0)] - queries[:, None]
    squares = np.einsum("ijk,ijk->ij", gaps, gaps)
    return float(np.mean((squares <= farthest[:, None] * (1 + 1e-4)) & (found >= 0)))


def resident_bytes():
    """Anonymous memory of this process, which rows mapped from a file do not count to."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("RssAnon")))


def measure(pipe, name, folder, threads):
    """Build one contender, search at each recall, and send the numbers."""
    rows, queries, farthest = (np.load(f"{folder}/{part}.npy", mmap_mode="r") for part in PARTS)
    queries, farthest = np.array(queries), np.array(farthest)
    kind, half = CONTENDERS[name], len(queries) // 2
    if name == "ours":  # compile beforehand
        small = kind(np.array(rows[:25_000]), threads)
        small.search(queries[:50])
        small.search(queries[:1])
        del small
    before, start, busy = resident_bytes(), time.perf_counter(), time.process_time()
    index = kind(rows, threads)
    made = {
        "build_seconds": time.perf_counter() - start,
        "build_cpu_seconds": time.process_time() - busy,
        "bytes_per_row": (resident_bytes() - before) / len(rows),
    }
    print(f"{name}: built in {made['build_seconds']:.0f} s", flush=True)
    made["at"] = {}
    for recall in RECALLS:
        for setting in (recall,) if name == "ours" else kind.settings:
            index.at(setting)
            if share_found(index.search(queries[:half]), rows, queries[:half], farthest[:half]) >= recall:
                break
        seconds = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            found = index.search(queries[half:])
            seconds.append(time.perf_counter() - start)
        alone = []
        for row in queries[half : half + ALONE]:
            begin = time.perf_counter()
            index.search(row[None])
            alone.append(time.perf_counter() - begin)
        made["at"][str(recall)] = {
            "setting": setting,
            "recall": share_found(found, rows, queries[half:], farthest[half:]),
            "queries_per_second": half / min(seconds),
            "alone_ms": 1e3 * float(np.median(alone)),
        }
    pipe.send(made)


PARTS = ("rows", "queries", "farthest")
MISSED = 0.98
LABELS = {
    "ours": "ModuleNeighbors",
    "faiss_hnsw": "faiss HNSW",
    "faiss_ivfpq": "faiss IVF-PQ",
    "hnswlib": "hnswlib",
    "usearch": "usearch",
}


def make_data(n, width, folder):
    """Write rows, queries and the distances of the exact neighbors to a folder."""
    rows = np.lib.format.open_memmap(f"{folder}/rows.npy", "w+", np.float32, (n, width))
    mixed_embeddings(n, width, 0, rows)
    queries = mixed_embeddings(QUERIES, width, 1)
    np.save(f"{folder}/queries.npy", queries)
    np.save(f"{folder}/farthest.npy", exact_farthest(rows, queries))


def run(sizes, contenders, width, threads, again=False):
    """Measure the contenders at all sizes, unless that has been done, and add the results to the file."""
    context = multiprocessing.get_context("spawn")
    for n in sizes:
        missing = []
        for name in contenders:
            if find_spec(CONTENDERS[name].needs) is None:
                print(f"{name}: {CONTENDERS[name].needs} is not installed", flush=True)
            elif again or not any(is_of(each, n, width, threads, name) for each in kept()):
                missing.append(name)
        if not missing:
            continue
        with tempfile.TemporaryDirectory(dir=os.environ.get("SCALE_FOLDER")) as folder:
            start = time.perf_counter()
            make_data(n, width, folder)
            print(f"{n:,} rows and exact neighbors: {time.perf_counter() - start:.0f} s", flush=True)
            for name in missing:
                start = time.perf_counter()
                ours, theirs = context.Pipe()
                process = context.Process(target=measure, args=(theirs, name, folder, threads))
                process.start()
                theirs.close()
                try:
                    made = ours.recv()
                except EOFError:
                    made = {"failed": "the process ended, perhaps for lack of memory"}
                process.join()
                made["seconds"] = time.perf_counter() - start
                keep({"n": n, "width": width, "threads": threads, "contender": name, **made})


def is_of(result, n, width, threads, contender):
    """Whether a result is of this size and contender."""
    return [result[key] for key in ("n", "width", "threads", "contender")] == [n, width, threads, contender]


def kept():
    """All results on file."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else []


def keep(result):
    """Print a result, and add it to the file in place of an earlier one of the same run."""
    print(json.dumps(result), flush=True)
    what = [result[key] for key in ("n", "width", "threads", "contender")]
    results = [each for each in kept() if not is_of(each, *what)]
    whole = RESULTS.with_suffix(".new")  # replaced at once, so that an interruption leaves the old file
    whole.write_text(json.dumps([*results, result], indent=1) + "\n")
    whole.replace(RESULTS)


def estimate(sizes, width, threads):
    """Print how long the contenders would take, from their largest size on file and growth by n log n."""
    for n in sizes:
        total = 0.0
        for name in CONTENDERS:
            known = [
                each
                for each in kept()
                if is_of(each, each["n"], width, threads, name) and "failed" not in each
            ]
            if not known:
                print(f"{n:,} rows, {name}: nothing on file")
                continue
            largest = max(known, key=lambda each: each["n"])
            growth = n * np.log(n) / (largest["n"] * np.log(largest["n"]))
            build, whole = growth * largest["build_seconds"], growth * largest["seconds"]
            total += whole
            print(
                f"{n:,} rows, {name}: build {build / 60:.1f} minutes, all {whole / 60:.1f}, "
                f"{largest['bytes_per_row'] * n / 1e9:.1f} GB (from {largest['n']:,} rows)"
            )
        print(f"{n:,} rows: {total / 60:.0f} minutes for all, without making the data")


def build_time(result):
    """Seconds of a build: of peers, processor time per thread, which other programs hardly change.

    Peers keep all threads busy while they build; ours does not, so its seconds are those of the clock.
    """
    if result["contender"] == "ours" or "build_cpu_seconds" not in result:
        return result["build_seconds"]
    return result["build_cpu_seconds"] / result["threads"]


def draw():
    """Draw build time, memory and speed against the number of rows."""
    import matplotlib.pyplot as plt

    results = [each for each in kept() if "failed" not in each]
    panels = {
        "build, seconds": build_time,
        "bytes per row": lambda each: each["bytes_per_row"],
        "queries per second for recall .99": lambda each: each["at"]["0.99"]["queries_per_second"],
        "ms per single query for recall .99": lambda each: each["at"]["0.99"]["alone_ms"],
    }
    figure, axes = plt.subplots(1, len(panels), figsize=(16, 3.8), layout="constrained")
    for axis, (label, value) in zip(axes, panels.items(), strict=True):
        for name in CONTENDERS:
            mine = sorted((each for each in results if each["contender"] == name), key=lambda each: each["n"])
            points = [(each["n"], value(each)) for each in mine]
            if points:
                (line,) = axis.loglog(*zip(*points, strict=True), marker="o", label=LABELS[name])
                missed = [
                    point
                    for point, each in zip(points, mine, strict=True)
                    if "recall" in label and each["at"]["0.99"]["recall"] < MISSED
                ]
                for point in missed:
                    axis.plot(*point, "o", color=line.get_color(), markerfacecolor="white")
        axis.set(xlabel="rows", ylabel=label)
    axes[0].legend(loc="upper left")
    figure.supxlabel(f"Empty circles: the recall on other queries was below {MISSED}", fontsize="small")
    figure.savefig(FIGURE, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sizes", nargs="*", type=int)
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="measure what is on file, too")
    parser.add_argument("--estimate", action="store_true", help="print how long the sizes would take")
    parser.add_argument("--figure", action="store_true")
    options = parser.parse_args()
    if options.estimate:
        estimate(options.sizes, options.width, options.threads)
    else:
        run(options.sizes, options.contenders.split(","), options.width, options.threads, options.again)
    if options.figure:
        draw()
