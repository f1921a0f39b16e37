"""Topics made, looked at, changed and deleted by each client that can."""

from typing import Any

import pytest

from distributedlog.model.error_codes import ErrorCode
from tests.compat.broker.clients import CLIENTS, ClientError, Clients
from tests.compat.broker.corpus import CLIENT_BYTES_MAX, record
from tests.compat.broker.features import offering
from tests.compat.broker.matrix import Noted

ADMINISTRATORS = offering("create topic", CLIENTS)


@pytest.mark.parametrize("client", ADMINISTRATORS)
def test_a_topic_lives_from_its_creation_to_its_deletion(client: str, clients: Clients, noted: Noted) -> None:
    topic, ask = f"life-{client}", clients[client].ask
    with noted.cell(client, "create topic"):
        ask("create", topic=topic, partitions=3, configs={"retention.ms": "3600000"})
    with noted.cell(client, "refused: topic exists"), pytest.raises(ClientError) as refused:
        ask("create", topic=topic, partitions=3, configs={})
    assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS, refused.value
    with noted.cell(client, "describe topic"):
        assert ask("describe", topic=topic) == {"partitions": 3}
    with noted.cell(client, "list topics"):
        assert topic in ask("list")["topics"]
    with noted.cell(client, "describe topic config"):
        assert ask("config", topic=topic, name="retention.ms") == {"value": "3600000"}
    with noted.cell(client, "set topic config"):
        ask("set_config", topic=topic, name="retention.ms", value="7200000")
        assert ask("config", topic=topic, name="retention.ms") == {"value": "7200000"}
    with noted.cell(client, "add partitions"):
        ask("grow", topic=topic, partitions=5)
        assert ask("describe", topic=topic) == {"partitions": 5}
        produce_to_each(clients, client, topic, 5)
    with noted.cell(client, "delete topic"):
        ask("delete", topic=topic)
        assert topic not in ask("list")["topics"]


def produce_to_each(clients: Clients, client: str, topic: str, partitions: int) -> None:
    for partition in range(partitions):
        answer: Any = clients[client].ask(
            "produce", topic=topic, partition=partition, records=[record(b"value")], codec="none",
            acks="all", idempotent=False, bytes_max=CLIENT_BYTES_MAX,
        )  # fmt: skip
        assert answer == {"offsets": [0]}


@pytest.mark.parametrize("client", [name for name in CLIENTS if name not in ADMINISTRATORS])
def test_who_administers_nothing_can_still_look(client: str, clients: Clients, noted: Noted) -> None:
    topic = f"seen-by-{client}"
    clients["confluent-kafka"].ask("create", topic=topic, partitions=4, configs={})
    with noted.cell(client, "describe topic"):
        assert clients[client].ask("describe", topic=topic) == {"partitions": 4}
    with noted.cell(client, "list topics"):
        assert topic in clients[client].ask("list")["topics"]


@pytest.mark.parametrize("client", offering("describe cluster", CLIENTS))
def test_the_cluster_is_described(
    client: str, broker: dict[str, Any], clients: Clients, noted: Noted
) -> None:
    with noted.cell(client, "describe cluster"):
        assert clients[client].ask("brokers") == {"ids": [broker["id"]]}
