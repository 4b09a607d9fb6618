"""Paths and options that cannot be used."""

import numpy as np
import pytest

import manylens
from manylens.persistence import verify


@pytest.mark.parametrize("path", [3, None, b"model", "a\0b", object(), len])
def test_what_is_no_path_is_refused(path):
    for call in (manylens.load, verify, lambda path: manylens.save({}, path)):
        with pytest.raises(TypeError, match="is not the name of a file: give a str or a pathlib"):
            call(path)


def test_a_missing_file_is_named(tmp_path):
    for call in (manylens.load, verify):
        with pytest.raises(FileNotFoundError, match=r"There is no file .*nothing: give the path that"):
            call(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trusted": 3}, "trusted=3 is not a list"),
        ({"trusted": "package.Class"}, "trusted='package.Class' is not a list"),
        ({"trusted": np.array(2)}, r"trusted=<ndarray of shape \(\)> is not a list"),
        ({"mmap": np.array([1, 2])}, r"mmap=<ndarray of shape \(2,\)> is neither True nor False"),
        ({"max_bytes": "all"}, "max_bytes must be an instance of"),
        ({"max_bytes": True}, "max_bytes=True must be an integer, not a bool"),
    ],
)
def test_options_of_load_are_checked(tmp_path, options, message):
    manylens.save({"answer": 42}, tmp_path / "model")
    with pytest.raises(TypeError, match=message):
        manylens.load(tmp_path / "model", **options)
