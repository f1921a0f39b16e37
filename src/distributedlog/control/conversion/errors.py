"""Errors across the network: what one node raised, another raises again, as the same class.

Several classes share one of Kafka's codes, and two of those mean opposite things: NotLeaderError says that
nothing was done, LeadershipLostError that nobody knows.  So the class travels by name, and beside it whether
the outcome is unknown, for a reader that does not know the name.  An error that is none of ours is a defect
of the other node, found while it was at work: nobody knows what it had done by then.
"""

from typing import Final

from distributedlog.control._generated import common_pb2 as pb
from distributedlog.control.conversion.checks import TEXT_LENGTH_MAX, error_code
from distributedlog.model import errors
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    BrokerError,
    DlogError,
    InvalidRequestError,
    LeadershipLostError,
    NotLeaderError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    StorageError,
)

OUTCOME_UNKNOWN: Final = (LeadershipLostError, RequestTimedOutError)

_CLASSES: Final[dict[str, type[DlogError]]] = {
    name: each
    for name, each in vars(errors).items()
    if isinstance(each, type) and issubclass(each, DlogError) and each.__init__ is DlogError.__init__
}
_MOST_GENERAL: Final[tuple[type[DlogError], ...]] = (
    NotLeaderError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    StorageError,
)
"""Where several classes have one code: which of them it stands for when it comes alone."""
_BY_CODE: Final[dict[ErrorCode, type[DlogError]]] = {
    each.code: each
    for each in [*_CLASSES.values(), *_MOST_GENERAL]
    if each.code is not ErrorCode.UNKNOWN_SERVER_ERROR
}


def error(raised: BaseException) -> pb.Error:
    if not isinstance(raised, DlogError):
        return pb.Error(
            code=ErrorCode.UNKNOWN_SERVER_ERROR,
            message=_printable(f"the other node failed: {type(raised).__name__}: {raised}"),
            outcome_unknown=True,
        )
    return pb.Error(
        code=raised.answered if isinstance(raised, BrokerError) else raised.code,
        message=_printable(str(raised)),
        kind=type(raised).__name__,
        outcome_unknown=isinstance(raised, OUTCOME_UNKNOWN),
        leader_id=raised.leader_id if isinstance(raised, NotLeaderError) else None,
    )


def error_from(message: pb.Error) -> DlogError:
    text = message.message[:TEXT_LENGTH_MAX]
    named = _CLASSES.get(message.kind)
    if message.outcome_unknown and (named is None or not issubclass(named, OUTCOME_UNKNOWN)):
        return RequestTimedOutError(text)
    if named is not None:
        return named(text)
    code = error_code(message.code)
    by_code = _BY_CODE.get(code)
    if message.kind == NotLeaderError.__name__ or by_code is NotLeaderError:
        return NotLeaderError(text, message.leader_id if message.HasField("leader_id") else None)
    return by_code(text) if by_code is not None else BrokerError(text, code)


def _printable(text: str) -> str:
    """Returns the text short enough, and without the halves of characters that UTF-8 has no bytes for."""
    return text[:TEXT_LENGTH_MAX].encode("utf-8", "replace").decode("utf-8")
