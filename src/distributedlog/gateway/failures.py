"""What the gateway says when something fails: Kafka's error, and the status of gRPC that fits it.

A `Failure` has Kafka's number and name of the error, words, and whether the outcome is unknown.  It stands
in the result of a record or partition; if the call as a whole failed, it travels beside the status:

    trailing metadata            holds
    dlog-failure-bin             the Failure
    grpc-status-details-bin      the same in a google.rpc.Status, as generic tools expect it

Which status a failure has says what the caller can do:

    INVALID_ARGUMENT     what was asked is wrong, and will be wrong again
    NOT_FOUND            no such topic or partition
    OUT_OF_RANGE         no such offset: it was deleted, or is not written yet
    FAILED_PRECONDITION  another broker leads the partition: ask there
    RESOURCE_EXHAUSTED   as much as is allowed is under way, or the client's quota is used up: later
    DEADLINE_EXCEEDED    the acknowledgement did not come in time; it may come yet
    UNAVAILABLE          not now; for a produce, `outcome_unknown` says whether it may have happened
    DATA_LOSS            what is in the log is damaged
    INTERNAL             a defect of ours
"""

import logging
from typing import Any, Final, NoReturn

from grpc import StatusCode
from grpc.aio import ServicerContext

from distributedlog.client.errors import RETRIABLE
from distributedlog.gateway._generated import broker_service_pb2 as pb
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import BrokerError, DlogError, RequestTimedOutError

logger = logging.getLogger(__name__)

FAILURE_KEY: Final = "dlog-failure-bin"
STATUS_DETAILS_KEY: Final = "grpc-status-details-bin"
TYPE_URL: Final = "type.googleapis.com/dlog.v1.Failure"
MESSAGE_LENGTH_MAX: Final = 1_000
"""The longest message in characters.  Trailing metadata has the text three times, and is small by nature."""

_STATUSES: Final[dict[ErrorCode, StatusCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: StatusCode.NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_ID: StatusCode.NOT_FOUND,
    ErrorCode.OFFSET_OUT_OF_RANGE: StatusCode.OUT_OF_RANGE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: StatusCode.FAILED_PRECONDITION,
    ErrorCode.REQUEST_TIMED_OUT: StatusCode.DEADLINE_EXCEEDED,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: StatusCode.RESOURCE_EXHAUSTED,
    ErrorCode.POLICY_VIOLATION: StatusCode.RESOURCE_EXHAUSTED,
    ErrorCode.CORRUPT_MESSAGE: StatusCode.DATA_LOSS,
    ErrorCode.KAFKA_STORAGE_ERROR: StatusCode.UNAVAILABLE,
    ErrorCode.BROKER_NOT_AVAILABLE: StatusCode.UNAVAILABLE,
    ErrorCode.UNKNOWN_SERVER_ERROR: StatusCode.INTERNAL,
}


def failure(
    code: ErrorCode, message: str, *, outcome_unknown: bool = False, leader: pb.Leader | None = None
) -> pb.Failure:
    return pb.Failure(
        code=code,
        name=code.name,
        message=_printable(message),
        outcome_unknown=outcome_unknown,
        retriable=code in RETRIABLE or code is ErrorCode.BROKER_NOT_AVAILABLE,
        leader=leader,
    )


def failure_of(error: DlogError) -> pb.Failure:
    code = error.answered if isinstance(error, BrokerError) else error.code
    return failure(code, str(error), outcome_unknown=isinstance(error, RequestTimedOutError))


def status_of(failed: pb.Failure) -> StatusCode:
    code = ErrorCode(failed.code)
    if failed.outcome_unknown and code is not ErrorCode.REQUEST_TIMED_OUT:
        return StatusCode.UNAVAILABLE
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER and not failed.HasField("leader"):
        return StatusCode.UNAVAILABLE  # nobody leads it now
    known = _STATUSES.get(code)
    if known is not None:
        return known
    return StatusCode.UNAVAILABLE if failed.retriable else StatusCode.INVALID_ARGUMENT


async def abort(context: "ServicerContext[Any, Any]", failed: pb.Failure) -> NoReturn:
    """Ends the call with the status that fits, and the failure beside it."""
    status = status_of(failed)
    text = f"{failed.name} ({failed.code}): {failed.message}"
    packed = pb.StatusDetails.Packed(type_url=TYPE_URL, value=failed.SerializeToString())
    details = pb.StatusDetails(code=status.value[0], message=text, details=[packed])
    await context.abort(
        status,
        text,
        (
            (FAILURE_KEY, failed.SerializeToString()),
            (STATUS_DETAILS_KEY, details.SerializeToString()),
        ),
    )
    raise AssertionError("an aborted call goes on")


def defect(what: str) -> pb.Failure:
    """Returns the failure for an exception that is none of ours; call it where it is caught."""
    logger.exception("%s failed in the gateway", what)
    return failure(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what} failed in the broker", outcome_unknown=True)


def _printable(text: str) -> str:
    """Returns the text short enough, in one line, and without the halves of characters that UTF-8 has no
    bytes for."""
    line = " ".join(text[:MESSAGE_LENGTH_MAX].split())
    return line.encode("utf-8", "replace").decode("utf-8")
