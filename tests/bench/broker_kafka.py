"""The brokers that are measured: ours and Apache Kafka, each a process on loopback.

Kafka's jars are brought by Maven, with whatever repositories the machine's own settings name, and kept in
.bench/.  It runs as its own start script runs it: the same heap, collector and server defaults.  Only where
files go, how soon deleted ones go, and what one node must be told is set.
"""

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Protocol

from distributedlog.client.admin.admin import NewTopic
from distributedlog.model.errors import DlogError, TopicExistsError
from tests.bench.broker_load import CODE, connect, produce_code_at, produce_frame
from tests.bench.figures import Figure
from tests.bench.topics import make_topics
from tests.ports import free_port
from tests.system.server_process import ServerProcess

KAFKA_VERSION: Final = "4.2.1"
HOME: Final = Path(__file__).parents[2] / ".bench" / f"kafka-{KAFKA_VERSION}"
FETCH_SECONDS_MAX: Final = 300
MAVEN_CHARACTERS_MAX: Final = 500
START_SECONDS_MAX: Final = 60.0
RETRY_SECONDS: Final = 0.002
FIRST: Final = "first"
"""A topic that both have from the beginning."""
CLUSTER_ID: Final = "YmVuY2gtYmVuY2gtYmVuYw"
SHARED: Final = {"log.segment.delete.delay.ms": "1000", "group.initial.rebalance.delay.ms": "0"}

_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>bench</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{0}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{0}</version></dependency>
<dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.25.3</version></dependency>
<dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-core</artifactId><version>2.25.3</version></dependency>
</dependencies></project>
"""
_LOGGING: Final = """status = error
appender.out.type = Console
appender.out.name = OUT
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %m (%c)%n
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = OUT
"""
# The defaults of Kafka's start script.
_JVM: Final = (
    "-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
)  # fmt: skip


class LeftOutError(Exception):
    """A rival that cannot run here, and why."""


class Broker(Protocol):
    name: str
    port: int

    @property
    def pid(self) -> int: ...
    @property
    def is_running(self) -> bool: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


class Ours:
    name = "dlog"

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        listeners = {"listeners": f"PLAINTEXT://127.0.0.1:{self.port}"}
        self._server = ServerProcess(directory, {**listeners, **SHARED, **(settings or {})})

    @property
    def pid(self) -> int:
        assert self._server.process is not None
        return self._server.process.pid

    @property
    def is_running(self) -> bool:
        return self._server.process is not None and self._server.process.poll() is None

    def start(self) -> None:
        self._server.__exit__(None, None, None)  # what is left of one that ended by itself
        self._server.start()

    def stop(self) -> None:
        if self.is_running:
            self._server.wait_until_ready()
            self._server.stop()


class Kafka:
    name = "Kafka"

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        node_id: int = 1,
        control_ports: Mapping[int, int] | None = None,
    ) -> None:
        """`control_ports` are those of all voters of a cluster, by node; without them it is the only one."""
        self._classpath = f"{HOME}:{fetch_kafka()}/*"
        directory.mkdir(parents=True)
        self.port, control = free_port(), (control_ports or {}).get(node_id) or free_port()
        self._config, self._log = directory / "server.properties", directory / "log"
        all_settings = {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{control}",
            **_quorum(control, control_ports),
            "offsets.topic.replication.factor": "1",
            "log.dirs": str(directory / "data"),
            **SHARED,
            **(settings or {}),
        }
        self._config.write_text("".join(f"{name}={value}\n" for name, value in all_settings.items()))
        self._process: subprocess.Popen[bytes] | None = None
        command = self._java("kafka.tools.StorageTool")
        command += ["format", "-t", CLUSTER_ID, "-c", str(self._config)]
        command += [] if control_ports else ["--standalone"]
        subprocess.run(command, check=True, capture_output=True)

    def _java(self, main: str) -> list[str]:
        return ["java", *_JVM, "-cp", self._classpath, main]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        with open(self._log, "ab") as log:
            command = [*self._java("kafka.Kafka"), str(self._config)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(START_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


def _quorum(control: int, control_ports: Mapping[int, int] | None) -> dict[str, str]:
    if control_ports is None:
        return {"controller.quorum.bootstrap.servers": f"127.0.0.1:{control}"}
    voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in control_ports.items())
    return {"controller.quorum.voters": voters}


def fetch_kafka() -> Path:
    """The directory of Kafka's jars.  Raises LeftOutError if they cannot be had."""
    libraries = HOME / "libs"
    if not shutil.which("java"):
        raise LeftOutError("there is no java")
    if not (HOME / "complete").is_file():
        if not shutil.which("mvn"):
            raise LeftOutError("there is no mvn to bring its jars")
        HOME.mkdir(parents=True, exist_ok=True)
        (HOME / "pom.xml").write_text(_POM.format(KAFKA_VERSION))
        (HOME / "log4j2.properties").write_text(_LOGGING)
        command = ["mvn", "-q", "-B", "-f", str(HOME / "pom.xml"), "dependency:copy-dependencies"]
        try:
            subprocess.run(
                [*command, f"-DoutputDirectory={libraries}", "-DincludeScope=runtime"],
                check=True, capture_output=True, timeout=FETCH_SECONDS_MAX,
            )  # fmt: skip
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            said = (error.stdout or b"").decode(errors="replace").strip()[-MAVEN_CHARACTERS_MAX:]
            raise LeftOutError(f"Maven could not bring its jars: {said or error}") from error
        (HOME / "complete").touch()
    return libraries


# --- what is asked of both ---------------------------------------------------------------------


def bootstrap_of(broker: Broker) -> str:
    return f"127.0.0.1:{broker.port}"


def make_topic(broker: Broker, name: str, partitions: int) -> None:
    make_topics(bootstrap_of(broker), NewTopic(name, partitions, 1))


def start_again_if_ended(broker: Broker) -> None:
    """Whoever died in one case is there for the next one."""
    if not broker.is_running:
        broker.start()
        make_first_topic(broker, FIRST)


@contextmanager
def contestants(settings: Mapping[str, str] | None = None) -> Iterator[tuple[list[Broker], list[Figure]]]:
    """Ours and, where it can be had, Kafka, both running with the settings; and what is said of who is not
    there."""
    with tempfile.TemporaryDirectory(prefix="dlog-bench-") as scratch, ExitStack() as stack:
        brokers: list[Broker] = [Ours(Path(scratch) / "dlog", settings)]
        missing: list[Figure] = []
        try:
            brokers.append(Kafka(Path(scratch) / "kafka", settings))
        except LeftOutError as error:
            missing.append(Figure(f"Apache Kafka: left out, {error}", float("nan"), ""))
        for broker in brokers:
            stack.callback(broker.stop)
            broker.start()
        for broker in brokers:
            make_first_topic(broker, FIRST)
        yield brokers, missing


def make_first_topic(broker: Broker, name: str) -> None:
    """Makes the first topic as soon as the broker serves and may lead."""
    give_up = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            connect(broker.port).close()
            make_topic(broker, name, 1)
            return
        except TopicExistsError:
            return
        except (OSError, DlogError):
            if time.monotonic() > give_up:
                raise
            time.sleep(RETRY_SECONDS)


def until_acknowledged(broker: Broker, topic: str, batch: bytes) -> None:
    """Until a record of a topic that it has on its disk is acknowledged."""
    frame, code_at = produce_frame(topic, 0, batch, 1), produce_code_at(topic)
    give_up = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < give_up:
        try:
            with connect(broker.port) as connection:
                while _answer_code(connection, frame, code_at):
                    time.sleep(RETRY_SECONDS)
                return
        except OSError:
            time.sleep(RETRY_SECONDS)
    raise AssertionError(f"{broker.name} acknowledged nothing in {START_SECONDS_MAX} s")


def _answer_code(connection: socket.socket, frame: bytes, code_at: int) -> int:
    connection.sendall(frame)
    answer = connection.recv(4096)
    if not answer:
        raise ConnectionResetError("it hung up")
    code = CODE.unpack_from(answer, code_at)[0]
    assert isinstance(code, int)
    return code
