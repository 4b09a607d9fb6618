"""Hot loops: numba kernels over plain arrays, compiled when first called. No estimator lives here."""
