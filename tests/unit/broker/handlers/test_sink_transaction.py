"""SinkTransaction: what is refused before a coordinator is asked."""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, cast

import pytest

from distributedlog.broker.bridge import MetadataView
from distributedlog.broker.handlers.sink_transaction import WINNERS_MAX, sink_transaction
from distributedlog.broker.net.context import RequestContext
from distributedlog.controller.image import MetadataImage
from distributedlog.model.errors import InvalidRequestError
from distributedlog.ports.executor import Done, Outcome
from distributedlog.protocol.messages.sink_records import SinkWinner
from distributedlog.protocol.messages.sink_transaction import SinkOperation, SinkTransactionRequest
from distributedlog.statemachine import Producer
from distributedlog.transactions.sinks.requests import SinkJoin, SinkJoined
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


class Joined:
    """Transactions that let everybody join, and a controller that has given out tokens below `next_token`."""

    def __init__(self, next_token: int) -> None:
        self.tokens: list[int] = []
        self.asked = 0
        self._next_token = next_token

    def submit(self, _: str, request: SinkJoin, __: int, done: Done[Any]) -> None:
        self.tokens.append(request.token)
        done(Outcome(SinkJoined(Producer(7, 0))))

    async def new_token(self) -> int:
        self.asked += 1
        return self._next_token


@pytest.mark.parametrize(
    ("token", "is_given_out", "asks_the_controller"),
    [(999, True, False), (1_000, True, True), (3_999, True, True), (4_000, False, True),
     (2**63 - 1, False, True)],
)  # fmt: skip
def test_nobody_joins_with_a_token_that_was_never_given_out(
    token: int, is_given_out: bool, asks_the_controller: bool
) -> None:
    """It would be higher than all that follow.  The image may be behind what was given out."""
    stage, view = Joined(next_token=4_000), MetadataView()
    view.take(replace(MetadataImage(), next_producer_id=1_000))
    services = bare_services(settings_on())
    services.metadata, services.transactions = view, cast(Any, stage)
    services.producer_ids = cast(Any, stage)
    request = SinkTransactionRequest(
        operation=SinkOperation.JOIN, query_id="q", token=token, batch_id=0, attempt_id="0", winners=[]
    )

    async def join() -> None:
        await cast(Awaitable[object], sink_transaction(services, request, CONTEXT))

    if is_given_out:
        asyncio.run(join())
    else:
        with pytest.raises(InvalidRequestError, match="never given out"):
            asyncio.run(join())
    assert stage.tokens == [token] * is_given_out
    assert stage.asked == asks_the_controller
