"""What one client writes all others read, with every codec."""

from typing import Any

import pytest

from distributedlog.records.compression import Codec
from tests.compat.broker.clients import CLIENTS, Clients
from tests.compat.broker.corpus import CLIENT_BYTES_MAX, Entry, corpus_for
from tests.compat.broker.features import CODECS, IN_CORPUS, TIMESTAMPS, offering
from tests.compat.broker.matrix import Noted
from tests.compat.broker.stored import batches


def wrong_in(entries: list[Entry], found: Any) -> dict[str, list[str]]:
    """Returns by trait what a reader made of a record that is not what was written."""
    if isinstance(found, Exception):
        return {entry.trait: [str(found)] for entry in entries}
    wrong: dict[str, list[str]] = {}
    for offset, (entry, record) in enumerate(zip(entries, found["records"], strict=True)):
        expected = {"offset": offset, **entry.record}
        if expected["timestamp"] is None:
            expected["timestamp"] = record["timestamp"]
        elif expected["timestamp"] != record["timestamp"]:
            wrong.setdefault(TIMESTAMPS, []).append(f"{offset}: {record['timestamp']}")
        if record != expected:
            wrong.setdefault(entry.trait, []).append(f"{str(expected)[:200]} is read as {str(record)[:200]}")
    return wrong


def timestamps(found: Any) -> list[int]:
    return [] if isinstance(found, Exception) else [record["timestamp"] for record in found["records"]]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", CLIENTS)
def test_what_one_client_writes_all_others_read(
    writer: str, codec: str, broker: dict[str, Any], clients: Clients, noted: Noted
) -> None:
    topic = f"cross-{writer}-{codec}"
    entries = corpus_for(writer)
    with noted.cell(writer, f"produce {codec}"):
        answer = clients[writer].ask(
            "produce", topic=topic, partition=0, records=[entry.record for entry in entries],
            codec=codec, acks="all", idempotent=False, bytes_max=CLIENT_BYTES_MAX,
        )  # fmt: skip
        assert answer["offsets"] == list(range(len(entries)))
        # A client may leave a batch as it is when compressing does not make it smaller.
        codecs = {header.codec for header in batches(broker["data_dir"], topic)}
        assert Codec[codec.upper()] in codecs
        assert codecs <= {Codec[codec.upper()], Codec.NONE}
    found = dict(clients.ask_all("consume", topic=topic, partition=0, **{"from": 0, "count": len(entries)}))
    wrong = {reader: wrong_in(entries, records) for reader, records in found.items()}
    for reader in CLIENTS:
        noted.note(reader, writer, codec, is_ok=not wrong[reader])
    for trait in IN_CORPUS:
        if writer in offering(trait, CLIENTS):
            noted.note(writer, trait, is_ok=not any(trait in problems for problems in wrong.values()))
    assert not any(wrong.values()), wrong
    assert len({tuple(timestamps(records)) for records in found.values()}) == 1
