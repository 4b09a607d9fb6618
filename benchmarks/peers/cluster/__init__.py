"""Many machines: precision by the workers that answer, tail latency, fits on several workers."""
