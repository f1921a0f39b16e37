"""What a producer may ask for beyond the records themselves."""

from typing import Any

import pytest

from distributedlog.client.admin.admin import NewTopic
from distributedlog.model.error_codes import ErrorCode
from tests.bench.topics import make_topics
from tests.compat.broker.clients import CLIENTS, ClientError, Clients
from tests.compat.broker.corpus import CLIENT_BYTES_MAX, MESSAGE_BYTES_MAX, largest_value, record, text
from tests.compat.broker.matrix import Noted
from tests.compat.broker.stored import batches

every_client = pytest.mark.parametrize("client", CLIENTS)


def produce(
    clients: Clients,
    client: str,
    topic: str,
    records: list[dict[str, Any]],
    *,
    acks: str = "all",
    idempotent: bool = False,
) -> Any:
    return clients[client].ask(
        "produce", topic=topic, partition=0, records=records, codec="none", acks=acks,
        idempotent=idempotent, bytes_max=CLIENT_BYTES_MAX,
    )  # fmt: skip


@every_client
def test_the_largest_batch_is_taken_and_read_by_all(
    client: str, broker: dict[str, Any], clients: Clients, noted: Noted
) -> None:
    topic, value = f"largest-{client}", largest_value()
    with noted.cell(client, "largest batch"):
        produce(clients, client, topic, [record(value)])
        (header,) = batches(broker["data_dir"], topic)
        assert header.size == MESSAGE_BYTES_MAX
        for reader, found in clients.ask_all("consume", topic=topic, partition=0, **{"from": 0, "count": 1}):
            assert not isinstance(found, Exception), (reader, found)
            assert [got["value"] for got in found["records"]] == [text(value)], reader


@every_client
def test_one_byte_more_is_refused_by_name_and_nothing_is_kept(
    client: str, clients: Clients, noted: Noted
) -> None:
    topic = f"too-large-{client}"
    with noted.cell(client, "too large is refused"):
        produce(clients, client, topic, [record(b"before")])
        with pytest.raises(ClientError) as refused:
            produce(clients, client, topic, [record(largest_value() + b"x")])
        assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE, refused.value
        assert produce(clients, client, topic, [record(b"after")]) == {"offsets": [1]}


@every_client
def test_an_idempotent_producer_has_an_id_and_numbers_what_it_sends(
    client: str, broker: dict[str, Any], clients: Clients, noted: Noted
) -> None:
    topic = f"idempotent-{client}"
    with noted.cell(client, "idempotent"):
        sent = [record(b"value %d" % number, b"key") for number in range(100)]
        assert produce(clients, client, topic, sent, idempotent=True) == {"offsets": list(range(100))}
        headers = batches(broker["data_dir"], topic)
        assert len({(header.producer_id, header.producer_epoch) for header in headers}) == 1
        assert headers[0].has_producer_id
        assert [header.base_sequence for header in headers] == [header.base_offset for header in headers]


@every_client
@pytest.mark.parametrize("acks", ["0", "1"])
def test_fewer_acknowledgements_may_be_asked_for(
    client: str, acks: str, broker: dict[str, Any], clients: Clients, noted: Noted
) -> None:
    topic = f"acks-{acks}-{client}"
    # With acks=0 nobody hears that a partition has no leader yet: what is sent before it leads is lost.
    make_topics(broker["client"], NewTopic(topic, 1))
    with noted.cell(client, f"acks={acks}"):
        sent = [record(b"value %d" % number) for number in range(20)]
        offsets = produce(clients, client, topic, sent, acks=acks)["offsets"]
        assert offsets == ([None] * 20 if acks == "0" else list(range(20)))
        read = clients[client].ask("consume", topic=topic, partition=0, **{"from": 0, "count": 20})
        assert [got["value"] for got in read["records"]] == [one["value"] for one in sent]


@every_client
def test_a_topic_is_made_on_first_use(client: str, clients: Clients, noted: Noted) -> None:
    topic = f"first-use-{client}"
    with noted.cell(client, "topic made on first use"):
        assert topic not in clients[client].ask("list")["topics"]
        assert produce(clients, client, topic, [record(b"value")]) == {"offsets": [0]}
        assert topic in clients[client].ask("list")["topics"]
