"""Using modules: voting, retrieval, choosing the diversity, and what to look at while doing so."""
