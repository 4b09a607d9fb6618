"""Searches from several clients while workers are killed and stopped."""

import pytest

from tests.cluster.limits import within

pytest.importorskip("distributed")
pytest.importorskip("psutil")


@within(280)
def test_searches_go_on_while_workers_die_and_stop():
    from benchmarks.cluster_soak import soak

    report = soak(seconds=15.0, workers=3, clients=2, n_modules=6)
    assert not report.problems()
    assert report.kills + report.stops > 0
    assert report.searches > 0
