"""timm without torchvision, which it needs only to read images, and blocks as torchvision has them."""

import importlib.abc
import importlib.machinery
import sys
import types
from unittest.mock import MagicMock

import pytest

nn = pytest.importorskip("torch").nn


class Stub(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds any module of torchvision: an empty one, whose names are empty classes."""

    def find_spec(self, name, path=None, target=None):
        is_wanted = name.partition(".")[0] == "torchvision"
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if is_wanted else None

    def create_module(self, spec):
        def make(name):
            if name.startswith("__"):
                raise AttributeError(name)
            return MagicMock() if name == "InterpolationMode" else type(name, (), {})

        module = types.ModuleType(spec.name)
        module.__getattr__ = make
        return module

    def exec_module(self, module):
        pass


def import_timm():
    """The module timm; torchvision is not there before or after."""
    if "timm" in sys.modules or importlib.util.find_spec("torchvision"):
        return pytest.importorskip("timm")
    stub = Stub()
    sys.meta_path.insert(0, stub)
    try:
        return pytest.importorskip("timm")
    finally:
        sys.meta_path.remove(stub)
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]


class ConvNormActivation(nn.Sequential):
    """As in torchvision: a container of one convolution."""

    def __init__(self, n_in, n_out, kernel=1, stride=1, groups=1):
        conv = nn.Conv2d(n_in, n_out, kernel, stride, kernel // 2, groups=groups, bias=False)
        super().__init__(conv, nn.BatchNorm2d(n_out), nn.ReLU6(inplace=True))


class InvertedResidual(nn.Module):
    """The block of torchvision's MobileNetV2."""

    def __init__(self, n_in, n_out, stride):
        super().__init__()
        wide = 6 * n_in
        self.conv = nn.Sequential(
            ConvNormActivation(n_in, wide),
            ConvNormActivation(wide, wide, 3, stride, groups=wide),
            nn.Conv2d(wide, n_out, 1, bias=False),
            nn.BatchNorm2d(n_out),
        )

    def forward(self, x):
        return self.conv(x)


class MobileNet(nn.Module):
    """The structure of torchvision's MobileNetV2, with three blocks."""

    def __init__(self):
        super().__init__()
        blocks = [InvertedResidual(8, 12, 1), InvertedResidual(12, 16, 2), InvertedResidual(16, 20, 2)]
        self.features = nn.Sequential(ConvNormActivation(3, 8, 3, 2), *blocks, ConvNormActivation(20, 40))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(40, 5))

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))
