"""Peak memory of a process and a description of the machine, read from Linux's /proc."""

import os
import platform
import threading
from importlib.metadata import PackageNotFoundError, version

PACKAGES = (
    "numpy",
    "scipy",
    "scikit-learn",
    "numba",
    "torch",
    "faiss-cpu",
    "dcor",
    "cvxpy",
    "metric-learn",
    "pynndescent",
    "lightgbm",
    "xgboost",
)


class PeakMemory:
    """Context manager that samples anonymous pages; `megabytes` is the peak above the start."""

    def __enter__(self):
        self._start = self._peak = anonymous_bytes()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self):
        while not self._stop.wait(0.002):
            self._peak = max(self._peak, anonymous_bytes())

    def __exit__(self, *exception):
        self._stop.set()
        self._thread.join()
        self._peak = max(self._peak, anonymous_bytes())
        self.megabytes = (self._peak - self._start) / 2**20


def anonymous_bytes():
    """Resident memory of this process that is not backed by a file."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("RssAnon"):
                return int(line.split()[1]) * 1024
    raise RuntimeError("peak memory is read from /proc: run the benchmarks on Linux")


def machine():
    """Describe the machine and the versions of packages."""
    versions = {name: found for name in PACKAGES if (found := version_of(name))}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory),
        "python": platform.python_version(),
        "versions": versions,
    }


def version_of(package):
    """Version of an installed package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def cpu_name():
    """Name of the processor."""
    with open("/proc/cpuinfo") as info:
        for line in info:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()
