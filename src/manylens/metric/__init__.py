"""One supervised lens: a learnt metric. NCA = objective x evaluation or batcher x optimiser."""

from manylens.metric.nca import NCA

__all__ = ["NCA"]
