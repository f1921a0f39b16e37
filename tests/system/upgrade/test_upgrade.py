"""What the last version wrote opens here, and its nodes are replaced one by one while clients go on."""

from pathlib import Path

import confluent_kafka
import pytest

from distributedlog.client.admin.admin import NewTopic
from distributedlog.client.admin.blocking import BlockingAdmin
from distributedlog.controller.features import LEVEL_MAX, METADATA_FEATURE
from distributedlog.model.cluster_settings import CLUSTER_SETTINGS
from tests.system.replication.stage import wait_until
from tests.system.server_process import TIMEOUT_SECONDS, ServerProcess, dlog, options
from tests.system.upgrade.stage import NODES, MixedCluster, Traffic, consume, unpack

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest.mark.parametrize("stop", ["clean", "crashed"])
def test_a_directory_of_the_last_version_opens_and_is_upgraded(tmp_path: Path, stop: str) -> None:
    unpack(stop, tmp_path)
    settings = {"log.retention.ms": -1, "offsets.retention.minutes": 2**31 - 1, "log.cleaner.enable": "false"}
    node = ServerProcess(tmp_path, settings)
    refused = dlog("server", "start", *options(node.settings))
    assert refused.returncode == 2
    assert "has no cluster secret" in refused.stderr
    formatted = dlog("server", "format", "--ignore-formatted", *options(node.settings))
    assert formatted.returncode == 0, formatted.stderr
    with node:
        bootstrap = node.facts["client"]
        with BlockingAdmin(bootstrap) as admin:
            topics = {each.name: each for each in admin.list_topics()}
            ranges = admin.offset_ranges([topics["orders"], topics["kept"]])
            ends = {(key.topic, key.partition): each.end for key, each in ranges.items()}
            assert ends == {("orders", 0): 10, ("orders", 1): 10, ("kept", 0): 20}
            entries = admin.topic_configs("kept")
            assert entries is not None
            assert {each.name: each.value for each in entries}["cleanup.policy"] == "compact"
        for name in CLUSTER_SETTINGS:
            told = dlog("cluster", "config", "get", name, "--bootstrap", bootstrap)
            assert name in told.stdout
        lag = dlog("group", "lag", "readers", "--bootstrap", bootstrap, "-o", "json")
        assert lag.returncode == 0, lag.stderr
        values = read_all(bootstrap)
        assert sorted(values) == sorted(b"value-%d" % number for number in range(20))
        assert "is a stray" not in node.log
        assert "damaged" not in node.log
        assert node.stop() == 0


def read_all(bootstrap: str) -> list[bytes]:
    read = dlog("topic", "consume", "orders", "-e", "--bootstrap", bootstrap)
    assert read.returncode == 0, read.stderr
    return [line.encode() for line in read.stdout.splitlines()]


@pytest.mark.parametrize("order", ["controller first", "controller last"])
def test_nodes_are_upgraded_one_by_one_while_a_client_goes_on(tmp_path: Path, order: str) -> None:
    with MixedCluster(tmp_path) as cluster:
        with Traffic(cluster.bootstrap) as traffic:
            active = cluster.controller()
            others = [node for node in NODES if node != active]
            nodes = [active, *others] if order == "controller first" else [*others, active]
            for node in nodes:
                before = len(traffic.created)
                cluster.upgrade(node)
                make_topic_on_each(cluster, f"with-{node}-upgraded")
                assert consume(cluster.bootstrap, 10), "a group reads in a cluster of both versions"
                assert len(traffic.created) > before
        assert traffic.failed == []
        assert "is believed to be a member of this cluster without a proof" in cluster.nodes[nodes[0]].log
        if order == "controller last":
            for node in nodes:
                cluster.upgrade(node, authentication="required")
            make_topic_on_each(cluster, "with-all-required")
        else:
            replicate_what_is_new(cluster)
            raise_the_level(cluster)
        assert traffic.acknowledged <= set(read_all(cluster.bootstrap))
        assert len(traffic.acknowledged) > 100
        for process in cluster.nodes.values():
            assert "Traceback" not in process.log
            assert process.stop() == 0


def replicate_what_is_new(cluster: MixedCluster) -> None:
    """Topics go on with the replicas they have, and so does the default; what is made with three has them."""
    where = ("--bootstrap", cluster.bootstrap)
    with BlockingAdmin(cluster.bootstrap) as admin:

        def replicas(name: str) -> set[tuple[int, int]]:
            """Counts the replicas of each partition, and those in sync."""
            (topic,) = [each for each in admin.list_topics(with_internal=True) if each.name == name]
            return {(len(each.replicas), len(each.isr)) for each in topic.partitions}

        admin.create_topic(NewTopic("as-before", 1))
        admin.create_topic(NewTopic("of-three", 3, 3, {"min.insync.replicas": "2"}))
        assert dlog("cluster", "config", "set", "default.replication.factor=3", *where).returncode == 0
        admin.create_topic(NewTopic("by-default", 1))
        for name in ("orders", "as-before", "__consumer_offsets"):
            assert replicas(name) == {(1, 1)}
        wait_until(lambda: replicas("of-three") == replicas("by-default") == {(3, 3)}, "all are in sync")
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    errors: list[object] = []
    for number in range(30):
        producer.produce("of-three", b"%d" % number, on_delivery=lambda error, _: errors.append(error))
    assert (producer.flush(TIMEOUT_SECONDS), errors) == (0, [None] * 30)
    health = dlog("cluster", "health", *where)
    assert "__consumer_offsets: has partitions with 1 replica(s)" in health.stdout


def raise_the_level(cluster: MixedCluster) -> None:
    """Brokers that run tell their machine then, without a restart."""
    with BlockingAdmin(cluster.bootstrap) as admin:
        assert set(admin.list_broker_hosts().values()) == {"127.0.0.1"}
        admin.update_features({METADATA_FEATURE: LEVEL_MAX})
        machines = {node: f"machine-{node}" for node in NODES}
        wait_until(lambda: admin.list_broker_hosts() == machines, "every broker has told its machine")


def make_topic_on_each(cluster: MixedCluster, name: str) -> None:
    """Makes a topic by each broker, of either version, whoever the active controller is.  Where an answer is
    lost the client asks again, and the topic is there."""
    for node, port in cluster.clients.items():
        create = ("topic", "create", f"{name}-by-{node}", "--if-not-exists")
        made = dlog(*create, "--bootstrap", f"127.0.0.1:{port}")
        assert made.returncode == 0, made.stderr
