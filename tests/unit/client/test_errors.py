"""What a broker's answers mean."""

from typing import Any

import pytest

from distributedlog.client.errors import (
    RETRIABLE,
    STALE_VIEW,
    check_response,
    code_of,
    error_from,
    is_retriable,
    is_stale_view,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    BrokerError,
    BrokerUnreachableError,
    ConnectionLostError,
    RequestTimedOutError,
    TopicExistsError,
    UnknownTopicError,
)
from tests.unit.client.oracle import their_errors

OURS = {
    ErrorCode.CORRUPT_MESSAGE: "Kafka's own client tries again: the bytes may have been hurt on their way",
    ErrorCode.NOT_CONTROLLER: "the controller is in the view, so that it is what is stale",
    ErrorCode.ELECTION_NOT_NEEDED: "there is nothing to try again",
    ErrorCode.SHARE_SESSION_NOT_FOUND: "share groups are not spoken here",
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: "share groups are not spoken here",
}


def theirs() -> list[tuple[ErrorCode, Any]]:
    known = {int(code) for code in ErrorCode}
    return [
        (ErrorCode(each.errno), each) for each in their_errors() if each.errno in known and each.errno > 0
    ]


@pytest.mark.parametrize(("code", "their"), theirs(), ids=lambda each: getattr(each, "name", ""))
def test_we_try_again_where_another_client_does(code: ErrorCode, their: Any) -> None:
    if code in OURS:
        return
    assert (code in RETRIABLE) == their.retriable
    assert (code in STALE_VIEW) == their.invalid_metadata


def test_most_codes_were_compared() -> None:
    assert len({code for code, _ in theirs()} - OURS.keys()) > 80


@pytest.mark.parametrize(
    ("code", "kind"),
    [(3, UnknownTopicError), (36, TopicExistsError), (7, RequestTimedOutError), (6, BrokerError)],
)
def test_an_answer_becomes_the_exception_that_is_raised_on_the_other_side(code: int, kind: type) -> None:
    error = error_from(code, "topic 'orders'", "the broker's words")
    assert type(error) is kind
    assert code_of(error) == code
    assert str(error) == f"topic 'orders': the broker's words ({ErrorCode(code).name})"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (ErrorCode.INVALID_TRANSACTION_TIMEOUT, "transaction.max.timeout.ms"),
        (ErrorCode.PRODUCER_FENCED, "another producer has begun with it since"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "it is not there"),
    ],
)
def test_a_code_without_the_brokers_words_says_what_it_means(code: ErrorCode, says: str) -> None:
    told = str(error_from(code, "the transactional id 'id'"))
    assert told.startswith("the transactional id 'id': ")
    assert told.endswith(f"{says} ({code.name})")


def test_a_code_of_the_future_is_an_error_that_is_not_tried_again() -> None:
    error = error_from(30_000, "the fetch")
    assert str(error) == "the fetch: error 30000"
    assert code_of(error) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not is_retriable(error)


def test_no_error_is_no_exception() -> None:
    check_response(0, "anything")
    with pytest.raises(BrokerError):
        check_response(-1, "anything")


def test_a_lost_connection_makes_the_view_stale() -> None:
    for error in (ConnectionLostError("lost"), BrokerUnreachableError("gone")):
        assert is_retriable(error)
        assert is_stale_view(error)
