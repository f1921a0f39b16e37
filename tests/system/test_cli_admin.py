"""The command line of administration on a node that runs; and a node on what Kafka left."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from distributedlog.cli.main import main
from distributedlog.cli.session import BOOTSTRAP_VARIABLE
from tests.system.server_process import ServerProcess

GOLDEN = Path(__file__).parents[1] / "unit" / "storage" / "golden" / "clean"
TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


Dlog = Callable[..., Outcome]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("node"), {"num.partitions": 2}) as server:
        yield server
        assert server.stop() == 0


@pytest.fixture
def dlog(node: ServerProcess, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Dlog:
    """Runs a command in this process, on the node."""
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, node.facts["client"])

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture
def topic(dlog: Dlog, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Makes a topic with twenty records, ten in each of its two partitions."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps({"value": f"v{at}", "partition": at % 2}) + "\n" for at in range(20)))
    assert dlog("topic", "create", name).code == 0
    assert dlog("topic", "import", name, path).code == 0
    return name


# --- topics ------------------------------------------------------------------------------------


def test_settings_and_partitions_of_a_topic_are_altered(dlog: Dlog, topic: str) -> None:
    change = ("--set", "retention.ms=777", "--set", "cleanup.policy=compact", "--partitions", "3")
    dry = dlog("topic", "alter", topic, *change, "--dry-run", "-o", "json")
    assert [(row["name"], row["after"], row["done"]) for row in dry.rows] == [
        ("retention.ms", "777", False),
        ("cleanup.policy", "compact", False),
        ("partitions", "3", False),
    ]
    done = dlog("topic", "alter", topic, *change)
    assert done.code == 0
    assert f"{topic}  partitions: 2 became 3\n" in done.out
    described = dlog("topic", "describe", topic, "-o", "json").rows
    assert described[0]["settings"]["retention.ms"] == {"value": "777", "source": "topic"}
    assert len(described) == 4
    back = dlog("topic", "alter", topic, "--unset", "retention.ms")
    assert back.out == f"{topic}  retention.ms: 777 became the default\n"
    assert dlog("topic", "alter", topic, "--unset", "retention.ms").out == f"{topic} is so already\n"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("--set", "retention.ms=soon"), "retention.ms cannot be 'soon'"),
        (("--set", "no.such=1"), "unknown setting 'no.such'; known are cleanup.policy"),
        (("--set", "no.such=1"), " min.insync.replicas, "),
        (("--unset", "retention.m"), "there is no setting retention.m of topics; did you mean retention.ms"),
        (("--unset", "no.such"), "known are cleanup.policy"),
        (("--partitions", "1"), "would be no increase"),
        (("--partitions", "1000000"), "partitions more, and not 999998"),
    ],
)
def test_what_cannot_be_altered_is_wrong_usage(
    dlog: Dlog, topic: str, change: tuple[str, ...], says: str
) -> None:
    outcome = dlog("topic", "alter", topic, *change)
    assert outcome.code == 2
    assert says in outcome.err
    assert outcome.err.count("\n") == 1


def test_only_partitions_that_are_there_are_written_to(dlog: Dlog, topic: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("")
    refused = dlog("topic", "produce", topic, "-l", lines, "-p", "2")
    assert (refused.code, refused.err) == (1, f"dlog: {topic} has partitions 0 to 1, not 2\n")
    lines.write_text("first\n")
    made = dlog("topic", "produce", f"{topic}-made-on-first-use", "-l", lines, "-p", "1")
    assert made.code == 0, made.err


def test_an_export_that_cannot_be_written_names_the_file_that_was_given(
    dlog: Dlog, topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "nowhere" / "records.jsonl"
    refused = dlog("topic", "export", topic, path)
    assert refused.code == 1
    assert refused.err == f"dlog: {path} cannot be written: there is no directory {path.parent}\n"


def test_the_oldest_records_are_trimmed(dlog: Dlog, topic: str) -> None:
    dry = dlog("topic", "trim", topic, "--before", "4", "--dry-run", "-o", "json")
    assert [(row["start_offset"], row["done"]) for row in dry.rows] == [(4, False), (4, False)]
    assert dlog("topic", "trim", topic, "--before", "4", "-p", "1", "--yes").code == 0
    after = dlog("topic", "trim", topic, "--before", "-3", "--yes", "-o", "json").rows
    assert [(row["start_offset_before"], row["start_offset"]) for row in after] == [(0, 7), (4, 7)]
    values = dlog("topic", "consume", topic, "-e", "-f", "%v").out.split()
    assert sorted(values) == sorted(f"v{at}" for at in range(14, 20))
    beyond = dlog("topic", "trim", topic, "--before", "50", "--yes")
    assert (beyond.code, "ends at 10, before 50" in beyond.err) == (2, True)


def test_sizes_are_shown_and_an_empty_topic_has_figures_too(dlog: Dlog, topic: str) -> None:
    described = dlog("topic", "describe", topic, "-o", "json").rows
    assert all(row["size_bytes"] > 100 for row in described[1:])
    assert dlog("topic", "analyze", topic, "-o", "json").rows[-1]["disk_bytes"] > 200
    dlog("topic", "trim", topic, "--before", "end", "--yes")
    assert dlog("topic", "analyze", topic).out == "records     0 (all)\n"


# --- the cluster -------------------------------------------------------------------------------


def test_what_the_cluster_is_made_of(dlog: Dlog, node: ServerProcess, topic: str) -> None:
    told = dlog("cluster", "info", "-o", "json")
    assert told.code == 0
    cluster, broker, voter = told.rows
    assert cluster["brokers"] == 1
    assert cluster["topics"] >= 1
    assert (broker["broker"], broker["address"], broker["controller"]) == (1, node.facts["client"], "active")
    assert (voter["type"], voter["node"], voter["lag"]) == ("voter", 1, 0)
    shown = dlog("cluster", "info").out
    assert "controller  1, of the voters 1; epoch" in shown


def test_a_cluster_that_is_well_says_so_with_exit_code_0(dlog: Dlog) -> None:
    outcome = dlog("cluster", "health")
    assert outcome.code == 0, outcome.out
    assert outcome.out.startswith("well: 1 brokers")
    assert dlog("cluster", "health", "-o", "json").rows[-1]["state"] == "well"


def test_settings_of_all_brokers_and_of_one(dlog: Dlog) -> None:
    name = "log.retention.ms"
    assert dlog("cluster", "config", "set", f"{name}=888").out == f"{name} set to 888 for all brokers\n"
    assert dlog("cluster", "config", "set", f"{name}=999", "--broker", "1").code == 0
    own = dlog("cluster", "config", "get", name, "--broker", "1", "-o", "json").rows[0]
    assert (own["value"], own["source"]) == ("999", "broker")
    lines = [line.split() for line in dlog("cluster", "config", "get").out.splitlines()]
    assert [name, "888", "cluster"] in lines
    for options in (("--broker", "1"), ()):
        assert dlog("cluster", "config", "unset", name, *options).code == 0
    own = dlog("cluster", "config", "get", name, "--broker", "1", "-o", "json").rows[0]
    assert own["source"] == "default"
    assert name not in dlog("cluster", "config", "get").out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("set", "node.id=5"), 2, "cannot be changed while the broker runs"),
        (("set", "log.retention.ms=soon"), 2, "it is a whole number"),
        (("set", "log.retention.msec=5"), 2, "there is no setting log.retention.msec; did you mean log.ret"),
        (("unset", "log.retention.msec"), 2, "there is no setting log.retention.msec; did you mean log.ret"),
        (("get", "log.retention.msec"), 2, "there is no setting log.retention.msec; did you mean log.ret"),
        (("get", "no.such.thing", "--broker", "1"), 2, "`dlog cluster config get --broker N --all` lists"),
        (("get", "--broker", "77"), 1, "there is no broker 77: the brokers are 1"),
        (("set", "log.retention.ms=5", "--broker", "77"), 1, "there is no broker 77"),
    ],
)
def test_a_setting_or_a_broker_that_there_is_not_is_named(
    dlog: Dlog, arguments: tuple[str, ...], code: int, says: str
) -> None:
    refused = dlog("cluster", "config", *arguments)
    assert (refused.code, refused.out, refused.err.count("\n")) == (code, "", 1)
    assert says in refused.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("drain", "77", "--dry-run"), "there is no broker 77"),
        (("restart", "--rolling", "--command", "true", "--broker", "77", "--yes"), "there is no broker 77"),
        (("restart", "--rolling", "--ready-file", "no-such-file", "--yes"), "there is no file no-such-file"),
        (("reassign", "--plan", "no-such-file"), "there is no file no-such-file"),
    ],
)
def test_a_broker_or_a_file_that_there_is_not_is_exit_code_1(
    dlog: Dlog, arguments: tuple[str, ...], says: str
) -> None:
    refused = dlog("cluster", *arguments)
    assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert says in refused.err


def test_a_setting_that_brokers_do_not_know_is_set_if_it_is_meant(dlog: Dlog) -> None:
    assert dlog("cluster", "config", "set", "--force", "plugin.level=3").code == 0
    assert dlog("cluster", "config", "get", "plugin.level", "-o", "json").rows[0]["name"] == "plugin.level"
    assert dlog("cluster", "config", "unset", "plugin.level").code == 0
    assert dlog("cluster", "config", "get", "plugin.level").code == 2


def test_nothing_to_list_is_said_beside_the_data(dlog: Dlog) -> None:
    for command, said in ((("group", "list"), "no groups"), (("cluster", "quotas", "list"), "no quotas")):
        shown = dlog(*command)
        assert (shown.code, shown.out, shown.err) == (0, "", f"dlog: there are {said}\n")
        as_json = dlog(*command, "-o", "json")
        assert (as_json.code, as_json.out, as_json.err) == (0, "", "")
    assert dlog("group", "list", "--state", "Stable").err == "dlog: no such groups\n"


def test_quotas_are_set_listed_and_taken_back(dlog: Dlog) -> None:
    whose = ("--client-id", "report")
    assert dlog("cluster", "quotas", "set", *whose, "producer_byte_rate=1000").code == 0
    assert dlog("cluster", "quotas", "set", "--user", "", "consumer_byte_rate=5e6").code == 0
    listed = dlog("cluster", "quotas", "list", "-o", "json").rows
    assert [(row["client_id"], row["user"], row["limit"]) for row in listed] == [
        ("report", None, 1000.0),
        (None, "", 5000000.0),
    ]
    assert dlog("cluster", "quotas", "unset", *whose, "producer_byte_rate").code == 0
    assert dlog("cluster", "quotas", "unset", "--user", "", "consumer_byte_rate").code == 0
    assert dlog("cluster", "quotas", "list").err == "dlog: there are no quotas\n"


def test_a_topic_without_a_count_costs_the_quota_what_it_gets(dlog: Dlog) -> None:
    """Two partitions here, and the quota allows one at once."""
    assert dlog("cluster", "quotas", "set", "--user", "", "controller_mutation_rate=0.1").code == 0
    assert dlog("topic", "create", "of-two").code == 0
    refused = dlog("topic", "create", "of-one", "-p", "1", "--timeout", "1")
    assert (refused.code, "THROTTLING_QUOTA_EXCEEDED" in refused.err) == (1, True), refused.err
    both = dlog("topic", "create", "of-three", "of-four", "-p", "1", "--timeout", "1")
    assert (both.code, both.err.count("THROTTLING_QUOTA_EXCEEDED")) == (1, 2), both.err
    assert dlog("cluster", "quotas", "unset", "--user", "", "controller_mutation_rate").code == 0
    assert dlog("topic", "create", "of-one", "-p", "1").code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("producer_byte_rate=1",), "whose quota?"),
        (("--client-id", "report", "producer_byte_rate=-1"), "is no quota"),
        (("--client-id", "report", "no_such_rate=1"), "there is no quota 'no_such_rate'"),
        (("--ip", "127.0.0.1", "connection_creation_rate=1"), "quotas of addresses are not kept here"),
    ],
)
def test_what_is_no_quota_is_wrong_usage(dlog: Dlog, arguments: tuple[str, ...], says: str) -> None:
    refused = dlog("cluster", "quotas", "set", *arguments)
    assert (refused.code, says in refused.err) == (2, True), refused.err


# --- the files of a node that runs -------------------------------------------------------------


def test_logs_of_a_running_node_can_be_looked_at_and_not_changed(
    dlog: Dlog, node: ServerProcess, topic: str
) -> None:
    directory = node.facts["data_dir"]
    verified = dlog("log", "verify", directory, "--topic", topic)
    assert verified.code == 0
    assert "is in use: this is what has been written so far" in verified.err
    dumped = dlog("log", "dump", directory, "--topic", topic, "--records", "-o", "json")
    assert sorted(row["value"] for row in dumped.rows) == sorted(f"v{at}" for at in range(20))
    assert dlog("log", "index", directory, "--topic", topic, "--check").code in (0, 1)
    dry = dlog("log", "compact", directory, "--topic", topic, "--drop-keyless", "--dry-run")
    assert (dry.code, "dlog topic analyze --full" in dry.err) == (3, True)
    for command in (("log", "index"), ("log", "compact", "--topic", topic), ("cluster", "adopt")):
        refused = dlog(*command, directory)
        assert (refused.code, "in use" in refused.err, refused.err.count("\n")) == (3, True, 1)


# --- what Kafka left ---------------------------------------------------------------------------


def test_a_node_serves_what_kafka_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Records, settings, ids and committed offsets, to a client that knows nothing of it."""
    kafka = tmp_path / "kafka"
    shutil.copytree(GOLDEN / "data", kafka)
    properties = tmp_path / "server.properties"
    properties.write_text("log.retention.ms=-1\n")
    assert main(["cluster", "adopt", str(kafka), "--in-place", "--properties", str(properties)]) == 0
    capsys.readouterr()
    with ServerProcess(tmp_path / "node", {"log.dirs": kafka}) as server:
        bootstrap = server.facts["client"]
        found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=TIMEOUT_SECONDS)
        assert str(found.cluster_id) == "Z29sZGVuLWNsdXN0ZXItMQ"
        assert len(found.topics) == 24
        for name in ("segments-0", "codec-zstd-0", "compacted-0", "transactions-1", "start-advanced-0"):
            topic, _, number = name.rpartition("-")
            assert offsets_of(bootstrap, topic, int(number)) == served(name)["offsets_read_committed"]
        committed = [
            ("group-classic", TopicPartition("segments", 0), 7),
            ("group-classic", TopicPartition("segments", 1), 20),
            ("group-consumer", TopicPartition("segments", 1), 5),
            ("group-tx", TopicPartition("codec-none", 0), 3),
        ]
        for group, partition, offset in committed:
            assert committed_of(bootstrap, group, partition) == offset
        end = served("segments-1")["latest_offset"]
        assert written(bootstrap, "segments", 1) == end
        assert server.stop() == 0
        server.restart()
        assert offsets_of(server.facts["client"], "segments", 1)[-1] == end


def served(partition: str) -> dict[str, Any]:
    """What Kafka itself answered about it."""
    facts = json.loads((GOLDEN / "expected" / f"{partition}.json").read_text())["served"]
    assert isinstance(facts, dict)
    return facts


def offsets_of(bootstrap: str, topic: str, partition: int) -> list[int | None]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "a reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found: list[int | None] = []
    while (message := consumer.poll(TIMEOUT_SECONDS)) is not None and message.error() is None:
        found.append(message.offset())
    consumer.close()
    return found


def committed_of(bootstrap: str, group: str, partition: TopicPartition) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    (found,) = consumer.committed([partition], timeout=TIMEOUT_SECONDS)
    consumer.close()
    assert isinstance(found.offset, int)
    return found.offset


def written(bootstrap: str, topic: str, partition: int) -> int | None:
    """Where a new record went."""
    offsets: list[int | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce(
        topic, b"new", partition=partition, callback=lambda _, told: offsets.append(told.offset())
    )
    assert producer.flush(TIMEOUT_SECONDS) == 0
    return offsets[0]
