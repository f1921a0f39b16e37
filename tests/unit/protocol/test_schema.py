"""What a declared message is as a Python object, and which declarations are refused."""

import copy
from typing import Any

import pytest

from distributedlog.protocol.kinds import INT32, RECORDS, STRING, array, nullable, optional
from distributedlog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from distributedlog.protocol.messages.produce import PartitionProduceData
from distributedlog.protocol.schema import Struct, StructType, field, structs_within


def a_request(**values: Any) -> FetchRequest:
    return FetchRequest(**{"max_wait_ms": 500, "min_bytes": 1, "topics": [], **values})


def test_fields_without_a_default_must_be_given_and_only_by_name() -> None:
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'topics'"):
        FetchRequest(max_wait_ms=1, min_bytes=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        FetchTopic("orders", [])  # type: ignore[call-arg, arg-type]
    with pytest.raises(TypeError, match="no_such_field"):
        a_request(no_such_field=1)


def test_defaults_are_kafkas_and_lists_are_not_shared() -> None:
    first, second = a_request(), a_request()
    assert first.replica_id == -1
    assert first.max_bytes == 2**31 - 1
    assert first.cluster_id is None
    first.forgotten_topics_data.append(FetchTopic(partitions=[]))  # type: ignore[arg-type]
    assert second.forgotten_topics_data == []


def test_messages_compare_by_value_and_cannot_be_hashed() -> None:
    assert a_request() == a_request()
    assert a_request() != a_request(min_bytes=2)
    assert a_request() != a_request(unknown_tags=((9, b""),))
    assert a_request() != FetchTopic(partitions=[])
    with pytest.raises(TypeError, match="unhashable"):
        hash(a_request())


def test_messages_have_slots_and_can_be_copied() -> None:
    request = a_request(topics=[FetchTopic(topic="t", partitions=[])])
    with pytest.raises(AttributeError):
        request.misspelled = 1  # type: ignore[attr-defined]
    other = copy.deepcopy(request)
    assert other == request
    other.topics[0].topic = "u"
    assert request.topics[0].topic == "t"


def test_a_message_is_shown_by_what_differs_from_its_defaults() -> None:
    partition = FetchPartition(partition=0, fetch_offset=7, partition_max_bytes=1, log_start_offset=3)
    assert repr(partition) == (
        "FetchPartition(partition=0, fetch_offset=7, log_start_offset=3, partition_max_bytes=1)"
    )
    assert repr(a_request(unknown_tags=((5, b"x"),))).endswith("topics=[], unknown_tags=((5, b'x'),))")


def test_payloads_are_shown_by_their_length_unless_short() -> None:
    assert repr(PartitionProduceData(index=0, records=bytes(5000))) == (
        "PartitionProduceData(index=0, records=<5000 bytes>)"
    )
    assert "records=b'ab'" in repr(PartitionProduceData(index=0, records=memoryview(b"ab")))


def test_the_structs_of_a_message_are_found_once_each() -> None:
    names = [struct.__name__ for struct in structs_within(FetchRequest)]
    assert sorted(names) == ["FetchPartition", "FetchRequest", "FetchTopic", "ForgottenTopic", "ReplicaState"]


@pytest.mark.parametrize(
    ("declarations", "message"),
    [
        ({"x": field(INT32, since=3)}, "needs a default"),
        ({"x": field(INT32, until=3)}, "needs a default"),
        ({"x": field(INT32, tag=0)}, "needs a default"),
        ({"x": field(nullable(RECORDS), tag=0, default=None)}, "records cannot be tagged"),
        (
            {"x": field(INT32, tag=0, default=0), "y": field(STRING, tag=0, default="")},
            "one tag to two fields",
        ),
        ({"x": field(optional(FetchTopic), default=None)}, "only a tagged struct is optional"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(declarations: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        StructType("Wrong", (Struct,), declarations)


def test_a_declared_struct_can_be_used_at_once() -> None:
    class Pair(Struct):
        left: int = field(INT32)
        right: list[int] = field(array(INT32), since=2, default_factory=list)

    assert repr(Pair(left=1)) == "Pair(left=1)"
    assert Pair(left=1, right=[2]) == Pair(left=1, right=[2])
