"""How the defaults were chosen: scripts to run as `python -m benchmarks.tuning.NAME`."""
