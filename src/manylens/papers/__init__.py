"""The papers' algorithms as printed, with their equation numbers, one module per paper.

- `modular_dimensionality_reduction`: `module_by_module`, `compressed_adam`, `sgd_on_pairs`, `drop_module`
- `modular_autoencoders`: `backfit`, `gradient_descent`
- `linear_kernel_alignment`: alignment and sketches, `layer_ridge`, the weights of equations 4.3 to 4.10
- `fast_nca`: the objective, its gradient and the chapter's algorithms

Estimators never import this package. Tests compare the fast code with it, and `benchmarks/papers` uses it.
`with_modules` of `ModularKernelPCA` and `ModularAutoencoder` turns modules into a fitted estimator.
"""

from manylens.papers import (
    fast_nca,
    linear_kernel_alignment,
    modular_autoencoders,
    modular_dimensionality_reduction,
)

__all__ = ["fast_nca", "linear_kernel_alignment", "modular_autoencoders", "modular_dimensionality_reduction"]
