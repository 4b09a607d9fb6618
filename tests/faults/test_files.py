"""A crash, a full disk, a damaged file or another process never costs a saved model, or the process."""

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import manylens
from manylens import ModuleNeighbors
from manylens.persistence import files, verify
from tests.faults import kills
from tests.persistence.fitted import NEW, fitted

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["CountSketch", "ModularKernelPCA", "ModuleNeighbors", "pruning.PrunedEnsemble"]


@contextmanager
def largest_file(size):
    """A disk on which no file can grow beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def run(module, *arguments, timeout=300):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=timeout, env=environment, check=False
    )


@pytest.mark.slow
def test_no_kill_loses_or_mixes_a_file():
    done = run("tests.faults.kills", "--kills", "200")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("'lost': 0, 'mixed': 0, 'left': 0") == len(kills.KINDS)


@pytest.mark.slow
def test_no_modified_file_crashes_the_process_or_reads_outside_an_array():
    done = run("tests.faults.modified", "--files", "150")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", SMALL)
def test_a_full_disk_leaves_the_old_file(name, tmp_path):
    path = tmp_path / "model"
    manylens.save(fitted("KernelAlignment"), path)
    old = path.read_bytes()
    for size in (0, 10, 64, 700, 2000):
        with largest_file(size), pytest.raises(OSError, match=r"model was not saved: .* name is unchanged"):
            manylens.save(fitted(name), path)
        assert path.read_bytes() == old
        assert os.listdir(tmp_path) == ["model"]
    manylens.load(path)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one megabyte, in memory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs the rights of the administrator, on Linux")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("room", [0, 1, 4096, 100_000, 300_000])
def test_a_full_file_system_leaves_the_old_file(small_disk, room):
    path, large = small_disk / "model", [np.random.default_rng(0).random(50_000)]  # 400 kB
    manylens.save([1, np.ones(300)], path)
    old = path.read_bytes()
    status = os.statvfs(small_disk)
    (small_disk / "ballast").write_bytes(bytes(status.f_bavail * status.f_frsize - room // 4096 * 4096))
    with pytest.raises(OSError, match=r"model was not saved: No space left .* name is unchanged"):
        manylens.save(large, path)
    assert path.read_bytes() == old
    assert sorted(os.listdir(small_disk)) == ["ballast", "model"]
    (small_disk / "ballast").unlink()
    manylens.save(large, path)
    np.testing.assert_array_equal(manylens.load(path)[0], large[0])


def test_a_full_file_system_leaves_the_old_folder(small_disk):
    pytest.importorskip("distributed")
    make, save, load, ask = kills.KINDS["index folder"]
    index = make(0, 100)
    save(index, small_disk / "index")
    expected, n_files = ask(index), len(os.listdir(small_disk / "index"))
    with pytest.raises(OSError, match="was not saved: No space left on device"):
        save(make(1, 50_000), small_disk / "index")
    assert kills.same(ask(load(small_disk / "index")), expected)
    assert len(os.listdir(small_disk / "index")) == n_files


def test_an_error_at_any_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "model"
    manylens.save([1, np.ones(3)], path)
    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            with pytest.raises(OSError, match="was not saved: No space left on device") as caught:
                manylens.save([2], path)
            assert caught.value.errno == 28
        assert manylens.load(path)[0] == 1
        assert os.listdir(tmp_path) == ["model"]


def test_an_interrupt_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "model"
    manylens.save([1], path)
    monkeypatch.setattr(files.PartWriter, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        manylens.save([2], path)
    assert manylens.load(path) == [1]
    assert os.listdir(tmp_path) == ["model"]


def test_a_read_only_folder_is_reported_and_keeps_its_file():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        manylens.save([1], path)
        os.chmod(folder, 0o555)
        reading, writing = os.pipe()
        child = os.fork()
        if not child:  # permissions do not stop the administrator
            try:
                if os.geteuid() == 0:
                    os.setuid(65534)
                manylens.save([2], path)
                os.write(writing, b"saved")
            except BaseException as error:
                os.write(writing, repr(error).encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(writing)
        with os.fdopen(reading) as said:
            text = said.read()
        os.chmod(folder, 0o755)
        assert text.startswith("PermissionError")
        assert "model was not saved: Permission denied. The file of this name is unchanged." in text
        assert manylens.load(path) == [1]


def test_several_savers_do_not_collide(tmp_path):
    make, save, load, ask = kills.KINDS["model"]
    models = [make(seed) for seed in range(3)]
    expected = [ask(model) for model in models]
    path = tmp_path / "model"
    save(models[0], path)
    children = [kills.start(lambda model=model: save(model, path)) for model in models]
    try:
        found = [ask(load(path)) for _ in range(25)]
    finally:
        codes = [kills.kill(child) for child in children]
    assert codes == [-signal.SIGKILL] * 3  # none of them failed before
    assert all(any(kills.same(one, each) for each in expected) for one in found)
    save(models[0], path)
    assert os.listdir(tmp_path) == ["model"]


def test_unfinished_files_of_running_processes_and_other_machines_are_kept(tmp_path):
    running = tmp_path / f".manylens-{files.this_host()}-{os.getpid()}-{16 * '0'}.part"
    elsewhere = tmp_path / f".manylens-{8 * '0'}-1-{16 * '0'}.part"
    abandoned = tmp_path / f".manylens-{files.this_host()}-{2**22 + 1}-{16 * '0'}.part"
    for path in (running, elsewhere, abandoned):
        path.touch()
    manylens.save([1], tmp_path / "model")
    assert {path.name for path in tmp_path.iterdir()} == {"model", running.name, elsewhere.name}


@pytest.mark.parametrize("name", SMALL)
def test_every_damaged_file_is_refused(name, tmp_path):
    manylens.save(fitted(name), tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    path, chance = tmp_path / "it", random.Random(0)
    said = r"it is damaged or was modified \(|it has format|it is (an empty|not a|a text) file"
    for _ in range(250):
        at = chance.randrange(len(whole))
        path.write_bytes(whole[:at])
        with pytest.raises(ValueError, match=said):
            manylens.load(path)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1 :])
        with pytest.raises(ValueError, match=said):
            manylens.load(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(ValueError, match=f"it has {len(whole) + 1} bytes instead of {len(whole)}"):
        manylens.load(path)


def test_bit_flips_in_a_faiss_index_never_reach_faiss(tmp_path):
    pytest.importorskip("faiss")
    fitted("index, faiss").save(tmp_path / "whole")
    whole, chance = (tmp_path / "whole").read_bytes(), random.Random(0)
    refused = 0
    for _ in range(80):
        at = chance.randrange(64, len(whole))
        (tmp_path / "damaged").write_bytes(
            whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1 :]
        )
        try:
            ModuleNeighbors.load(tmp_path / "damaged", mmap=False)
        except ValueError:
            refused += 1
    assert refused == 80


def test_mapped_rows_are_checked_on_request(tmp_path):
    index = fitted("ModuleNeighbors")
    index.save(tmp_path / "index")
    verify(tmp_path / "index")
    whole = (tmp_path / "index").read_bytes()
    rows = np.ascontiguousarray(index.coordinates_).tobytes()
    at = whole.index(rows) + len(rows) // 2
    (tmp_path / "index").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    ModuleNeighbors.load(tmp_path / "index")  # mapped rows are not read
    with pytest.raises(ValueError, match=r"index is damaged or was modified .* does not match its checksum"):
        verify(tmp_path / "index")
    with pytest.raises(ValueError, match="does not match its checksum"):
        ModuleNeighbors.load(tmp_path / "index", mmap=False)


def test_a_mapped_index_survives_a_save_over_its_file(tmp_path):
    index = fitted("ModuleNeighbors")
    index.save(tmp_path / "index")
    mapped = ModuleNeighbors.load(tmp_path / "index")
    fitted("index, paper").save(tmp_path / "index")
    for mine, theirs in zip(mapped.kneighbors(NEW), index.kneighbors(NEW), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_link_stays_a_link_and_permissions_stay(tmp_path):
    target = tmp_path / "target"
    manylens.save([1], target)
    os.chmod(target, 0o600)
    (tmp_path / "link").symlink_to(target)
    manylens.save([2], tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert manylens.load(target) == [2]
    assert target.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("given", ["folder", "device", "missing"])
def test_a_path_that_cannot_be_a_file_is_refused(given, tmp_path):
    path = {"folder": tmp_path, "device": Path(os.devnull), "missing": tmp_path / "no" / "model"}[given]
    said = {
        "folder": "is a folder",
        "device": "is not a regular file",
        "missing": "was not saved: No such file",
    }
    with pytest.raises((OSError, ValueError), match=said[given]):
        manylens.save([1], path)
    assert not path.is_file()
