"""What all tests share: Hypothesis draws the same examples each time, but in the long runs new ones."""

import os

from hypothesis import HealthCheck, settings

LONGEST_BYTES_IN_A_NAME = 60

# gRPC's threads, which tests of the control plane leave in a worker, would begin anew in a forked child,
# before it has become the program that a test starts, and close that program's descriptors.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("soak", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("soak" if os.environ.get("DLOG_SOAK") else "repeatable")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Long bytes are named by their length: bytes made at collection (a time stamp in a gzip header)
    would else give a test another name in each worker, and the whole run would be refused.
    """
    if isinstance(val, bytes) and len(val) > LONGEST_BYTES_IN_A_NAME:
        return f"{argname}-of-{len(val)}-bytes"
    return None
