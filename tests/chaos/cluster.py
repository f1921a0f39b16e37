"""Brokers, each a process of its own, which are killed, stopped and started again; and who leads what.

    up        the process runs
    stopped   SIGSTOP: it is there and does nothing
    down      it was killed, or it ended by itself

Every fault is made and healed by one thread.  Healing is the same whatever happened: who is stopped goes on,
who is down is started, and all serve again.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from distributedlog.client.admin.blocking import BlockingAdmin
from distributedlog.client.admin.topics import NewTopic
from distributedlog.client.options import ClientOptions
from distributedlog.groups.placement import partition_of
from distributedlog.model.errors import DlogError, TopicExistsError
from distributedlog.model.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests.chaos.moves import Moves
from tests.chaos.network import Network
from tests.chaos.switches import SWITCHES, Switches
from tests.chaos.undo import UNDO
from tests.ports import free_port
from tests.system.server_process import ServerProcess, dlog, options, secret_in

ASK_SECONDS = 3.0
OFFSETS_PARTITIONS, TRANSACTIONS_PARTITIONS = 3, 3
PATIENCE_SECONDS = 90.0
ASKING = ClientOptions(connect_timeout_ms=1_000, request_timeout_ms=2_000, call_timeout_ms=3_000)
COMMON: Mapping[str, object] = {
    "cluster.id": "chaos",
    "drain.timeout.ms": 5_000,
    "broker.session.timeout.ms": 3_000,  # shorter than most faults, so that leaders change
    "broker.heartbeat.interval.ms": 500,
    "replica.lag.time.max.ms": 4_000,
    "ops.listener": "none",
    "log.segment.bytes": 256
    * 1024,  # so that segments are sealed, and their producers' states written, often
    "offsets.topic.num.partitions": OFFSETS_PARTITIONS,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.num.partitions": TRANSACTIONS_PARTITIONS,
    "transaction.state.log.replication.factor": 3,
    "group.min.session.timeout.ms": 1_000,
    "group.initial.rebalance.delay.ms": 100,
    # Every new coordinator gives members a whole session: with 45 s the dead would stay until the faults end.
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": 3_000,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 500,
    "auto.create.topics.enable": "false",
}


class Broker(ServerProcess):
    """A broker's process, and whether it is stopped."""

    is_stopped = False

    def __init__(self, directory: Path, settings: Mapping[str, object], through: Mapping[int, int]) -> None:
        super().__init__(directory, settings, waits=False)
        redirected = (f"--through={port}={proxy}" for port, proxy in through.items())
        faults = directory / "faults"
        faults.mkdir(parents=True)
        self.switches = Switches(faults / SWITCHES)
        self.undo = faults / UNDO
        self.program = (sys.executable, "-m", "tests.chaos.node", f"--faults={faults}", *redirected)

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How it ended by itself; None: it runs, or it was killed."""
        return None if self.process is None else self.process.poll()

    def ends_within(self, seconds: float) -> bool:
        """Whether its process has ended after so long at most; one that is stopped is not waited for."""
        if self.process is not None and not self.is_stopped:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)
        return not self.is_up

    def kill(self, *, wait: bool = True) -> None:
        """SIGKILL; nothing happens to one that is down."""
        if self.process is not None:
            self.process.kill()
            if not wait:
                return
            self.process.wait()
            self.process = None
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
        self.is_stopped = False

    def pause(self) -> None:
        if self.process is not None and self.is_up:
            self.process.send_signal(signal.SIGSTOP)
            self.is_stopped = True

    def go_on(self) -> None:
        if self.process is not None and self.is_stopped:
            self.process.send_signal(signal.SIGCONT)
        self.is_stopped = False

    def start(self) -> None:
        """Starts it, whatever became of the process before; it is not waited for."""
        self.kill()
        super().start()

    def wait_until_ready(self) -> dict[str, Any]:
        return self.facts if self._pipe is None else super().wait_until_ready()

    def serves(self, wait_seconds: float = 0.0) -> bool:
        """Whether its process has come to serve."""
        if self._pipe is not None and select.select([self._pipe], [], [], wait_seconds)[0] and self.is_up:
            self.wait_until_ready()
        return self._pipe is None


class Cluster:
    """A context manager: all brokers serve when it is entered."""

    def __init__(self, directory: Path, size: int, settings: Mapping[str, object]) -> None:
        self.directory = directory
        self.ids: Sequence[int] = range(1, size + 1)
        self._stack = ExitStack()
        self._clients = {node: free_port() for node in self.ids}
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self._clients.values())
        control = {node: free_port() for node in self.ids}
        directory.mkdir(parents=True, exist_ok=True)
        secret = secret_in(directory)
        self.network = Network(self.ids, self._clients, control)
        self.brokers = {
            node: Broker(
                directory / f"node-{node}",
                {
                    **COMMON,
                    "node.id": node,
                    "listeners": f"PLAINTEXT://127.0.0.1:{self._clients[node]}",
                    "control.listener": f"127.0.0.1:{control[node]}",
                    "controller.quorum.voters": self._voters(node, control),
                    "cluster.secret.file": secret,
                    **settings,
                },
                {
                    self._clients[target]: port
                    for (source, target), port in self.network.data_ports.items()
                    if source == node
                },
            )
            for node in self.ids
        }
        self.moves = Moves(self.bootstrap, ASKING)
        self.ended: list[tuple[int, int]] = []
        """Brokers that ended by themselves, and their exit codes."""
        self._admin = AdminClient(
            {"bootstrap.servers": self.bootstrap, "socket.timeout.ms": 3_000, "log_level": 0}
        )

    def _voters(self, node: int, control: Mapping[int, int]) -> str:
        """The controllers as one broker is told of them: itself where it listens, the others by the proxy."""
        ports = {
            target: port for (source, target), port in self.network.control_ports.items() if source == node
        }
        return ",".join(f"{each}@127.0.0.1:{({**control, **ports})[each]}" for each in self.ids)

    def __enter__(self) -> "Cluster":
        try:
            self._stack.enter_context(self.network)
            for broker in self.brokers.values():
                formatted = dlog("server", "format", *options(broker.settings))
                assert formatted.returncode == 0, formatted.stderr
                self._stack.enter_context(broker)
            for broker in self.brokers.values():
                broker.wait_until_ready()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker in self.brokers.values():
            broker.go_on()
        self._stack.close()
        for broker in self.brokers.values():
            broker.switches.close()

    # --- what is asked of it -------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int,
        replicas: int,
        config: Mapping[str, str],
        timeout_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """The name is new.  Where an answer is lost, or late, the client asks again: then it is there."""
        options = replace(
            ASKING,
            request_timeout_ms=20_000,
            call_timeout_ms=int(timeout_seconds * 1000),
            waits_for_first_contact=True,
        )
        with BlockingAdmin(self.bootstrap, options) as admin, contextlib.suppress(TopicExistsError):
            admin.create_topic(NewTopic(name, partitions, replicas, configs=dict(config)))

    def add_partitions(self, name: str, total: int) -> None:
        with BlockingAdmin(self.bootstrap, ASKING) as admin:
            admin.create_partitions({name: total})

    def delete_topics(self, names: list[str]) -> None:
        with BlockingAdmin(self.bootstrap, ASKING) as admin:
            admin.delete_topics(names)

    def leader(self, topic: str, partition: int) -> int | None:
        """The leader as one of the brokers has it; None: there is none, or nobody answers."""
        with contextlib.suppress(KafkaException):
            found = self._admin.list_topics(topic, timeout=ASK_SECONDS).topics[topic].partitions
            if partition in found and found[partition].leader in self.brokers:
                return int(found[partition].leader)
        return None

    def isr(self, topic: str, partition: int) -> list[int]:
        """The ISR as one of the brokers has it; empty where nobody answers."""
        with contextlib.suppress(KafkaException):
            found = self._admin.list_topics(topic, timeout=ASK_SECONDS).topics[topic].partitions
            return sorted(found[partition].isrs) if partition in found else []
        return []

    def controller(self) -> int | None:
        with contextlib.suppress(DlogError, OSError), BlockingAdmin(self.bootstrap, ASKING) as admin:
            leader = admin.describe_quorum().leader_id
            return leader if leader in self.brokers else None
        return None

    def coordinator(self, group: str) -> int | None:
        """The leader of the partition of __consumer_offsets that the group is in."""
        return self.leader(OFFSETS_TOPIC, partition_of(group, OFFSETS_PARTITIONS))

    def transaction_coordinator(self, partition: int) -> int | None:
        return self.leader(TRANSACTIONS_TOPIC, partition)

    # --- what is done to it --------------------------------------------------------------------

    def heal(self) -> None:
        """Who is stopped goes on, who is down is started, all reach each other; returns when all serve."""
        self.network.join()
        for broker in self.brokers.values():
            broker.switches.clear()
        for broker in self.brokers.values():
            broker.go_on()
        self.start_those_down(self.ids)
        for broker in self.brokers.values():
            broker.wait_until_ready()

    def start_those_down(self, ids: Iterable[int]) -> None:
        """None of them is waited for: it may need one that another fault keeps down."""
        for node in ids:
            if not self.brokers[node].is_up:
                self.note_end(node)
                self.brokers[node].start()

    def start_those_ended(self) -> None:
        """Starts those that have ended by themselves."""
        self.start_those_down(node for node, broker in self.brokers.items() if broker.exit_code is not None)

    def note_end(self, node: int) -> None:
        code = self.brokers[node].exit_code
        if code is not None:
            self.ended.append((node, code))
