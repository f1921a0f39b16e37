"""One Raft node as a process of its own: real disk, real gRPC, real threads.  Driven by lines of JSON.

    in    {"peers": {"2": ["127.0.0.1", 4711], ...}}    where the others are; the first one starts the node
          {"show": true}                                print what was applied
    out   {"address": [...]}  {"leading": term}  {"acked": value}  {"applied": [...]}

While it leads it proposes a new value as soon as the last one was acknowledged.
"""

import asyncio
import json
import sys
from typing import Any

from distributedlog.broker.cluster.raft_driver import RaftDriver
from distributedlog.broker.loops import LoopScheduler
from distributedlog.control.contract import Identity
from distributedlog.control.credentials import Credentials
from distributedlog.control.server import ControlServer
from distributedlog.control.transport import GrpcTransport
from distributedlog.data_directory.raft_storage import LogRaftStorage
from distributedlog.model.cluster_secret import ClusterSecrets
from distributedlog.model.errors import ConsensusError
from distributedlog.ports.clock import SystemClock
from distributedlog.ports.disk import SystemDisk
from distributedlog.ports.executor import Outcome, SystemExecutor
from distributedlog.ports.randomness import SystemRandomness
from distributedlog.raft import Entry, Membership, RaftConfig, Role
from distributedlog.storage.files import Files

HOST = "127.0.0.1"
CLUSTER = "test"
SECRETS = ClusterSecrets((b"a secret of thirty-two bytes, all",))
CONFIG = RaftConfig(election_timeout_ms=300, heartbeat_ms=60, entries_kept_behind_snapshot=20)


def say(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


class Values:
    """The state machine: a list."""

    def __init__(self) -> None:
        self.values: list[str] = []

    def apply(self, entry: Entry) -> object:
        self.values.append(entry.payload.decode())
        return entry.payload.decode()

    def snapshot(self) -> bytes:
        return json.dumps(self.values).encode()

    def restore(self, data: bytes) -> None:
        self.values = json.loads(data)


class Node:
    def __init__(self, node_id: int, directory: str, loop: asyncio.AbstractEventLoop) -> None:
        self.node_id = node_id
        self.directory = directory
        self.loop = loop
        self.values = Values()
        self.clock = SystemClock()
        own = Credentials(Identity(CLUSTER, node_id), "controller", lambda: SECRETS)
        self.transport = GrpcTransport(own, {}, randomness=SystemRandomness())
        self.server = ControlServer(own, transport=self.transport, controller=None, metadata=None)
        self.driver: RaftDriver | None = None
        self.proposed = 0
        self.waiting = False

    def start(self, members: list[int]) -> None:
        storage = LogRaftStorage(Files(SystemDisk()), self.directory, self.clock)
        if not Files(SystemDisk()).exists(f"{self.directory}/raft-state"):
            storage.format()
        self.driver = RaftDriver(
            self.node_id,
            CONFIG,
            Membership.of_voters(*members),
            self.values,
            storage=storage,
            transport=self.transport,
            executor=SystemExecutor(threads=1),
            clock=self.clock,
            scheduler=LoopScheduler(self.loop, self.clock),
            randomness=SystemRandomness(),
            snapshot_interval_entries=100,
            failed=lambda error: say(failed=str(error)),
        )
        self.loop.call_soon(self.work, 0)

    def work(self, leading_term: int) -> None:
        assert self.driver is not None
        status = self.driver.status
        if status.role is Role.LEADER:
            if status.term != leading_term:
                say(leading=status.term)
                leading_term = status.term
            if not self.waiting:
                self.propose(status.term)
        self.loop.call_later(0.002, self.work, leading_term)

    def propose(self, term: int) -> None:
        assert self.driver is not None
        self.proposed += 1
        self.waiting = True
        try:
            self.driver.propose(f"{self.node_id}-{term}-{self.proposed}".encode(), self.proposal_done)
        except ConsensusError:
            self.waiting = False

    def proposal_done(self, outcome: Outcome[object]) -> None:
        self.waiting = False
        if outcome.error is None:
            say(acked=outcome.value())

    def command(self, line: str) -> None:
        wanted = json.loads(line)
        if "peers" in wanted:
            peers = {int(node_id): tuple(address) for node_id, address in wanted["peers"].items()}
            self.transport.peers.update(peers)
            self.transport.peers.pop(self.node_id)
            if self.driver is None:
                self.start(sorted(peers))
        if "show" in wanted:
            say(applied=self.values.values)


async def main() -> None:
    loop = asyncio.get_running_loop()
    node = Node(int(sys.argv[1]), sys.argv[2], loop)
    say(address=[HOST, await node.server.start(HOST, 0)])
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        node.command(line.decode())


if __name__ == "__main__":
    asyncio.run(main())
