"""A network's layers on other tasks, against other libraries and methods."""
