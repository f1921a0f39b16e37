"""Every message in every version against kio, byte for byte, both ways."""

import os
import zlib
from random import Random

import pytest

from distributedlog.protocol.codec import decode_all, encode_bytes
from distributedlog.protocol.schema import Message
from tests.unit.protocol.catalogue import CONSUMER_PROTOCOL, REQUESTS_AND_RESPONSES, name_of, versions_of
from tests.unit.protocol.kio_oracle import Oracle

ROUNDS_MIN = 1000 if os.environ.get("DLOG_SOAK") else 25
ROUNDS_IN_ALL_VERSIONS = 200


@pytest.mark.parametrize("message", [*REQUESTS_AND_RESPONSES, *CONSUMER_PROTOCOL], ids=name_of)
def test_kio_reads_what_we_write_and_we_read_what_kio_writes(message: type[Message]) -> None:
    random = Random(zlib.crc32(message.__name__.encode()))
    versions = versions_of(message)
    for version in versions:
        oracle = Oracle(message, version)
        assert oracle.flexible == (version >= message.flexible_since)
        for _ in range(max(ROUNDS_MIN, ROUNDS_IN_ALL_VERSIONS // len(versions))):
            ours = oracle.random_message(random)
            theirs = oracle.to_theirs(ours)
            data = encode_bytes(ours, version)
            assert data == oracle.write(theirs), f"version {version}: {ours}"
            assert decode_all(message, version, data) == ours
            assert oracle.read(data) == theirs
