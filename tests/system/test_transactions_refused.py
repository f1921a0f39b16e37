"""A client that wants transactions is told at once that there are none, and does not wait out its timeout."""

import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from tests.system.server_process import ServerProcess

TIMEOUT_S = 60.0
REFUSED_S_MAX = 15.0


def test_a_transactional_producer_stops_at_once(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, {}) as node:
        producer = Producer(
            {"bootstrap.servers": node.facts["client"], "transactional.id": "x", "log_level": 0}
        )
        began = time.monotonic()
        with pytest.raises(KafkaException) as refusal:
            producer.init_transactions(TIMEOUT_S)
        assert time.monotonic() - began <= REFUSED_S_MAX
        error = refusal.value.args[0]
        assert error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert error.fatal()
        assert not error.retriable()
        assert node.stop() == 0
