"""What an answered heartbeat grants to the coordinators of a broker; it crosses from the control loop to the
data loop.

A lease is shorter than a session, so that clocks may differ in speed by a third: a lease has ended on the
slower one when a session, begun later, ends on the faster.  By a sixth, where a controller has just been
elected, which counts its election as a part of that session (decision 34).
"""

from typing import Final, NamedTuple

NO_OFFSET: Final = -1
LEASE_PARTS, SESSION_PARTS = 3, 4
"""A lease lasts this part of a session."""


class LeaseGrant(NamedTuple):
    end_ms: int
    """The end of the lease on this broker's monotonic clock."""
    lease_offset: int = NO_OFFSET
    """The metadata offset that must be applied on the data loop: until then the lease is suspended."""
    settled_offset: int = NO_OFFSET
    """The metadata offset up to which no broker answers as the coordinator that it was before."""


NO_LEASE: Final = LeaseGrant(-(1 << 62))


def lease_ms(session_timeout_ms: int) -> int:
    return session_timeout_ms * LEASE_PARTS // SESSION_PARTS
