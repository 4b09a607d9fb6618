from urllib.error import URLError

import numpy as np
import pytest

from manylens.datasets import data_available, load_dataset


def test_a_local_file_is_read_as_flat_rows(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYLENS_DATA", str(tmp_path))
    images = np.arange(24, dtype=np.uint8).reshape(6, 2, 2)
    np.savez(tmp_path / "tiny.npz", X=images, y=np.arange(6), n_train=4)
    loaded = load_dataset("tiny")
    assert loaded.X.shape == (6, 4)
    assert loaded.image_shape == (2, 2)
    assert loaded.n_train == 4
    assert data_available("tiny")
    assert not data_available("tiny", "absent")


def test_the_error_for_an_unknown_name_lists_the_known_ones(monkeypatch):
    monkeypatch.delenv("MANYLENS_DATA", raising=False)
    with pytest.raises(ValueError, match=r"neither in \$MANYLENS_DATA nor a data set that can be fetched"):
        load_dataset("no such set")


def test_the_error_names_the_data_set_that_could_not_be_fetched(monkeypatch):
    def no_network(*args, **options):
        raise URLError("Name or service not known")

    monkeypatch.delenv("MANYLENS_DATA", raising=False)
    monkeypatch.setattr("manylens.datasets.loaders.fetch_openml", no_network)
    with pytest.raises(OSError, match=r"'mnist' is not in \$MANYLENS_DATA and could not be fetched"):
        load_dataset("mnist")


def test_a_name_that_no_file_can_have_is_unknown(monkeypatch, tmp_path):
    monkeypatch.setenv("MANYLENS_DATA", str(tmp_path))
    with pytest.raises(
        ValueError, match="is neither in \\$MANYLENS_DATA nor a data set that can be fetched"
    ) as caught:
        load_dataset("a" * 5000)
    assert len(str(caught.value)) < 500
