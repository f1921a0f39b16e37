"""SinkTransaction: what is refused before a coordinator is asked."""

import pytest

from distributedlog.broker.handlers.sink_transaction import WINNERS_MAX, sink_transaction
from distributedlog.broker.net.context import RequestContext
from distributedlog.model.errors import InvalidRequestError
from distributedlog.protocol.messages.sink_records import SinkWinner
from distributedlog.protocol.messages.sink_transaction import SinkOperation, SinkTransactionRequest
from tests.unit.broker.server_stage import bare_services, settings_on

CONTEXT = RequestContext("User:ANONYMOUS", "PLAINTEXT", None, "127.0.0.1", 1, 0, 0, 0)


def refuse(request: SinkTransactionRequest, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        sink_transaction(bare_services(settings_on()), request, CONTEXT)


def test_an_operation_that_is_none_is_refused() -> None:
    refuse(SinkTransactionRequest(operation=99, query_id="q", winners=[]), "no operation 99")


def test_winners_are_bounded_and_each_is_named_once() -> None:
    winner = SinkWinner(producer_id=1, producer_epoch=0)
    later = SinkWinner(producer_id=1, producer_epoch=2)
    for winners, reason in (
        ([winner] * (WINNERS_MAX + 1), "at most"),
        ([winner, winner], "twice"),
        ([winner, later], "twice"),
    ):
        refuse(SinkTransactionRequest(operation=SinkOperation.END, query_id="q", winners=winners), reason)
