"""One supervised lens: a learned metric. NCA = objective x evaluation or batcher x optimizer."""

from manylens.metric.nca import NCA

__all__ = ["NCA"]
