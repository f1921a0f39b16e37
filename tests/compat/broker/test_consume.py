"""Reading by assignment: from a place, from a time, and what is not there yet."""

import threading
from typing import Any

import pytest

from tests.compat.broker.clients import CLIENTS, Clients
from tests.compat.broker.corpus import CLIENT_BYTES_MAX, NOW_MS, record, text
from tests.compat.broker.matrix import Noted

COUNT = 50
BATCH = 10
STEP_MS = 1000
every_client = pytest.mark.parametrize("client", CLIENTS)


def value(number: int) -> str | None:
    return text(b"value %d" % number)


def produce(clients: Clients, topic: str, numbers: range, codec: str = "none") -> None:
    records = [record(b"value %d" % at, b"key", timestamp=NOW_MS + STEP_MS * at) for at in numbers]
    clients["confluent-kafka"].ask(
        "produce", topic=topic, partition=0, records=records, codec=codec, acks="all",
        idempotent=False, bytes_max=CLIENT_BYTES_MAX,
    )  # fmt: skip


@pytest.fixture
def topic(client: str, clients: Clients, request: pytest.FixtureRequest) -> str:
    """Fifty records with rising timestamps, in several batches, some of them compressed."""
    name = f"{request.function.__name__}-{client}"
    for number, start in enumerate(range(0, COUNT, BATCH)):
        produce(clients, name, range(start, start + BATCH), ("none", "lz4")[number % 2])
    return name


@every_client
def test_an_assigned_consumer_reads_from_any_offset(
    client: str, topic: str, clients: Clients, noted: Noted
) -> None:
    with noted.cell(client, "consume by assign"):
        for start in (0, 13, COUNT - 1):  # a batch's first, one in the middle of a compressed batch, the last
            read = clients[client].ask(
                "consume", topic=topic, partition=0, **{"from": start, "count": COUNT - start}
            )
            assert [(got["offset"], got["value"]) for got in read["records"]] == [
                (at, value(at)) for at in range(start, COUNT)
            ]


@every_client
def test_a_consumer_seeks_back_and_forth(client: str, topic: str, clients: Clients, noted: Noted) -> None:
    places = [40, 3, 25, 0, COUNT - 1, 17]
    with noted.cell(client, "seek back and forth"):
        read = clients[client].ask("seek", topic=topic, partition=0, offsets=places)
        assert [(got["offset"], got["value"]) for got in read["records"]] == [
            (at, value(at)) for at in places
        ]


@every_client
def test_offsets_are_found_by_time(client: str, topic: str, clients: Clients, noted: Noted) -> None:
    late = COUNT if client == "KafkaJS" else None  # KafkaJS says the end where nothing is so late
    moments = [
        (NOW_MS - 1, 0),
        (NOW_MS, 0),
        (NOW_MS + 1, 1),
        (NOW_MS + 17 * STEP_MS, 17),
        (NOW_MS + 17 * STEP_MS + 1, 18),
        (NOW_MS + (COUNT - 1) * STEP_MS, COUNT - 1),
        (NOW_MS + COUNT * STEP_MS, late),
    ]
    with noted.cell(client, "offsets by timestamp"):
        found = clients[client].ask(
            "times", topic=topic, partition=0, timestamps=[moment for moment, _ in moments]
        )
        assert found["offsets"] == [offset for _, offset in moments]


@every_client
def test_start_and_end_are_known(client: str, topic: str, clients: Clients, noted: Noted) -> None:
    with noted.cell(client, "start and end offsets"):
        assert clients[client].ask("bounds", topic=topic, partition=0) == {"start": 0, "end": COUNT}


@every_client
def test_a_consumer_at_the_end_gets_what_comes(
    client: str, topic: str, clients: Clients, noted: Noted
) -> None:
    read: list[dict[str, Any]] = []

    def wait() -> None:
        answer = clients[client].ask("consume", topic=topic, partition=0, **{"from": COUNT, "count": 5})
        read.extend(answer["records"])

    # The record is written by another client than the one that waits.
    writer = next(other for other in ("aiokafka", "KafkaJS") if other != client)
    with noted.cell(client, "long poll"):
        waiting = threading.Thread(target=wait)
        waiting.start()
        for at in range(COUNT, COUNT + 5):
            clients[writer].ask(
                "produce", topic=topic, partition=0, records=[record(b"value %d" % at)], codec="none",
                acks="all", idempotent=False, bytes_max=CLIENT_BYTES_MAX,
            )  # fmt: skip
        waiting.join()
        assert [(got["offset"], got["value"]) for got in read] == [
            (at, value(at)) for at in range(COUNT, COUNT + 5)
        ]
