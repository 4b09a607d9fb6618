import gc
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numba import njit
from numba.core import event

import manylens
from manylens.native import compiling
from manylens.native.compiling import compiled, folder_hash


@compiled
def total(values):
    result = 0.0
    for value in values:
        result += value
    return result


def test_compiled_loops_release_the_lock_and_are_cached():
    assert total(np.arange(4.0)) == 6.0
    assert total.targetoptions["nogil"]
    assert total.stats.cache_path is not None


def test_the_cache_is_keyed_by_the_folder():
    """`_key_cache_by_folder` relies on a private attribute of numba: see there if this fails."""
    stamp = total._cache._cache_file._source_stamp
    assert stamp[1] == folder_hash()


def test_a_change_in_any_file_of_the_folder_discards_the_cache(tmp_path):
    package = tmp_path / "loops"
    package.mkdir()
    source = (compiling.__file__, package / "compiling.py")
    (package / "__init__.py").write_text("")
    source[1].write_text(Path(source[0]).read_text())
    (package / "inner.py").write_text(
        "from loops.compiling import compiled\n@compiled\ndef inner(x):\n    return x + 1\n"
    )
    (package / "outer.py").write_text(
        "from loops.compiling import compiled\nfrom loops.inner import inner\n"
        "@compiled\ndef outer(x):\n    return inner(x)\n"
    )
    call = [sys.executable, "-c", "from loops.outer import outer; print(outer(1))"]

    def result():
        return subprocess.run(
            call, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
        ).stdout

    assert result() == "2\n"
    (package / "inner.py").write_text((package / "inner.py").read_text().replace("x + 1", "x + 2"))
    assert result() == "3\n"


def test_functions_of_other_libraries_without_a_module_are_compiled():
    source = {}
    exec("def twice(x):\n    return 2 * x", source)  # pynndescent makes such functions
    source["twice"].__module__ = None
    assert njit(source["twice"])(21) == 42


def test_a_long_compilation_is_announced_once(caplog, monkeypatch):
    monkeypatch.setattr(compiling, "ANNOUNCE_AFTER", 0.01)
    listener = compiling._Listener()
    ours = SimpleNamespace(py_func=compiling.compiled)
    start = event.Event("numba:compile", event.EventStatus.START, data={"dispatcher": ours})
    with caplog.at_level(logging.WARNING, logger="manylens"):
        for _ in range(2):
            listener.on_start(start)
            if listener._timer is not None:
                listener._timer.join(timeout=10)
            listener.on_end(start)
    assert [record.message for record in caplog.records].count(caplog.records[0].message) == 1
    assert "compiling" in caplog.records[0].message


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_collection_pauses_while_a_loop_compiles(enabled):
    before, listener = gc.isenabled(), compiling._Listener()
    start = event.Event(
        "numba:compile",
        event.EventStatus.START,
        data={"dispatcher": SimpleNamespace(py_func=compiling.compiled)},
    )
    try:
        (gc.enable if enabled else gc.disable)()
        for _ in range(2):
            listener.on_start(start)
            assert not gc.isenabled()
        listener.on_end(start)
        assert not gc.isenabled()
        listener.on_end(start)
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()
        listener._timer.cancel()


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_loops_compile_without_a_folder_for_the_cache():
    code = (
        "from numba.core import caching\n"
        "caching.CacheImpl._locator_classes = []\n"
        "from manylens.native.compiling import compiled\n"
        "print(compiled(lambda x: x + 1)(1))\n"
    )
    assert run(code) == "2\n"


@pytest.mark.skipif(shutil.which("setpriv") is None or os.geteuid() != 0, reason="needs to give up rights")
def test_manylens_runs_where_package_home_and_temporary_folder_are_read_only():
    """As in a hardened container: numba finds no place for its cache."""
    code = (
        "import numpy as np, manylens; print(manylens.__file__)\n"
        "print(manylens.CountSketch(8).update(np.eye(3)).n_rows_)\n"
    )
    package = Path(manylens.__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "manylens"
        shutil.copytree(package, copied, ignore=shutil.ignore_patterns("__pycache__", "data"))
        for path in (Path(folder), *Path(folder).rglob("*")):
            path.chmod(0o555)
        environment = {"PATH": os.environ["PATH"], "HOME": folder, "TMPDIR": folder, "PYTHONPATH": folder}
        done = subprocess.run(  # even the administrator cannot write there without capabilities
            ["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=120,
            env=environment,
            cwd=folder,
            check=False,
        )
        for path in (Path(folder), *Path(folder).rglob("*")):
            path.chmod(0o755)
    if done.returncode and "setpriv" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.stdout.splitlines() == [str(copied / "__init__.py"), "3"], done.stderr


def test_loops_run_as_plain_python_when_numba_is_disabled():
    code = "from manylens.native.compiling import compiled; print(compiled(lambda x: x + 1)(1))"
    assert run(code, NUMBA_DISABLE_JIT="1") == "2\n"


PLAIN = """
import numpy as np
from manylens import NCA, CountSketch, ModularAutoencoder, ModuleNeighbors, ScanNeighborsClassifier
from manylens.metric import Tree
X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
found = [NCA(2, method=method, max_iter=2, init="pca").fit(X, y).components_ for method in ("exact", Tree())]
index = ModuleNeighbors(ModularAutoencoder(2, 2, random_state=0), n_neighbors=3).fit(X)
found += [index.kneighbors(X[:4])[1], ScanNeighborsClassifier(3).fit(X, y).predict_proba(X[:4])]
found += [CountSketch(4).update(X).summary_]
print(repr([np.round(each, 6).tolist() for each in found]))
"""


def test_estimators_give_the_same_as_plain_python():
    assert json.loads(run(PLAIN, NUMBA_DISABLE_JIT="1")) == json.loads(run(PLAIN))
