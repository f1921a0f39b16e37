"""Every error of Kafka's has a status that says what the caller can do."""

import pytest
from grpc import StatusCode

from distributedlog.gateway._generated import broker_service_pb2 as pb
from distributedlog.gateway.failures import MESSAGE_LENGTH_MAX, failure, failure_of, status_of
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import BrokerError, NotEnoughReplicasError, RequestTimedOutError


@pytest.mark.parametrize("code", [code for code in ErrorCode if code is not ErrorCode.NONE])
def test_no_error_is_taken_for_success(code: ErrorCode) -> None:
    failed = failure(code, "words")
    assert (failed.code, failed.name) == (code, code.name)
    assert status_of(failed) not in (StatusCode.OK, StatusCode.UNKNOWN, StatusCode.CANCELLED)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, StatusCode.NOT_FOUND),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, StatusCode.INVALID_ARGUMENT),
        (ErrorCode.MESSAGE_TOO_LARGE, StatusCode.INVALID_ARGUMENT),
        (ErrorCode.OFFSET_OUT_OF_RANGE, StatusCode.OUT_OF_RANGE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, StatusCode.UNAVAILABLE),
        (ErrorCode.CORRUPT_MESSAGE, StatusCode.DATA_LOSS),
    ],
)
def test_the_status_says_what_can_be_done(code: ErrorCode, status: StatusCode) -> None:
    assert status_of(failure(code, "words")) is status


def test_where_there_is_no_leader_there_is_nobody_to_ask() -> None:
    nobody = failure(ErrorCode.NOT_LEADER_OR_FOLLOWER, "words")
    assert status_of(nobody) is StatusCode.UNAVAILABLE
    other = failure(ErrorCode.NOT_LEADER_OR_FOLLOWER, "words", leader=pb.Leader(broker_id=2))
    assert status_of(other) is StatusCode.FAILED_PRECONDITION


def test_what_may_have_happened_is_not_told_as_refused() -> None:
    lost = failure(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it was appended", outcome_unknown=True)
    assert status_of(lost) is StatusCode.UNAVAILABLE
    late = failure_of(RequestTimedOutError("no answer"))
    assert late.outcome_unknown
    assert status_of(late) is StatusCode.DEADLINE_EXCEEDED


def test_an_error_keeps_its_code_and_its_words() -> None:
    failed = failure_of(NotEnoughReplicasError("one of two"))
    assert (failed.name, failed.message, failed.retriable) == ("NOT_ENOUGH_REPLICAS", "one of two", True)
    answered = failure_of(BrokerError("told", ErrorCode.POLICY_VIOLATION))
    assert answered.code == ErrorCode.POLICY_VIOLATION
    assert not answered.retriable


def test_words_fit_into_metadata() -> None:
    failed = failure(ErrorCode.INVALID_REQUEST, "a\nb\x00 \ud800" + "x" * 10_000)
    assert len(failed.message) <= MESSAGE_LENGTH_MAX
    assert "\n" not in failed.message
    assert failed.SerializeToString()
