"""The clusters that a process is connected to: made once, kept from task to task, safe against fork.

A worker process of Spark runs one task after the other, and each micro-batch has its tasks: connections and
what is known of leaders are kept between them, by bootstrap list and options.  A `ConnectedCluster` is such a
cluster with an event loop of its own, which runs only during a call; what happens to its connections
meanwhile is noticed by the next one.  It is used by one thread: each has its own.

**Fork.**  Spark's workers are forked from a process that may have connections.  The sockets and the selector
of the parent are the child's too, and whatever the child did with them would happen to the parent: it makes
its own, and never touches or frees those, not even at its end.

**Patience.**  A broker that restarts is away for a moment.  Every call is tried again for as long as
`kafka.default.api.timeout.ms` says (60 s), the first contact included; a task that reads has
`kafkaConsumer.pollTimeoutMs` (120 s) without a record before it gives up.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from distributedlog.client.addresses import parse_bootstrap
from distributedlog.client.metadata import Cluster
from distributedlog.client.options import ClientOptions

T = TypeVar("T")

CLUSTERS_MAX: Final = 64
"""The clusters of one thread; beyond that the one unused for longest is closed."""


class ConnectedCluster:
    """A cluster and its loop.  Made by `connect`."""

    def __init__(self, bootstrap: str, options: ClientOptions) -> None:
        self.cluster = Cluster(parse_bootstrap(bootstrap), options)
        self._runner = asyncio.Runner()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def close(self) -> None:
        self.run(self.cluster.close())
        self._runner.close()


_Key = tuple[str, ClientOptions, str, int]
_clusters: dict[_Key, ConnectedCluster] = {}
_left_alone: list[ConnectedCluster] = []
"""The parent's: they are kept so that nothing ever frees them."""
_owner_pid = os.getpid()


def connect(bootstrap: str, options: ClientOptions, purpose: str = "") -> ConnectedCluster:
    """Returns the connected cluster of this thread, which is made if there is none.

    Another purpose has another one, so that one does not wait for the other.
    """
    _leave_those_of_a_parent()
    key = (bootstrap, options, purpose, threading.get_ident())
    connected = _clusters.pop(key, None)
    if connected is None:
        connected = ConnectedCluster(bootstrap, options)
        mine = [each for each in _clusters if each[-1] == key[-1]]
        for oldest in mine[: max(0, len(mine) + 1 - CLUSTERS_MAX)]:
            _clusters.pop(oldest).close()
    _clusters[key] = connected
    return connected


def close_connections() -> None:
    """Closes all of this process."""
    _leave_those_of_a_parent()
    while _clusters:
        _clusters.popitem()[1].close()


def _leave_those_of_a_parent() -> None:
    global _owner_pid
    if os.getpid() != _owner_pid:
        _left_alone.extend(_clusters.values())
        _clusters.clear()
        _owner_pid = os.getpid()


os.register_at_fork(after_in_child=_leave_those_of_a_parent)
