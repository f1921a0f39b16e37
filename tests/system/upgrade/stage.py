"""Three nodes that vote, each of the earlier version or of this one, and a client that goes on meanwhile."""

import os
import subprocess
import tarfile
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import confluent_kafka

from distributedlog.client.admin.admin import NewTopic
from distributedlog.client.admin.blocking import BlockingAdmin
from distributedlog.model.errors import DlogError
from tests.ports import free_port
from tests.system.server_process import DLOG, TIMEOUT_SECONDS, ServerProcess, options, secret_in

EARLIER = Path(__file__).parent / "earlier"
NODES = (1, 2, 3)


def unpack(name: str, directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    with tarfile.open(EARLIER / f"{name}.tar.xz") as archive:
        archive.extractall(directory, filter="data")
    return directory


class MixedCluster:
    """Begins with the earlier version on every node."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        code = unpack("version-0.1.0", directory / "earlier")
        self._earlier = {**os.environ, "PYTHONPATH": str(code), "DLOG_KERNEL": "interpreted"}
        self._secret = secret_in(directory)
        voters = {node: free_port() for node in NODES}
        self.clients = {node: free_port() for node in NODES}
        quorum = ",".join(f"{node}@127.0.0.1:{port}" for node, port in voters.items())
        self._settings: dict[int, dict[str, object]] = {
            node: {
                "node.id": node, "cluster.id": "mixed", "controller.quorum.voters": quorum,
                "control.listener": f"127.0.0.1:{port}", "drain.timeout.ms": 2_000,
                "listeners": f"PLAINTEXT://127.0.0.1:{self.clients[node]}", "num.partitions": 3,
                "offsets.topic.num.partitions": 3, "gateway.listener": "none",
            }
            for node, port in voters.items()
        }  # fmt: skip
        self.nodes: dict[int, ServerProcess] = {}
        self._stack = ExitStack()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.clients.values())

    def __enter__(self) -> "MixedCluster":
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _start(self) -> None:
        for node, settings in self._settings.items():
            process = ServerProcess(self._directory / str(node), settings, waits=False)
            process.environment, process.is_new = self._earlier, False
            self._format(process)
            self.nodes[node] = self._stack.enter_context(process)
        for process in self.nodes.values():
            process.wait_until_ready()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _format(self, process: ServerProcess) -> None:
        subprocess.run(
            [*DLOG, "server", "format", *options(process.settings)],
            env=process.environment,
            check=True,
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
        )

    def upgrade(self, node: int, *, authentication: str = "optional") -> None:
        """Stops the node in good order, and starts this version in its place."""
        process = self.nodes[node]
        assert process.stop() == 0, process.log
        process.environment = None
        process.settings |= {"broker.host": f"machine-{node}"}
        process.settings |= {"cluster.secret.file": self._secret, "control.authentication": authentication}
        process.restart()

    def controller(self) -> int:
        with BlockingAdmin(self.bootstrap) as admin:
            return admin.describe_quorum().leader_id


class Traffic:
    """Produces and creates topics until it is ended; what was acknowledged is remembered."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.acknowledged: set[bytes] = set()
        self.failed: list[str] = []
        self.created: list[str] = []
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._produce, self._create)]

    def __enter__(self) -> "Traffic":
        with BlockingAdmin(self._bootstrap) as admin:
            admin.create_topic(NewTopic("orders", 6, 1))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(TIMEOUT_SECONDS)

    def _produce(self) -> None:
        settings: Mapping[str, str | int | bool] = {
            "bootstrap.servers": self._bootstrap, "enable.idempotence": True,
            "message.timeout.ms": TIMEOUT_SECONDS * 1000, "log_level": 0,
        }  # fmt: skip
        producer = confluent_kafka.Producer(dict(settings))

        def delivered(error: object, message: confluent_kafka.Message) -> None:
            value = message.value()
            if error is None and isinstance(value, bytes):
                self.acknowledged.add(value)
            else:
                self.failed.append(str(error))

        number = 0
        while not self._ended.is_set():
            number += 1
            producer.produce("orders", value=b"record-%d" % number, on_delivery=delivered)
            producer.poll(0.005)
        assert producer.flush(TIMEOUT_SECONDS) == 0

    def _create(self) -> None:
        number = 0
        while not self._ended.wait(0.3):
            number += 1
            name = f"made-{number}"
            try:
                with BlockingAdmin(self._bootstrap) as admin:
                    admin.create_topic(NewTopic(name, 1, 1))
            except (DlogError, OSError):
                continue  # a broker that stops may refuse; the next one is made elsewhere
            self.created.append(name)


def consume(bootstrap: str, count: int) -> list[bytes]:
    """Reads `orders` in a group until as many records came; fails if they do not."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )  # fmt: skip
    consumer.subscribe(["orders"])
    values: list[bytes] = []
    silent = 0
    try:
        while len(values) < count and silent < TIMEOUT_SECONDS:
            message = consumer.poll(1.0)
            if message is None or message.error() is not None:
                silent += 1
                continue
            silent = 0
            value = message.value()
            assert isinstance(value, bytes)
            values.append(value)
    finally:
        consumer.close()
    return values
