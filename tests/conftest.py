"""Settings for all tests."""

import os

from hypothesis import HealthCheck, settings

# Deterministic examples in CI: a failure there must be one that a developer can repeat.
settings.register_profile(
    "ci", derandomize=True, deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("dev", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci" if os.environ.get("CI") else "dev")
