"""Whole messages: the header that opens each, the request or the answer within.

A header says which version of the protocol the sender speaks, and which one a reader must speak to take the
message as it is meant.  Unknown fields are skipped: a reader of an older version takes a newer message unless
that requires more than the reader has.  A request of a kind that we do not know at all is refused in either
case, by UnsupportedVersionError if its sender is newer, as MalformedMessageError if not.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from distributedlog.control._generated import common_pb2
from distributedlog.control._generated import controller_pb2 as pb
from distributedlog.control.contract import ControllerReply, Identity
from distributedlog.control.conversion import brokers, configs, partitions, quorum, quotas, topics, voters
from distributedlog.control.conversion.checks import Budget
from distributedlog.control.conversion.errors import error, error_from
from distributedlog.controller import requests
from distributedlog.controller.requests import Request, Response
from distributedlog.model.errors import (
    InconsistentClusterIdError,
    InvalidRequestError,
    MalformedMessageError,
    UnreachableError,
    UnsupportedVersionError,
)
from distributedlog.ports.executor import Outcome

PROTOCOL_VERSION: Final = 4
"""2: quotas, and what the quorum is asked.  Whoever speaks 1 refuses those requests, and nothing else.
3: nodes authenticate.  Those that do not are answered nothing.  4: voters come and go."""
VERSION_REQUIRED: Final = 1
"""The version that whoever is to understand what this version writes must have."""
SUBMIT_BYTES_MAX: Final = 8 * 1024 * 1024
REPLY_BYTES_MAX: Final = 15 * 1024 * 1024

M = TypeVar("M", bound=Message)


class _Kind(NamedTuple):
    """One arm of the oneof: the dataclass and how it becomes a message and is made of one."""

    of: type
    encode: Callable[[Any], Message]
    decode: Callable[[Any, Budget], Any]


_REQUESTS: Final[Mapping[str, _Kind]] = {
    "register_broker": _Kind(
        requests.RegisterBrokerRequest, brokers.register_broker, brokers.register_broker_from
    ),
    "heartbeat": _Kind(requests.HeartbeatRequest, brokers.heartbeat, brokers.heartbeat_from),
    "unregister_broker": _Kind(
        requests.UnregisterBrokerRequest, brokers.unregister_broker, brokers.unregister_broker_from
    ),
    "create_topics": _Kind(requests.CreateTopicsRequest, topics.create_topics, topics.create_topics_from),
    "delete_topics": _Kind(requests.DeleteTopicsRequest, topics.delete_topics, topics.delete_topics_from),
    "create_partitions": _Kind(
        requests.CreatePartitionsRequest, topics.create_partitions, topics.create_partitions_from
    ),
    "alter_configs": _Kind(requests.AlterConfigsRequest, configs.alter_configs, configs.alter_configs_from),
    "incremental_alter_configs": _Kind(
        requests.IncrementalAlterConfigsRequest,
        configs.incremental_alter_configs,
        configs.incremental_alter_configs_from,
    ),
    "alter_partitions": _Kind(
        requests.AlterPartitionsRequest, partitions.alter_partitions, partitions.alter_partitions_from
    ),
    "elect_leaders": _Kind(
        requests.ElectLeadersRequest, partitions.elect_leaders, partitions.elect_leaders_from
    ),
    "allocate_producer_ids": _Kind(
        requests.AllocateProducerIdsRequest, brokers.allocate_producer_ids, brokers.allocate_producer_ids_from
    ),
    "update_features": _Kind(
        requests.UpdateFeaturesRequest, configs.update_features, configs.update_features_from
    ),
    "alter_quotas": _Kind(requests.AlterQuotasRequest, quotas.alter_quotas, quotas.alter_quotas_from),
    "alter_reassignments": _Kind(
        requests.AlterReassignmentsRequest,
        partitions.alter_reassignments,
        partitions.alter_reassignments_from,
    ),
    "describe_quorum": _Kind(
        requests.DescribeQuorumRequest, quorum.describe_quorum, quorum.describe_quorum_from
    ),
    "register_controller": _Kind(
        requests.RegisterControllerRequest, voters.register_controller, voters.register_controller_from
    ),
    "add_voter": _Kind(requests.AddVoterRequest, voters.add_voter, voters.add_voter_from),
    "remove_voter": _Kind(requests.RemoveVoterRequest, voters.remove_voter, voters.remove_voter_from),
}
_RESPONSES: Final[Mapping[str, _Kind]] = {
    "register_broker": _Kind(
        requests.RegisterBrokerReply, brokers.register_broker_reply, brokers.register_broker_reply_from
    ),
    "heartbeat": _Kind(requests.HeartbeatReply, brokers.heartbeat_reply, brokers.heartbeat_reply_from),
    "topics": _Kind(requests.TopicsReply, topics.topics_reply, topics.topics_reply_from),
    "configs": _Kind(requests.ConfigsReply, configs.configs_reply, configs.configs_reply_from),
    "alter_partitions": _Kind(
        requests.AlterPartitionsReply,
        partitions.alter_partitions_reply,
        partitions.alter_partitions_reply_from,
    ),
    "elect_leaders": _Kind(
        requests.ElectLeadersReply, partitions.elect_leaders_reply, partitions.elect_leaders_reply_from
    ),
    "producer_ids": _Kind(requests.ProducerIdBlock, brokers.producer_ids, brokers.producer_ids_from),
    "features": _Kind(requests.FeaturesReply, configs.features_reply, configs.features_reply_from),
    "quotas": _Kind(requests.QuotasReply, quotas.quotas_reply, quotas.quotas_reply_from),
    "alter_reassignments": _Kind(
        requests.AlterReassignmentsReply,
        partitions.alter_reassignments_reply,
        partitions.alter_reassignments_reply_from,
    ),
    "quorum": _Kind(requests.QuorumReply, quorum.quorum_reply, quorum.quorum_reply_from),
}
_REQUEST_FIELDS: Final = {kind.of: field for field, kind in _REQUESTS.items()}
_RESPONSE_FIELDS: Final = {kind.of: field for field, kind in _RESPONSES.items()}


# --- headers -----------------------------------------------------------------------------------


def header(sender: Identity, receiver_id: int | None) -> common_pb2.Header:
    return common_pb2.Header(
        version=PROTOCOL_VERSION,
        version_required=VERSION_REQUIRED,
        cluster_id=sender.cluster_id,
        sender_id=sender.node_id,
        receiver_id=receiver_id,
    )


def check_header(message: common_pb2.Header, receiver: Identity) -> None:
    if message.version == 0:
        raise MalformedMessageError("a message without a header")
    if message.version_required > PROTOCOL_VERSION:
        raise UnsupportedVersionError(
            f"node {message.sender_id} requires version {message.version_required} of the control protocol; "
            f"node {receiver.node_id} speaks version {PROTOCOL_VERSION}: upgrade it first"
        )
    if message.cluster_id != receiver.cluster_id:
        raise InconsistentClusterIdError(
            f"node {message.sender_id} belongs to the cluster {message.cluster_id[:100]!r}, "
            f"node {receiver.node_id} to {receiver.cluster_id!r}"
        )
    if message.HasField("receiver_id") and message.receiver_id != receiver.node_id:
        raise UnreachableError(
            f"node {message.receiver_id} is not at this address any more: node {receiver.node_id} is"
        )


def parse(kind: type[M], data: bytes, bytes_max: int) -> M:
    if len(data) > bytes_max:
        raise MalformedMessageError(f"a message of {len(data)} bytes is over the {bytes_max} allowed")
    try:
        return kind.FromString(data)
    except DecodeError as broken:
        raise MalformedMessageError(f"these bytes are no {kind.__name__}") from broken


# --- requests ----------------------------------------------------------------------------------


def encode_request(request: Request, sender: Identity, receiver_id: int) -> bytes:
    """Raises InvalidRequestError for a request that cannot travel: too large, or with impossible values."""
    field = _REQUEST_FIELDS.get(type(request))
    if field is None:
        raise InvalidRequestError(f"a {type(request).__name__} is answered only where it is asked")
    try:
        arm: dict[str, Any] = {field: _REQUESTS[field].encode(request)}
        message = pb.SubmitRequest(header=header(sender, receiver_id), **arm)
    except (ValueError, TypeError) as impossible:  # a number too wide for its field, half a character
        raise InvalidRequestError(
            f"a {type(request).__name__} has an impossible value: {impossible}"
        ) from None
    data = message.SerializeToString()
    if len(data) > SUBMIT_BYTES_MAX:
        raise InvalidRequestError(
            f"a {type(request).__name__} of {len(data)} bytes is over the {SUBMIT_BYTES_MAX} allowed"
        )
    return data


def decode_request(data: bytes, receiver: Identity) -> tuple[common_pb2.Header, Request]:
    """Returns who says that it asks, and what."""
    message = parse(pb.SubmitRequest, data, SUBMIT_BYTES_MAX)
    check_header(message.header, receiver)
    field = message.WhichOneof("request")
    if field is None:
        raise _unknown("request", message.header.version)
    decoded: Request = _REQUESTS[field].decode(getattr(message, field), Budget())
    return message.header, decoded


# --- replies -----------------------------------------------------------------------------------


def encode_reply(reply: ControllerReply) -> bytes:
    if reply.response is None:
        message = pb.SubmitReply(version=PROTOCOL_VERSION, offset=reply.offset, nothing=pb.Nothing())
    else:
        field = _RESPONSE_FIELDS[type(reply.response)]
        arm: dict[str, Any] = {field: _RESPONSES[field].encode(reply.response)}
        message = pb.SubmitReply(version=PROTOCOL_VERSION, offset=reply.offset, **arm)
    data = message.SerializeToString()
    if len(data) > REPLY_BYTES_MAX:
        raise ValueError(
            f"it is done, but the answer of {len(data)} bytes is over the {REPLY_BYTES_MAX} allowed"
        )
    return data


def encode_failure(raised: BaseException) -> bytes:
    return pb.SubmitReply(version=PROTOCOL_VERSION, offset=-1, error=error(raised)).SerializeToString()


def decode_reply(data: bytes) -> Outcome[ControllerReply]:
    """The answer, or what the other node raised.

    Itself it raises only for what is no reply that we know: something was done then, and we cannot tell what.
    """
    message = parse(pb.SubmitReply, data, REPLY_BYTES_MAX)
    field = message.WhichOneof("outcome")
    if field is None:
        raise _unknown("reply", message.version)
    if field == "error":
        return Outcome(error=error_from(message.error))
    response: Response = None
    if field != "nothing":
        response = _RESPONSES[field].decode(getattr(message, field), Budget())
    return Outcome(ControllerReply(response, message.offset))


def _unknown(what: str, version: int) -> UnsupportedVersionError | MalformedMessageError:
    if version > PROTOCOL_VERSION:
        return UnsupportedVersionError(
            f"a {what} of version {version} of the control protocol, of a kind that version "
            f"{PROTOCOL_VERSION} does not have"
        )
    return MalformedMessageError(f"a {what} of no kind")
