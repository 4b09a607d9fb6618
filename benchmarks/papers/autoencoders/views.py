"""Modules of the paper's Algorithm 1 in place of the direct solver's."""

import numpy as np

from manylens.papers.modular_autoencoders import backfit

ALGORITHM, DIRECT = "Algorithm 1", "Direct"  # modules by the paper's algorithm, and by this library's solver


def by_backfitting(model, seed, max_iter=100):
    """A copy of a fitted `ModularAutoencoder` with modules of Algorithm 1, from a random start.

    It works on the leading M H coordinates, in which all minimizers lie.
    """
    M, H, k = model.n_modules, model.n_components, len(model.spectrum_)
    used = min(k, M * H)
    rng = np.random.default_rng(seed)
    found = backfit(model.spectrum_[:used], M, H, model.diversity_, rng, max_iter=max_iter, tol=1e-6).modules
    encoders, decoders = np.zeros((M, H, k)), np.zeros((M, k, H))
    encoders[:, :, :used], decoders[:, :used] = found.encoders, found.decoders
    return model.with_modules(encoders, decoders)
