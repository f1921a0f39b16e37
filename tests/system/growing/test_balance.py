"""Skewed topics become balanced while a producer and a consumer work and see no error."""

import json
import os

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from distributedlog.cli.main import main
from distributedlog.client.admin.blocking import BlockingAdmin
from tests.system.growing.clients import Clients
from tests.system.replication.stage import PATIENCE_SECONDS, PRODUCER_SETTINGS, Replicated

PARTITIONS = 12
PARTITION_BYTES = 1_000_000
VALUE_BYTES = 100_000
TOLERANCE = 0.1


def test_skewed_topics_become_balanced_within_a_throttle_and_stay_so(
    replicated: Replicated, capsys: pytest.CaptureFixture[str]
) -> None:
    make_skewed(replicated)
    at = ("--bootstrap", replicated.bootstrap, "--measure", "0")
    watched = replicated.create(1, 2, 3)
    with Clients(replicated.bootstrap, watched) as clients:
        assert main(["cluster", "balance", "--dry-run", "-o", "json", *at]) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert main(["cluster", "balance", "--yes", "--throttle", "20000000", *at]) == 0
        clients.get_on()
        said = capsys.readouterr().out
    clients.check()

    (planned,) = [row for row in rows if row["type"] == "plan"]
    assert planned["deviation_before"] > 0.5
    assert 0 < planned["moves"] <= PARTITIONS * 2 / 3, "a third of the replicas has to move"
    assert "moves have ended" in said
    assert main(["cluster", "balance", "--yes", "-o", "json", *at]) == 0
    (again,) = [json.loads(line) for line in capsys.readouterr().out.splitlines() if '"plan"' in line]
    assert (again["moves"], again["leaderships"]) == (0, 0), "what is balanced is left as it is"
    check_balanced(replicated)


def make_skewed(replicated: Replicated) -> None:
    """Makes a topic whose replicas all lie on brokers 1 and 2, and which 1 leads."""
    config = {"min.insync.replicas": "1"}
    topic = NewTopic("skewed", PARTITIONS, replica_assignment=[[1, 2]] * PARTITIONS, config=config)
    replicated.admin.create_topics([topic])["skewed"].result(PATIENCE_SECONDS)
    producer = Producer({"bootstrap.servers": replicated.bootstrap, **PRODUCER_SETTINGS, "linger.ms": 20})
    for number in range(PARTITIONS * PARTITION_BYTES // VALUE_BYTES):
        producer.produce("skewed", os.urandom(VALUE_BYTES), partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(PATIENCE_SECONDS) == 0


def check_balanced(replicated: Replicated) -> None:
    """Asks brokers what they hold, not the planner what it meant."""
    with BlockingAdmin(replicated.bootstrap) as admin:
        held = {
            broker: sum(directory.size_bytes for directory in directories)
            for broker, directories in admin.describe_log_dirs().items()
            if not isinstance(directories, Exception)
        }
        partitions = [each for topic in admin.list_topics(with_internal=True) for each in topic.partitions]
        assert not admin.list_reassignments()
        assert not [
            each for each in admin.topic_configs("skewed") or () if "throttled" in each.name and each.value
        ]
    mean = sum(held.values()) / 3
    assert all(abs(size / mean - 1) <= TOLERANCE + 0.02 for size in held.values()), held
    leads = [sum(each.leader_id == broker for each in partitions) for broker in held]
    mean = sum(leads) / 3
    assert all(abs(each - mean) <= max(1, TOLERANCE * mean) for each in leads), leads
    assert all(set(each.replicas) == set(each.isr) for each in partitions)
