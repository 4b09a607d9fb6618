"""Many diverse lenses: one certified solver, and the estimators and baselines that stand on it."""
