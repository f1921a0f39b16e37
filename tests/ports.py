"""TCP ports for what a test starts, or for where nobody is to listen.

They are kept for this process until it ends: neither another test's server nor an outgoing connection can
take one between its choice and its use, or while a broker that is to have it again is down.
"""

from distributedlog.cli.ports import PortReservations

_RESERVATIONS = PortReservations()


def free_port() -> int:
    """One on which nobody listens, and nobody will who is not told of it."""
    return _RESERVATIONS.reserve_free()
