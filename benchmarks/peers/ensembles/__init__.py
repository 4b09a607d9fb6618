"""Search, voting and choosing the diversity, against other libraries and methods."""
