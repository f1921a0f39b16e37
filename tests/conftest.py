"""What all tests share: Hypothesis draws the same examples each time, but in the long runs new ones."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("soak", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("soak" if os.environ.get("DLOG_SOAK") else "repeatable")
