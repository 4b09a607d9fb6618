"""Using modules: voting, retrieval, choosing the diversity."""
