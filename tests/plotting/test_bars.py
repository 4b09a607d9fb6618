from manylens.plotting import BarDisplay

from .contract import DisplayContract


class TestBars(DisplayContract):
    def make(self):
        return BarDisplay({"before": [0.3, 0.2], "after": [0.1, 0.1]}, [10, 20], value_name="error")


class TestOneSeries(DisplayContract):
    def make(self):
        return BarDisplay({"score": [0.3, 0.2]}, ["a", "b"])


def test_every_series_has_its_bars_side_by_side():
    before, after = BarDisplay({"before": [0.3, 0.2], "after": [0.1, 0.15]}, [10, 20]).plot().bars_
    assert [bar.get_height() for bar in before] == [0.3, 0.2]
    assert [bar.get_height() for bar in after] == [0.1, 0.15]
    for one, other in zip(before, after, strict=True):
        assert one.get_x() + one.get_width() <= other.get_x()


def test_horizontal_bars_start_at_the_top():
    display = BarDisplay({"score": [0.3, 0.2]}, ["first", "second"]).plot(horizontal=True)
    assert [bar.get_width() for bar in display.bars_[0]] == [0.3, 0.2]
    low, high = display.ax_.get_ylim()
    assert low > high
