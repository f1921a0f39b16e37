"""Kafka's own command-line tools, run from its jars as its scripts run them, each a process."""

import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from tests.bench.broker_kafka import fetch_kafka

TOOLS: Final = "org.apache.kafka.tools."
TOPICS: Final = TOOLS + "TopicCommand"
CONFIGS: Final = "kafka.admin.ConfigCommand"
LOG_DIRS: Final = TOOLS + "LogDirsCommand"
QUORUM: Final = TOOLS + "MetadataQuorumCommand"
DELETE_RECORDS: Final = TOOLS + "DeleteRecordsCommand"
ELECTION: Final = TOOLS + "LeaderElectionCommand"
REASSIGNMENT: Final = TOOLS + "reassign.ReassignPartitionsCommand"
PRODUCER_PERF: Final = TOOLS + "ProducerPerformance"
CONSUMER_PERF: Final = TOOLS + "ConsumerPerformance"
CONSOLE_PRODUCER: Final = TOOLS + "ConsoleProducer"
CONSOLE_CONSUMER: Final = TOOLS + "consumer.ConsoleConsumer"
GROUPS: Final = TOOLS + "consumer.group.ConsumerGroupCommand"
FEATURES: Final = TOOLS + "FeatureCommand"
CLUSTER: Final = TOOLS + "ClusterTool"
API_VERSIONS: Final = TOOLS + "BrokerApiVersionsCommand"
OFFSETS: Final = TOOLS + "GetOffsetShell"
TRANSACTIONS: Final = TOOLS + "TransactionsCommand"
LATENCY: Final = TOOLS + "EndToEndLatency"
CLIENT_METRICS: Final = TOOLS + "ClientMetricsCommand"
ACLS: Final = TOOLS + "AclCommand"

SECONDS_MAX: Final = 120
_JAVA: Final = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LOGGING: Final = """status = error
appender.err.type = Console
appender.err.name = ERR
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %p %m%n
rootLogger.level = WARN
rootLogger.appenderRef.err.ref = ERR
"""


class Said(NamedTuple):
    code: int
    out: str
    err: str


class KafkaTools:
    """The tools, and the broker that they are told of.  What they log goes to stderr, warnings only."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        (directory / "log4j2.properties").write_text(_LOGGING, encoding="utf-8")
        self._bootstrap = bootstrap
        self._classpath = f"{directory}:{fetch_kafka()}/*"

    def try_to(self, tool: str, *arguments: object, sent: str | None = None) -> Said:
        where, what = ["--bootstrap-server", self._bootstrap], [str(each) for each in arguments]
        ran = subprocess.run(
            [*_JAVA, "-cp", self._classpath, tool, *(what + where if tool == CLUSTER else where + what)],
            input=sent, capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
        )  # fmt: skip
        return Said(ran.returncode, ran.stdout, ran.stderr)

    def run_alone(self, tool: str, *arguments: object) -> str:
        """What a tool printed that needs no broker."""
        what = [str(each) for each in arguments]
        ran = subprocess.run(
            [*_JAVA, "-cp", self._classpath, tool, *what],
            capture_output=True, text=True, timeout=SECONDS_MAX, check=True,
        )  # fmt: skip
        return ran.stdout

    def start(self, tool: str, *arguments: object) -> "subprocess.Popen[bytes]":
        """A tool that goes on until it is ended; what it prints is not looked at."""
        what = ["--bootstrap-server", self._bootstrap, *(str(each) for each in arguments)]
        return subprocess.Popen(
            [*_JAVA, "-cp", self._classpath, tool, *what],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def run(self, tool: str, *arguments: object, sent: str | None = None) -> str:
        """What it printed; it must have ended well."""
        said = self.try_to(tool, *arguments, sent=sent)
        assert said.code == 0, f"{tool} {arguments} ended with {said.code}:\n{said.out}\n{said.err}"
        assert "Exception" not in said.err, said.err
        return said.out
