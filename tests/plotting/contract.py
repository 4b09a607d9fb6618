"""Tests that every display must pass."""

import sys

import matplotlib.pyplot as plt
import pytest


class DisplayContract:
    """Tests of one display; subclasses implement `make`, which returns a display that is not drawn yet."""

    def make(self):
        raise NotImplementedError

    def test_it_opens_one_figure_if_no_axes_are_given(self):
        display = self.make()
        assert display.plot() is display
        assert plt.get_fignums() == [display.figure_.number]
        assert display.ax_ in display.figure_.axes

    def test_it_draws_on_the_given_axes_and_opens_no_figure(self):
        figure, (left, right) = plt.subplots(1, 2)
        display = self.make()
        assert display.plot(right) is display
        assert display.ax_ is right
        assert display.figure_ is figure
        assert plt.get_fignums() == [figure.number]
        assert right.has_data()
        assert not left.has_data()

    def test_it_draws_in_a_figure_that_was_not_made_by_pyplot(self):
        from matplotlib.figure import Figure

        display = self.make().plot(ax=Figure().subplots())
        display.figure_.draw_without_rendering()
        assert not plt.get_fignums()

    def test_it_does_not_call_show(self, monkeypatch):
        monkeypatch.setattr(plt, "show", lambda: pytest.fail("plt.show was called"))
        self.make().plot()

    def test_keywords_are_passed_to_matplotlib(self):
        drawn = self.make().plot(alpha=0.123).ax_
        artists = [*drawn.lines, *drawn.collections, *drawn.images, *drawn.patches]
        assert 0.123 in [artist.get_alpha() for artist in artists]

    def test_unknown_keywords_are_rejected(self):
        with pytest.raises(AttributeError):
            self.make().plot(no_such_property=1)

    def test_it_can_be_drawn_twice(self):
        display = self.make()
        first = display.plot().ax_
        assert display.plot().ax_ is not first

    def test_without_matplotlib_the_error_says_how_to_install_it(self, monkeypatch):
        display = self.make()
        monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
        name = type(display).__name__
        with pytest.raises(ImportError, match=rf'{name} needs matplotlib: pip install "manylens\[plot\]"'):
            display.plot()
