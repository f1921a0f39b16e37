"""Each of Kafka's own tools does on our broker what it does on Kafka's.  With them, the Java client does."""

import json
import re
from pathlib import Path
from typing import Any

from distributedlog.controller.features import LEVEL_MAX, METADATA_FEATURE
from tests.jvm.tools import (
    ACLS,
    API_VERSIONS,
    CLIENT_METRICS,
    CLUSTER,
    CONFIGS,
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    CONSUMER_PERF,
    DELETE_RECORDS,
    ELECTION,
    FEATURES,
    GROUPS,
    LATENCY,
    LOG_DIRS,
    OFFSETS,
    PRODUCER_PERF,
    QUORUM,
    TOPICS,
    TRANSACTIONS,
    KafkaTools,
)


def create(tools: KafkaTools, topic: str, partitions: int = 1) -> None:
    tools.run(TOPICS, "--create", "--topic", topic, "--partitions", partitions)


def test_topics_are_made_changed_described_and_deleted(tools: KafkaTools) -> None:
    made = tools.run(
        TOPICS, "--create", "--topic", "life", "--partitions", 2, "--config", "retention.ms=1000"
    )
    assert "Created topic life." in made
    again = tools.try_to(TOPICS, "--create", "--topic", "life")
    assert again.code != 0
    assert "TopicExistsException" in again.out + again.err
    tools.run(TOPICS, "--alter", "--topic", "life", "--partitions", 3)
    described = tools.run(TOPICS, "--describe", "--topic", "life")
    assert re.search(r"PartitionCount: 3\s+ReplicationFactor: 1\s+Configs: .*retention.ms=1000", described)
    assert described.count("Leader: ") == 3
    assert "life" in tools.run(TOPICS, "--list").split()
    for wanted in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        assert tools.run(TOPICS, "--describe", wanted).strip() == ""
    tools.run(TOPICS, "--delete", "--topic", "life")
    assert "life" not in tools.run(TOPICS, "--list").split()


def test_settings_of_topics_and_brokers_are_altered_and_described(
    tools: KafkaTools, broker: dict[str, Any]
) -> None:
    create(tools, "set")
    topic = ("--entity-type", "topics", "--entity-name", "set")
    tools.run(
        CONFIGS, "--alter", *topic, "--add-config", "segment.bytes=2048000,cleanup.policy=[compact,delete]"
    )
    described = tools.run(CONFIGS, "--describe", *topic)
    assert (
        "segment.bytes=2048000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:segment.bytes=2048000"
        in described
    )
    assert "cleanup.policy=compact,delete" in described
    tools.run(CONFIGS, "--alter", *topic, "--delete-config", "segment.bytes")
    assert "segment.bytes" not in tools.run(CONFIGS, "--describe", *topic)
    wrong = tools.try_to(CONFIGS, "--alter", *topic, "--add-config", "retention.ms=soon")
    assert "it is a whole number" in wrong.out + wrong.err
    itself = ("--entity-type", "brokers", "--entity-name", broker["id"])
    tools.run(CONFIGS, "--alter", *itself, "--add-config", "log.retention.bytes=70000000")
    told = tools.run(CONFIGS, "--describe", *itself)
    assert "DYNAMIC_BROKER_CONFIG:log.retention.bytes=70000000" in told
    everything = tools.run(CONFIGS, "--describe", *itself, "--all")
    assert "node.id=" in everything
    tools.run(CONFIGS, "--alter", *itself, "--delete-config", "log.retention.bytes")
    all_brokers = ("--entity-type", "brokers", "--entity-default")
    tools.run(CONFIGS, "--alter", *all_brokers, "--add-config", "log.retention.ms=70000000")
    assert "log.retention.ms=70000000" in tools.run(CONFIGS, "--describe", *all_brokers)
    tools.run(CONFIGS, "--alter", *all_brokers, "--delete-config", "log.retention.ms")


def test_quotas_are_altered_and_described(tools: KafkaTools) -> None:
    ann = ("--entity-type", "users", "--entity-name", "ann", "--entity-type", "clients", "--entity-default")
    tools.run(CONFIGS, "--alter", *ann, "--add-config", "producer_byte_rate=1048576,request_percentage=12.5")
    everybody = ("--entity-type", "users", "--entity-default")
    tools.run(CONFIGS, "--alter", *everybody, "--add-config", "consumer_byte_rate=1000000000")
    described = tools.run(CONFIGS, "--describe", *ann)
    assert "Quota configs for user-principal 'ann', the default client-id are " in described
    assert "producer_byte_rate=1048576.0" in described
    assert "request_percentage=12.5" in described
    assert "consumer_byte_rate=1.0E9" in tools.run(CONFIGS, "--describe", "--entity-type", "users")
    tools.run(CONFIGS, "--alter", *ann, "--delete-config", "producer_byte_rate,request_percentage")
    tools.run(CONFIGS, "--alter", *everybody, "--delete-config", "consumer_byte_rate")
    assert tools.run(CONFIGS, "--describe", *ann).strip() == ""


def test_a_producer_within_its_quota_is_held_to_it(tools: KafkaTools) -> None:
    """Kafka's own measure of it: what is sent beyond ten seconds' worth goes at the quota's rate."""
    create(tools, "slow")
    entity = ("--entity-type", "clients", "--entity-name", "perf-producer-client")
    rate = 20_000
    tools.run(CONFIGS, "--alter", *entity, "--add-config", f"producer_byte_rate={rate}")
    records = 10 * rate // 1_000 + 60
    said = tools.run(
        PRODUCER_PERF, "--topic", "slow", "--num-records", records, "--record-size", 1_000,
        "--throughput", -1, "--print-metrics",
        "--command-property", "client.id=perf-producer-client", "batch.size=1200",
    )  # fmt: skip
    waited = re.search(r"produce-throttle-time-max:\{client-id=perf-producer-client\}\s*:\s*([\d.]+)", said)
    assert waited is not None, said
    assert float(waited[1]) > 0
    tools.run(CONFIGS, "--alter", *entity, "--delete-config", "producer_byte_rate")


def test_the_console_writes_and_reads_and_its_group_is_looked_after(tools: KafkaTools) -> None:
    create(tools, "console", 2)
    tools.run(CONSOLE_PRODUCER, "--topic", "console", sent="one\ntwo\nthree\n")
    read = tools.run(
        CONSOLE_CONSUMER, "--topic", "console", "--from-beginning", "--max-messages", 3,
        "--group", "readers", "--timeout-ms", 30_000,
    )  # fmt: skip
    assert sorted(read.split()) == ["one", "three", "two"]
    assert "readers" in tools.run(GROUPS, "--list").split()
    described = tools.run(GROUPS, "--describe", "--group", "readers")
    lags = [line.split()[5] for line in described.splitlines() if line.startswith("readers")]
    assert lags == ["0", "0"]
    assert "Empty" in tools.run(GROUPS, "--describe", "--group", "readers", "--state")
    tools.run(
        GROUPS, "--reset-offsets", "--to-earliest", "--group", "readers", "--topic", "console", "--execute"
    )
    again = tools.run(
        CONSOLE_CONSUMER,
        "--topic",
        "console",
        "--max-messages",
        3,
        "--group",
        "readers",
        "--timeout-ms",
        30_000,
    )
    assert sorted(again.split()) == ["one", "three", "two"]
    assert "deletion of requested consumer groups ('readers') was successful" in tools.run(
        GROUPS, "--delete", "--group", "readers"
    ).replace("Deletion", "deletion")


def test_the_new_group_protocol_reads_too(tools: KafkaTools) -> None:
    create(tools, "newer", 2)
    tools.run(CONSOLE_PRODUCER, "--topic", "newer", sent="one\ntwo\n")
    read = tools.run(
        CONSOLE_CONSUMER, "--topic", "newer", "--from-beginning", "--max-messages", 2, "--group", "newer",
        "--command-property", "group.protocol=consumer", "--timeout-ms", 30_000,
    )  # fmt: skip
    assert sorted(read.split()) == ["one", "two"]


def test_records_are_deleted_and_offsets_told(tools: KafkaTools, tmp_path: Path) -> None:
    create(tools, "trimmed")
    tools.run(CONSOLE_PRODUCER, "--topic", "trimmed", sent="one\ntwo\nthree\n")
    assert tools.run(OFFSETS, "--topic", "trimmed").split() == ["trimmed:0:3"]
    wanted = {"version": 1, "partitions": [{"topic": "trimmed", "partition": 0, "offset": 2}]}
    (tmp_path / "offsets.json").write_text(json.dumps(wanted), encoding="utf-8")
    said = tools.run(DELETE_RECORDS, "--offset-json-file", tmp_path / "offsets.json")
    assert "partition: trimmed-0\tlow_watermark: 2" in said
    assert tools.run(OFFSETS, "--topic", "trimmed", "--time", "earliest").split() == ["trimmed:0:2"]


def test_disks_quorum_features_and_cluster_are_described(tools: KafkaTools, broker: dict[str, Any]) -> None:
    create(tools, "inspected", 2)
    tools.run(CONSOLE_PRODUCER, "--topic", "inspected", sent="one\n")
    told = json.loads(tools.run(LOG_DIRS, "--describe", "--topic-list", "inspected").splitlines()[-1])
    ((directory,),) = (each["logDirs"] for each in told["brokers"])
    assert directory["error"] is None
    sizes = {each["partition"]: each["size"] for each in directory["partitions"]}
    assert set(sizes) == {"inspected-0", "inspected-1"}
    assert sum(sizes.values()) > 0
    status = tools.run(QUORUM, "describe", "--status")
    assert re.search(rf"LeaderId:\s+{broker['id']}\b", status)
    assert re.search(r"MaxFollowerLag:\s+0\b", status)
    replication = tools.run(QUORUM, "describe", "--replication").splitlines()
    assert replication[0].split()[:4] == ["NodeId", "DirectoryId", "LogEndOffset", "Lag"]
    assert replication[1].split()[-1] == "Leader"
    assert f"Feature: {METADATA_FEATURE}" in tools.run(FEATURES, "describe")
    level = f"{METADATA_FEATURE}={LEVEL_MAX}"
    assert "was upgraded to" in tools.run(FEATURES, "upgrade", "--feature", level)
    down = tools.try_to(FEATURES, "downgrade", "--feature", f"{METADATA_FEATURE}={LEVEL_MAX - 1}")
    assert "there is no way down" in down.out
    assert "Cluster ID: " in tools.run(CLUSTER, "cluster-id")
    assert re.search(rf"^{broker['id']}\s+127\.0\.0\.1\b", tools.run(CLUSTER, "list-endpoints"), re.MULTILINE)
    versions = tools.run(API_VERSIONS)
    assert "Produce(0): 0 to" in versions
    assert "DescribeQuorum(55): 0 to 2 [usable: 2]" in versions


def test_leaders_are_elected_where_they_are_not_preferred_already(tools: KafkaTools) -> None:
    create(tools, "elected")
    one = tools.run(ELECTION, "--election-type", "PREFERRED", "--topic", "elected", "--partition", 0)
    assert "Valid replica already elected for partitions elected-0" in one
    tools.run(ELECTION, "--election-type", "PREFERRED", "--all-topic-partitions")


def test_the_performance_tools_measure(tools: KafkaTools) -> None:
    create(tools, "measured", 2)
    said = tools.run(
        PRODUCER_PERF, "--topic", "measured", "--num-records", 5_000, "--record-size", 100, "--throughput", -1
    )
    assert "5000 records sent" in said
    read = tools.run(CONSUMER_PERF, "--topic", "measured", "--num-records", 5_000, "--timeout", 30_000)
    assert read.splitlines()[-1].split(", ")[4] == "5000"
    latency = tools.run(
        LATENCY,
        "--topic",
        "measured-once",
        "--num-records",
        20,
        "--producer-acks",
        "all",
        "--record-size",
        20,
    )
    assert "Percentiles: 50th" in latency


def test_producers_are_described(tools: KafkaTools) -> None:
    create(tools, "written")
    tools.run(CONSOLE_PRODUCER, "--topic", "written", sent="one\n")
    told = tools.run(TRANSACTIONS, "describe-producers", "--topic", "written", "--partition", 0).splitlines()
    assert told[0].split()[:2] == ["ProducerId", "ProducerEpoch"]
    assert len(told) == 2


def test_metrics_of_clients_are_subscribed_to_described_and_deleted(tools: KafkaTools) -> None:
    assert tools.run(CLIENT_METRICS, "--list").strip() == ""
    tools.run(CLIENT_METRICS, "--alter", "--name", "m", "--metrics", "org.apache.kafka.", "--interval", 5000)
    assert tools.run(CLIENT_METRICS, "--list").split() == ["m"]
    told = tools.run(CLIENT_METRICS, "--describe", "--name", "m")
    assert "interval.ms=5000" in told
    assert "metrics=org.apache.kafka." in told
    tools.run(CLIENT_METRICS, "--delete", "--name", "m")
    assert tools.run(CLIENT_METRICS, "--list").strip() == ""


def test_acls_are_refused_in_kafkas_words(tools: KafkaTools) -> None:
    words = "org.apache.kafka.common.errors.SecurityDisabledException: No Authorizer is configured."
    whom = ("--allow-principal", "User:ann", "--operation", "Read", "--topic", "t")
    for what in (("--list",), ("--add", *whom), ("--remove", *whom, "--force")):
        said = tools.try_to(ACLS, *what)
        assert f"Error while executing ACL command: {words}" in said.out, said


def test_levels_of_loggers_are_changed_while_the_broker_runs(
    tools: KafkaTools, broker: dict[str, Any]
) -> None:
    node = ("--entity-type", "broker-loggers", "--entity-name", broker["id"])
    name = "distributedlog.broker.net.server"

    def tell() -> str:
        told = tools.run(CONFIGS, "--describe", *node)
        (line,) = (each for each in told.splitlines() if each.strip().startswith(f"{name}="))
        return line.strip().split()[0]

    assert tell() == f"{name}=INFO"
    tools.run(CONFIGS, "--alter", *node, "--add-config", f"{name}=DEBUG")
    assert tell() == f"{name}=DEBUG"
    refused = tools.try_to(CONFIGS, "--alter", *node, "--add-config", f"{name}=BANANA")
    assert "InvalidConfigurationException" in refused.out + refused.err
    tools.run(CONFIGS, "--alter", *node, "--delete-config", name)
    assert tell() == f"{name}=INFO"


def test_all_settings_of_a_group_are_altered_and_described(tools: KafkaTools) -> None:
    group = ("--entity-type", "groups", "--entity-name", "g")
    values = (
        "share.auto.offset.reset=earliest,streams.num.standby.replicas=1,consumer.session.timeout.ms=50000"
    )
    tools.run(CONFIGS, "--alter", *group, "--add-config", values)
    told = tools.run(CONFIGS, "--describe", *group)
    for each in values.split(","):
        assert each in told
    refused = tools.try_to(CONFIGS, "--alter", *group, "--add-config", "streams.num.standby.replicas=3")
    assert "InvalidConfigurationException" in refused.out + refused.err
