"""The comparison itself: what differs is found, what is meant is told apart, what is unused is reported."""

from typing import Any

import pytest

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import ZERO_UUID, Uuid
from distributedlog.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from distributedlog.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from distributedlog.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from distributedlog.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from distributedlog.records.record import Record, encode_batch
from tests.compat.differential.compare import (
    ABSENT,
    ANY,
    Difference,
    Intended,
    Match,
    Question,
    find_differences,
    judge,
)
from tests.compat.differential.trees import Symbols, tree_of

QUESTION = Question("Metadata/named/one", 12)


def _topic(name: str = "t", error: ErrorCode = ErrorCode.NONE, **more: object) -> MetadataResponseTopic:
    partition = MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1])
    fields: dict[str, Any] = {"name": name, "error_code": int(error), "partitions": [partition], **more}
    return MetadataResponseTopic(**fields)


def _metadata(*topics: MetadataResponseTopic, port: int = 9092) -> MetadataResponse:
    broker = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=port)
    return MetadataResponse(brokers=[broker], cluster_id=f"c{port}", controller_id=1, topics=list(topics))


def _differences(kafka: MetadataResponse, ours: MetadataResponse, version: int = 12) -> list[Difference]:
    return find_differences(QUESTION, tree_of(kafka, version, Symbols()), tree_of(ours, version, Symbols()))


# --- what differs is found ---------------------------------------------------------------------


def test_equal_answers_do_not_differ() -> None:
    assert _differences(_metadata(_topic()), _metadata(_topic())) == []


def test_a_field_that_differs_is_found_with_both_values() -> None:
    unknown = _topic(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    (found,) = _differences(_metadata(_topic()), _metadata(unknown))
    assert found == Difference(QUESTION, "topics/t/error_code", "NONE", "UNKNOWN_TOPIC_OR_PARTITION")


def test_a_field_deep_in_an_array_is_found() -> None:
    ours = _topic()
    ours.partitions[0].isr_nodes = [1, 2]
    (found,) = _differences(_metadata(_topic()), _metadata(ours))
    assert found.path == "topics/t/partitions/0/isr_nodes"
    assert (found.kafka, found.ours) == ([1], [1, 2])


def test_what_only_one_has_is_one_difference() -> None:
    (found,) = _differences(_metadata(_topic("a"), _topic("b")), _metadata(_topic("a")))
    assert found.path == "topics/b"
    assert found.ours is ABSENT
    (found,) = _differences(_metadata(), _metadata(_topic("a")))
    assert found.path == "topics/a"
    assert found.kafka is ABSENT


def test_null_and_empty_differ() -> None:
    tree = {"text": "", "names": []}
    other = {"text": None, "names": None}
    assert [each.path for each in find_differences(QUESTION, tree, other)] == ["text", "names"]


def test_false_is_not_zero() -> None:
    assert find_differences(QUESTION, {"x": False}, {"x": 0})


def test_a_field_that_the_version_does_not_have_is_not_compared() -> None:
    kafka, ours = _metadata(_topic(topic_authorized_operations=1)), _metadata(_topic())
    assert _differences(kafka, ours, version=7) == []
    assert [each.path for each in _differences(kafka, ours, version=8)] == [
        "topics/t/topic_authorized_operations"
    ]


def test_the_order_of_named_elements_means_nothing() -> None:
    a, b = _topic("a"), _topic("b")
    assert _differences(_metadata(a, b), _metadata(b, a)) == []


def test_the_order_of_synonyms_means_something() -> None:
    def described(*names: str) -> DescribeConfigsResponse:
        synonyms = [DescribeConfigsSynonym(name=name, value="1", source=5) for name in names]
        config = DescribeConfigsResourceResult(
            name="retention.ms", value="1", read_only=False, is_sensitive=False, synonyms=synonyms
        )
        result = DescribeConfigsResult(resource_type=2, resource_name="t", configs=[config])
        return DescribeConfigsResponse(results=[result])

    kafka, ours = (tree_of(each, 4, Symbols()) for each in (described("a", "b"), described("b", "a")))
    found = find_differences(QUESTION, kafka, ours)
    assert [each.path for each in found] == [
        "results/2:t/configs/retention.ms/synonyms/0/name",
        "results/2:t/configs/retention.ms/synonyms/1/name",
    ]


def test_an_element_that_is_there_twice_is_compared_twice() -> None:
    (found,) = _differences(_metadata(_topic(), _topic()), _metadata(_topic()))
    assert found.path == "topics/t#2"


# --- what must differ does not -----------------------------------------------------------------


def test_ports_and_cluster_ids_are_not_compared() -> None:
    assert _differences(_metadata(port=1), _metadata(port=2)) == []


def test_ids_are_compared_by_where_they_recur() -> None:
    one, two = Uuid(bytes([1] * 16)), Uuid(bytes([2] * 16))
    kafka = _metadata(_topic("a", topic_id=one), _topic("b", topic_id=two))
    assert not _differences(kafka, _metadata(_topic("a", topic_id=two), _topic("b", topic_id=one)))
    (found,) = _differences(kafka, _metadata(_topic("a", topic_id=two), _topic("b", topic_id=two)))
    assert found.path == "topics/b/topic_id"


def test_no_id_is_not_an_id() -> None:
    kafka = _metadata(_topic("a", topic_id=Uuid(bytes([1] * 16))))
    (found,) = _differences(kafka, _metadata(_topic("a", topic_id=ZERO_UUID)))
    assert (found.path, found.ours) == ("topics/a/topic_id", "<zero>")


def test_who_leads_a_group_is_compared_whatever_members_are_called() -> None:
    def joined(leader: str, member: str) -> JoinGroupResponse:
        return JoinGroupResponse(
            protocol_name="range",
            leader=leader,
            member_id=member,
            members=[JoinGroupResponseMember(member_id=member, metadata=b"x")],
        )

    def tree(leader: str, member: str) -> object:
        return tree_of(joined(leader, member), 9, Symbols())

    assert not find_differences(QUESTION, tree("a", "a"), tree("b", "b"))
    assert find_differences(QUESTION, tree("a", "a"), tree("b", "c"))


def _fetched(batch: bytes) -> object:
    data = PartitionData(partition_index=0, high_watermark=1, aborted_transactions=None, records=batch)
    topics = [FetchableTopicResponse(topic="t", partitions=[data])]
    return tree_of(FetchResponse(responses=topics), 12, Symbols())


def test_records_are_compared_one_by_one() -> None:
    one, other = (
        bytes(encode_batch([Record(value=b"a", timestamp_ms=5), Record(value=value, timestamp_ms=6)]))
        for value in (b"b", b"c")
    )
    assert not find_differences(QUESTION, _fetched(one), _fetched(one))
    paths = [each.path for each in find_differences(QUESTION, _fetched(one), _fetched(other))]
    assert paths == [
        "responses/t/partitions/0/records/0/crc",
        "responses/t/partitions/0/records/0/records/1/value",
    ]


def test_records_that_cannot_be_read_are_a_difference() -> None:
    good = bytes(encode_batch([Record(value=b"a", timestamp_ms=5)]))
    bad = good[:-1] + bytes([good[-1] ^ 1])
    assert find_differences(QUESTION, _fetched(good), _fetched(bad))


def test_when_the_broker_stamped_a_batch_is_not_compared() -> None:
    one, other = (
        bytes(encode_batch([Record(value=b"a", timestamp_ms=5)], log_append_time_ms=now)) for now in (7, 8)
    )
    assert not find_differences(QUESTION, _fetched(one), _fetched(other))


# --- what is meant -----------------------------------------------------------------------------


def _difference(path: str, kafka: object = "NONE", ours: object = "INVALID_REQUEST") -> Difference:
    return Difference(Question("Produce/acks/acks=2", 9), path, kafka, ours)


def _list(*matches: Match) -> list[Intended]:
    return [Intended("Produce", "A reason.", matches)]


def test_what_is_not_on_the_list_is_unexpected() -> None:
    verdict = judge([_difference("error_code")], [])
    assert not verdict.is_good
    assert verdict.unexpected == [_difference("error_code")]


def test_what_is_on_the_list_is_intended() -> None:
    intended = _list(Match("Produce/acks/*", "error_code", "NONE", "INVALID_REQUEST"))
    verdict = judge([_difference("error_code")], intended)
    assert verdict.is_good
    assert verdict.intended == [(_difference("error_code"), intended[0])]


def test_an_entry_that_is_met_nowhere_is_unused() -> None:
    used, unused = Match("Produce/**", "error_code"), Match("Fetch/**", "error_code")
    verdict = judge([_difference("error_code")], _list(used, unused))
    assert not verdict.is_good
    assert [match for _, match in verdict.unused] == [unused]


@pytest.mark.parametrize(
    "match",
    [
        Match("Produce/other/*", "error_code"),
        Match("Produce/*", "error_code"),
        Match("Produce/**", "other"),
        Match("Produce/**", "error_code", kafka="INVALID_REQUEST"),
        Match("Produce/**", "error_code", ours="NONE"),
        Match("Produce/**", "error_code", ours=ABSENT),
        Match("Produce/**", "error_code", since=10),
        Match("Produce/**", "error_code", until=8),
    ],
)
def test_an_entry_covers_only_what_it_says(match: Match) -> None:
    verdict = judge([_difference("error_code")], _list(match))
    assert verdict.unexpected == [_difference("error_code")]
    assert verdict.unused


@pytest.mark.parametrize("path", ["topics/*/error_code", "**/error_code", "topics/a*/error_code", "**"])
def test_a_pattern_stands_for_parts_of_a_path(path: str) -> None:
    match = Match("**", path, ANY, ANY)
    assert match.covers(_difference("topics/a.b-c[1]/error_code"))
    assert not match.covers(_difference("topics/a/x")) or path == "**"
    assert not Match("**", "topics/*").covers(_difference("topics/a/error_code"))
