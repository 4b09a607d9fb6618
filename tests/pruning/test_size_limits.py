"""Which steps of a path meet a limit on the loss and on the share of wrong classes."""

import numpy as np
import pytest

from manylens.pruning.path_losses import LossPath
from manylens.pruning.size_limits import Goal, SizeLimits


@pytest.mark.parametrize(
    ("rise", "error", "margin", "good"),
    [(0.0, 0.0, 0.0, True), (0.01, 0.03, 0.0, False), (0.01, 0.03, 0.5, True), (0.02, 0.03, 0.5, False)],
)
def test_a_rise_of_wrong_classes_counts_beyond_its_margin(rise, error, margin, good):
    same = np.zeros(2)
    path = LossPath(same, same, same, same, np.full(2, rise), np.full(2, error))
    limits, goal = SizeLimits(0.01, None, None, None), Goal(0.3, 0.1, 0.3, margin)
    assert limits.good(path, goal).tolist() == [good, good]
