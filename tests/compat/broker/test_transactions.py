"""Transactions of every client that has them, and who reads what is committed."""

import base64
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from distributedlog.client.admin.admin import NewTopic
from tests.bench.topics import make_topics
from tests.compat.broker.clients import CLIENTS, TIMEOUT_SECONDS, Clients
from tests.compat.broker.features import offering
from tests.compat.broker.matrix import Noted

transacting = pytest.mark.parametrize("client", offering("transactions", CLIENTS))


def texts(*values: str) -> list[str]:
    return [base64.b64encode(value.encode()).decode() for value in values]


def transaction(*values: str, commit: bool, offset: int = 0) -> dict[str, Any]:
    return {"values": texts(*values), "commit": commit, "offset": offset}


def transact(
    clients: Clients, client: str, topic: str, *transactions: dict[str, Any], group: str | None = None
) -> None:
    clients[client].ask(
        "transact", id=topic, topic=topic, partition=0, transactions=transactions, group=group
    )


def read_by_all(clients: Clients, topic: str, wanted: list[str]) -> dict[str, bool]:
    """Returns which clients read what is committed, and nothing else."""
    found = clients.ask_all("committed", topic=topic, partition=0, count=len(wanted))
    return {
        name: not isinstance(answer, Exception)
        and [each["value"] for each in answer["records"]] == texts(*wanted)
        for name, answer in found
    }


@transacting
def test_what_a_client_commits_is_read_by_all_and_what_it_aborts_by_none(
    client: str, broker: dict[str, Any], clients: Clients, noted: Noted
) -> None:
    topic = f"transactions-{client}"
    make_topics(broker["client"], NewTopic(topic, partitions=1))
    with noted.cell(client, "transactions"):
        transact(
            clients, client, topic,
            transaction("a", "b", commit=True), transaction("c", commit=False), transaction("d", commit=True),
        )  # fmt: skip
    readers = read_by_all(clients, topic, ["a", "b", "d"])
    for reader, is_ok in readers.items():
        noted.note(reader, "read committed", is_ok=is_ok)
    assert all(readers.values()), readers


@transacting
def test_a_second_producer_takes_the_id_over(
    client: str, broker: dict[str, Any], clients: Clients, noted: Noted
) -> None:
    topic = f"taken-over-{client}"
    make_topics(broker["client"], NewTopic(topic, partitions=1))
    with noted.cell(client, "a second producer takes over"):
        transact(clients, client, topic, transaction("first", commit=True))
        transact(clients, client, topic, transaction("second", commit=True))
        readers = read_by_all(clients, topic, ["first", "second"])
        assert all(readers.values()), readers


@transacting
def test_offsets_are_committed_with_it_or_not(
    client: str, broker: dict[str, Any], clients: Clients, noted: Noted
) -> None:
    topic = group = f"txn-offsets-{client}"
    make_topics(broker["client"], NewTopic(topic, partitions=1))
    with noted.cell(client, "offsets in a transaction"):
        transact(
            clients, client, topic,
            transaction("x", commit=True, offset=7), transaction("y", commit=False, offset=9), group=group,
        )  # fmt: skip
        consumer = Consumer({"bootstrap.servers": broker["client"], "group.id": group})
        try:
            (found,) = consumer.committed([TopicPartition(topic, 0)], TIMEOUT_SECONDS)
        finally:
            consumer.close()
        assert found.offset == 7
