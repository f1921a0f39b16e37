"""Brokers that are killed between the clients' tests, so that leaders move in the middle of them.

Before every EVERYth test one of the brokers, never the first, is killed with SIGKILL; `dlog dev` starts it
again a second later.  The test begins at once: its clients meet a broker that is gone, leaders that move
away, and leaders that come back.  The next one is killed when every partition has all its replicas in sync
again, so that no topic is below its min.insync.replicas for long.

Some tests begin in a cluster that is whole: what is acknowledged by a leader alone may be lost with it, a
broker that is gone is not described, and most clients try an administrator's call only once.
"""

import asyncio
import itertools
import os
import signal
import time
from typing import Final

from distributedlog.client.admin.admin import Admin
from distributedlog.model.errors import DlogError
from tests.system.dev_cluster import DevCluster

EVERY: Final = 12
WANTS_WHOLE: Final = ("test_admin.py", "fewer_acknowledgements")
"""Parts of the names of tests that need every broker."""
WHOLE_SECONDS_MAX: Final = 120.0
LOOK_SECONDS: Final = 0.1


class Disturber:
    def __init__(self, cluster: DevCluster) -> None:
        self._cluster = cluster
        self._tests = 0
        self._victims = itertools.cycle(range(1, len(cluster.pids())))
        self.kills = 0

    def before(self, test: str) -> None:
        """Prepares the cluster for a test."""
        self._tests += 1
        if any(part in test for part in WANTS_WHOLE):
            self.wait_until_whole()
        elif self._tests % EVERY == 0:
            self.wait_until_whole()
            os.kill(self._cluster.pids()[next(self._victims)], signal.SIGKILL)
            self.kills += 1

    def wait_until_whole(self) -> None:
        give_up = time.monotonic() + WHOLE_SECONDS_MAX
        while not asyncio.run(self._is_whole()):
            assert time.monotonic() < give_up, "the cluster has not become whole again"
            time.sleep(LOOK_SECONDS)

    async def _is_whole(self) -> bool:
        """Returns whether every replica is in sync."""
        try:
            async with Admin.connect(self._cluster.ready()["bootstrap"]) as admin:
                if len(await admin.cluster.brokers()) < len(self._cluster.pids()):
                    return False
                topics = await admin.list_topics(with_internal=True)
        except DlogError:
            return False
        return not any(each.is_under_replicated for topic in topics for each in topic.partitions)
