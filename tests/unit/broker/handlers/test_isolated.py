"""An isolated broker tells each connection once what it knows of the cluster, and then sends it elsewhere."""

from pathlib import Path

import pytest

from distributedlog.broker.cluster.isolation import Isolation
from distributedlog.broker.net.context import ConnectionSession
from distributedlog.broker.net.dispatch import CloseConnectionError
from distributedlog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.unit.broker.handlers.data_stage import DataBroker, data_broker

SESSION_MS = 6_000
OTHER = 2


def isolated(broker: DataBroker) -> Isolation:
    isolation = Isolation(broker.clock, broker.stage.scheduler, lambda heard: heard == frozenset())
    broker.stage.scheduler.advance(SESSION_MS)
    isolation.take_lease(broker.clock.monotonic_ms(), SESSION_MS)
    broker.services.isolation = isolation
    return isolation


def ask(broker: DataBroker) -> MetadataResponse:
    return broker.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False), 12, MetadataResponse)


def test_the_second_question_closes_the_connection(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        isolated(broker)
        assert ask(broker).topics == []
        with pytest.raises(CloseConnectionError):
            ask(broker)
        broker.session = ConnectionSession()
        assert ask(broker).topics == [], "a new connection is told again: there may be nobody else"


def test_a_broker_that_is_heard_again_answers_as_ever(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        isolation = isolated(broker)
        ask(broker)
        isolation.note_fetch(OTHER)
        for _ in range(3):
            ask(broker)
        broker.stage.scheduler.advance(SESSION_MS)
        assert isolation.is_isolated
        ask(broker)
        with pytest.raises(CloseConnectionError):
            ask(broker)
