"""Topics made, looked at, changed and deleted by each client that can."""

from typing import Any

import pytest

from distributedlog.controller.features import METADATA_FEATURE
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


@pytest.mark.parametrize("client", ADMINISTRATORS)
def test_what_is_only_validated_is_not_made(client: str, clients: Clients, noted: Noted) -> None:
    topic = f"trial-{client}"
    with noted.cell(client, "validate topic only"):
        clients[client].ask("trial", topic=topic)
        assert topic not in clients[client].ask("list")["topics"]


@pytest.mark.parametrize("client", ADMINISTRATORS)
def test_records_are_deleted_up_to_an_offset(client: str, clients: Clients, noted: Noted) -> None:
    topic, ask = f"trimmed-{client}", clients[client].ask
    ask("create", topic=topic, partitions=1, configs={})
    for _ in range(3):
        ask(
            "produce", topic=topic, partition=0, records=[record(b"value")], codec="none",
            acks="all", idempotent=False, bytes_max=CLIENT_BYTES_MAX,
        )  # fmt: skip
    with noted.cell(client, "delete records"):
        assert ask("trim", topic=topic, partition=0, before=2) == {"start": 2}
        assert ask("bounds", topic=topic, partition=0) == {"start": 2, "end": 3}
    if client in offering("offsets by admin", CLIENTS):
        with noted.cell(client, "offsets by admin"):
            assert ask("offsets", topic=topic, partition=0) == {"start": 2, "end": 3}


@pytest.mark.parametrize("client", ADMINISTRATORS)
def test_settings_are_refused_and_taken_back(client: str, clients: Clients, noted: Noted) -> None:
    topic, ask = f"set-{client}", clients[client].ask
    ask("create", topic=topic, partitions=1, configs={"retention.ms": "1000"})
    with noted.cell(client, "refused: bad config"):
        with pytest.raises(ClientError) as refused:
            ask("set_config", topic=topic, name="retention.ms", value="soon")
        assert refused.value.code == ErrorCode.INVALID_CONFIG, refused.value
    with noted.cell(client, "unset topic config"):
        ask("unset_config", topic=topic, name="retention.ms")
        assert ask("config", topic=topic, name="retention.ms") == {"value": "604800000"}


@pytest.mark.parametrize("client", ADMINISTRATORS)
def test_a_broker_is_asked_and_told_itself(
    client: str, broker: dict[str, Any], clients: Clients, noted: Noted
) -> None:
    ask, node_id = clients[client].ask, broker["id"]
    with noted.cell(client, "describe broker config"):
        assert ask("broker_config", id=node_id, name="node.id") == {"value": str(node_id)}
    with noted.cell(client, "set broker config"):
        value = str(70_000_000 + ADMINISTRATORS.index(client))
        ask("set_broker_config", id=node_id, name="log.retention.bytes", value=value)
        assert ask("broker_config", id=node_id, name="log.retention.bytes") == {"value": value}
        ask("set_broker_config", id=node_id, name="log.retention.bytes", value="-1")


@pytest.mark.parametrize("client", offering("elect leaders", CLIENTS))
def test_a_leader_that_is_the_preferred_one_is_not_elected(
    client: str, clients: Clients, noted: Noted
) -> None:
    topic, ask = f"elected-{client}", clients[client].ask
    ask("create", topic=topic, partitions=1, configs={})
    with noted.cell(client, "elect leaders"):
        assert ask("elect", topic=topic, partition=0) == {"code": ErrorCode.ELECTION_NOT_NEEDED}


@pytest.mark.parametrize("client", offering("describe quorum", CLIENTS))
def test_what_only_some_can_ask_is_answered_to_those(
    client: str, node_ids: list[int], clients: Clients, noted: Noted
) -> None:
    topic, ask = f"inspected-{client}", clients[client].ask
    ask("create", topic=topic, partitions=2, configs={})
    ask(
        "produce", topic=topic, partition=0, records=[record(b"value")], codec="none",
        acks="all", idempotent=True, bytes_max=CLIENT_BYTES_MAX,
    )  # fmt: skip
    with noted.cell(client, "describe log dirs"):
        first, second = ask("log_dirs", topic=topic)["sizes"]
        assert first > second == 0
    with noted.cell(client, "describe producers"):
        assert ask("producers", topic=topic, partition=0) == {"count": 1}
    if client in offering("describe topic partitions", CLIENTS):
        with noted.cell(client, "describe topic partitions"):
            assert ask("topic_partitions", topic=topic) == {"partitions": 2}
    with noted.cell(client, "list config resources"):
        assert topic in ask("resources")["topics"]
    with noted.cell(client, "describe quorum"):
        quorum = ask("quorum")
        assert quorum["leader"] in node_ids
        assert sorted(quorum["voters"]) == node_ids
    with noted.cell(client, "describe features"):
        levels = ask("features")["levels"]
        assert METADATA_FEATURE in levels
    with noted.cell(client, "update features"):
        ask("raise_feature", name=METADATA_FEATURE, level=levels[METADATA_FEATURE])
        with pytest.raises(ClientError):
            ask("raise_feature", name=METADATA_FEATURE, level=levels[METADATA_FEATURE] + 1)


@pytest.mark.parametrize("client", offering("describe cluster", CLIENTS))
def test_the_cluster_is_described(client: str, node_ids: list[int], clients: Clients, noted: Noted) -> None:
    with noted.cell(client, "describe cluster"):
        assert sorted(clients[client].ask("brokers")["ids"]) == node_ids
