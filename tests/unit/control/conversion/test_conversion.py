"""Requests, answers and errors as protobuf messages, and what other versions and enemies make of them."""

import inspect
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.control._generated import common_pb2
from distributedlog.control._generated import controller_pb2 as pb
from distributedlog.control.contract import ControllerReply, Identity
from distributedlog.control.conversion import checks
from distributedlog.control.conversion.envelope import (
    PROTOCOL_VERSION,
    SUBMIT_BYTES_MAX,
    decode_reply,
    decode_request,
    encode_failure,
    encode_reply,
    encode_request,
    header,
)
from distributedlog.control.conversion.errors import OUTCOME_UNKNOWN, error, error_from
from distributedlog.controller import requests as r
from distributedlog.controller.image import ConfigResource, MetadataImage
from distributedlog.model import errors
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    BrokerError,
    DlogError,
    InconsistentClusterIdError,
    InvalidRequestError,
    LeadershipLostError,
    MalformedMessageError,
    NotLeaderError,
    RequestTimedOutError,
    StaleBrokerEpochError,
    UnreachableError,
    UnsupportedVersionError,
)
from tests.unit.control.examples import REQUESTS, RESPONSES

ASKER = Identity("cluster", 1)
CONTROLLER = Identity("cluster", 2)


def message_of(request: r.Request) -> pb.SubmitRequest:
    return pb.SubmitRequest.FromString(encode_request(request, ASKER, 2))


def decoded(message: pb.SubmitRequest) -> r.Request:
    return decode_request(message.SerializeToString(), CONTROLLER)[1]


# --- exact both ways ---------------------------------------------------------------------------


def test_every_request_and_every_answer_has_examples_here() -> None:
    inside = {r.ReadImageRequest, r.FenceRefusedRequest, r.ForgetControllerRequest}
    assert REQUESTS.keys() == set(get_args(r.Request)) - inside
    assert RESPONSES.keys() == set(get_args(r.Response)) - {MetadataImage}


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=40)
def test_a_request_arrives_as_it_was_sent(kind: type, data: st.DataObject) -> None:
    request = data.draw(REQUESTS[kind])
    sender, arrived = decode_request(encode_request(request, ASKER, 2), CONTROLLER)
    assert sender.sender_id == ASKER.node_id
    assert type(arrived) is kind
    assert arrived == request


@pytest.mark.parametrize("kind", RESPONSES, ids=lambda kind: kind.__name__)
@given(data=st.data(), offset=st.integers(-1, 2**63 - 1))
@settings(max_examples=40)
def test_an_answer_arrives_as_it_was_sent(kind: type, data: st.DataObject, offset: int) -> None:
    response = data.draw(RESPONSES[kind])
    arrived = decode_reply(encode_reply(ControllerReply(response, offset))).value()
    assert type(arrived.response) is kind
    assert arrived == ControllerReply(response, offset)


# --- errors ------------------------------------------------------------------------------------

ERROR_CLASSES = [
    each
    for _, each in inspect.getmembers(errors, inspect.isclass)
    if issubclass(each, DlogError) and each.__init__ in (DlogError.__init__, NotLeaderError.__init__)
]


def raised_again(raised: BaseException) -> BaseException | None:
    return decode_reply(encode_failure(raised)).error


@pytest.mark.parametrize("kind", ERROR_CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_is_raised_again_as_its_own_class(kind: type[DlogError]) -> None:
    made = kind("why")
    arrived = raised_again(made)
    assert type(arrived) is kind
    assert str(arrived) == "why"
    assert vars(arrived) == vars(made)


def test_an_error_that_has_more_to_say_than_its_message_arrives_as_its_code() -> None:
    class DetailedError(DlogError):
        code = ErrorCode.STALE_BROKER_EPOCH

        def __init__(self, message: str, details: list[str]) -> None:
            super().__init__(message)
            self.details = details

    assert type(raised_again(DetailedError("old", ["very"]))) is StaleBrokerEpochError
    arrived = raised_again(BrokerError("why", ErrorCode.DELEGATION_TOKEN_EXPIRED))
    assert isinstance(arrived, BrokerError)
    assert arrived.answered is ErrorCode.DELEGATION_TOKEN_EXPIRED


@pytest.mark.parametrize("leader_id", [None, 0, 3])
def test_who_leads_travels_with_the_refusal(leader_id: int | None) -> None:
    arrived = raised_again(NotLeaderError("ask elsewhere", leader_id))
    assert isinstance(arrived, NotLeaderError)
    assert arrived.leader_id == leader_id


def test_a_class_that_only_a_newer_node_has_is_taken_for_what_its_code_says() -> None:
    newer = error(StaleBrokerEpochError("old"))
    newer.kind = "FromTheFutureError"
    assert type(error_from(newer)) is StaleBrokerEpochError
    newer.code = ErrorCode.INVALID_REQUEST
    assert type(error_from(newer)) is InvalidRequestError
    newer.code = ErrorCode.NOT_CONTROLLER
    assert type(error_from(newer)) is NotLeaderError
    newer.code = 32_000
    unknown = error_from(newer)
    assert isinstance(unknown, BrokerError)
    assert unknown.answered is ErrorCode.UNKNOWN_SERVER_ERROR


def test_doubt_is_never_turned_into_certainty() -> None:
    newer = error(LeadershipLostError("who knows"))
    newer.kind = "FromTheFutureError"
    assert isinstance(error_from(newer), OUTCOME_UNKNOWN)
    assert isinstance(raised_again(ZeroDivisionError("a defect")), RequestTimedOutError)
    contradicting = error(InvalidRequestError("refused, yet who knows"))
    contradicting.outcome_unknown = True
    assert isinstance(error_from(contradicting), OUTCOME_UNKNOWN)


def test_an_error_without_end_or_with_half_a_character_still_travels() -> None:
    arrived = raised_again(InvalidRequestError("\ud800" + "x" * 1_000_000))
    assert isinstance(arrived, InvalidRequestError)
    assert len(str(arrived)) == checks.TEXT_LENGTH_MAX


def test_an_error_code_of_the_future_in_an_item_is_an_error_and_not_success() -> None:
    reply = pb.SubmitReply.FromString(
        encode_reply(ControllerReply(r.FeaturesReply((("f", r.ItemOutcome()),)), 0))
    )
    reply.features.features[0].outcome.error = 32_000
    arrived = decode_reply(reply.SerializeToString()).value().response
    assert isinstance(arrived, r.FeaturesReply)
    assert arrived.features[0][1].error is ErrorCode.UNKNOWN_SERVER_ERROR


# --- other versions ----------------------------------------------------------------------------


def with_unknown_field(message: bytes) -> bytes:
    """Returns it as a newer version would write it: with field 1000, a text."""
    return message + b"\xc2\x3e\x05later"


def test_a_field_of_a_newer_version_is_skipped() -> None:
    request = r.HeartbeatRequest(broker_id=1, broker_epoch=2, metadata_offset=3)
    inner = pb.HeartbeatRequest.FromString(
        with_unknown_field(message_of(request).heartbeat.SerializeToString())
    )
    newer = pb.SubmitRequest(header=header(ASKER, 2), heartbeat=inner)
    newer.header.version = PROTOCOL_VERSION + 1
    assert decode_request(with_unknown_field(newer.SerializeToString()), CONTROLLER)[1] == request


def test_a_field_that_an_older_version_does_not_have_means_as_before() -> None:
    older = pb.SubmitRequest(
        header=common_pb2.Header(version=1, cluster_id="cluster", sender_id=1),
        heartbeat=pb.HeartbeatRequest(broker_id=1, broker_epoch=2, metadata_offset=3),
    )
    assert decoded(older) == r.HeartbeatRequest(broker_id=1, broker_epoch=2, metadata_offset=3)


def test_a_message_that_requires_a_newer_version_is_refused_and_says_which() -> None:
    newer = message_of(r.UnregisterBrokerRequest(1))
    newer.header.version_required = PROTOCOL_VERSION + 1
    with pytest.raises(UnsupportedVersionError, match=f"requires version {PROTOCOL_VERSION + 1}"):
        decoded(newer)


def test_a_request_of_an_unknown_kind_is_refused_as_newer_or_as_nonsense() -> None:
    nothing = pb.SubmitRequest(header=header(ASKER, 2))
    with pytest.raises(MalformedMessageError):
        decoded(nothing)
    nothing.header.version = PROTOCOL_VERSION + 1
    with pytest.raises(UnsupportedVersionError):
        decoded(nothing)
    with pytest.raises(UnsupportedVersionError):
        decode_reply(pb.SubmitReply(version=PROTOCOL_VERSION + 1).SerializeToString())


# --- enemies -----------------------------------------------------------------------------------


def test_a_node_of_another_cluster_or_at_a_reused_address_is_refused() -> None:
    data = encode_request(r.UnregisterBrokerRequest(1), ASKER, 2)
    with pytest.raises(InconsistentClusterIdError):
        decode_request(data, Identity("another", 2))
    with pytest.raises(UnreachableError):
        decode_request(data, Identity("cluster", 3))
    with pytest.raises(MalformedMessageError):
        decoded(pb.SubmitRequest(unregister_broker=pb.UnregisterBrokerRequest()))


@given(st.binary(max_size=200))
@settings(max_examples=100)
def test_garbage_is_refused_and_breaks_nothing(data: bytes) -> None:
    with pytest.raises(DlogError):
        decode_request(data, CONTROLLER)
    try:
        decode_reply(data)
    except DlogError:
        return


@given(data=st.data(), place=st.integers(0, 10_000), byte=st.integers(0, 255))
@settings(max_examples=100)
def test_a_damaged_request_is_refused_or_is_another_request(
    data: st.DataObject, place: int, byte: int
) -> None:
    kind = data.draw(st.sampled_from(list(REQUESTS)))
    sound = bytearray(encode_request(data.draw(REQUESTS[kind]), ASKER, 2))
    sound[place % len(sound)] = byte
    try:
        assert isinstance(decode_request(bytes(sound), CONTROLLER)[1], get_args(r.Request))
    except DlogError:
        return


def test_more_items_than_any_cluster_has_are_refused_before_they_are_built() -> None:
    half = checks.ITEMS_MAX // 2 + 1
    topic = pb.NewTopic(assignments=[pb.PartitionAssignment()] * half)
    message = pb.SubmitRequest(
        header=header(ASKER, 2), create_topics=pb.CreateTopicsRequest(topics=[topic, topic])
    )
    with pytest.raises(MalformedMessageError, match="items"):
        decoded(message)
    del message.create_topics.topics[1]
    assert isinstance(decoded(message), r.CreateTopicsRequest)


@pytest.mark.parametrize("length", [0, 15, 17])
def test_an_id_has_sixteen_bytes(length: int) -> None:
    message = pb.SubmitRequest(
        header=header(ASKER, 2),
        delete_topics=pb.DeleteTopicsRequest(topics=[pb.TopicReference(topic_id=bytes(length))]),
    )
    with pytest.raises(MalformedMessageError, match="16"):
        decoded(message)


def test_a_topic_that_is_not_named_and_a_setting_given_twice_are_refused() -> None:
    message = pb.SubmitRequest(
        header=header(ASKER, 2), delete_topics=pb.DeleteTopicsRequest(topics=[pb.TopicReference()])
    )
    with pytest.raises(MalformedMessageError):
        decoded(message)
    doubled = message_of(r.AlterConfigsRequest(((ConfigResource(2, "t"), {"a": "1"}),)))
    doubled.alter_configs.resources[0].settings.append(pb.Setting(name="a", value="2"))
    with pytest.raises(MalformedMessageError, match="twice"):
        decoded(doubled)


def test_a_text_without_end_is_refused() -> None:
    message = message_of(r.DeleteTopicsRequest(("x" * (checks.TEXT_LENGTH_MAX + 1),)))
    with pytest.raises(MalformedMessageError, match="characters"):
        decoded(message)


def test_what_cannot_travel_is_refused_where_it_is_asked() -> None:
    with pytest.raises(InvalidRequestError, match="only where it is asked"):
        encode_request(r.ReadImageRequest(), ASKER, 2)
    with pytest.raises(InvalidRequestError, match="impossible"):
        encode_request(r.UnregisterBrokerRequest(2**40), ASKER, 2)
    with pytest.raises(InvalidRequestError, match="impossible"):
        encode_request(r.DeleteTopicsRequest(("\ud800",)), ASKER, 2)
    with pytest.raises(InvalidRequestError, match="bytes"):
        encode_request(r.DeleteTopicsRequest(("x" * SUBMIT_BYTES_MAX,)), ASKER, 2)
    with pytest.raises(MalformedMessageError, match="bytes"):
        decode_request(bytes(SUBMIT_BYTES_MAX + 1), CONTROLLER)
