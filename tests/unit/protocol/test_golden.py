"""Frames written out by hand, field by field, from the description of the protocol."""

import pytest

from distributedlog.protocol.codec import join_parts
from distributedlog.protocol.framing import decode_request, decode_response, encode_request, encode_response
from distributedlog.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from distributedlog.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    PartitionData,
)
from distributedlog.protocol.messages.find_coordinator import FindCoordinatorRequest
from distributedlog.protocol.messages.metadata import MetadataRequest
from distributedlog.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from distributedlog.protocol.schema import Message

RECORDS = b"\xca\xfe\xba\xbe"

REQUESTS: dict[str, tuple[Message, int, str]] = {
    "an old client asks what the broker speaks": (
        ApiVersionsRequest(),
        0,
        "00000011 0012 0000 00000007 0007 72646b61666b61",  # size, key 18, version, correlation id, 'rdkafka'
    ),
    "a newer one names itself": (
        ApiVersionsRequest(client_software_name="dlog", client_software_version="1.0"),
        3,
        (
            "0000001c 0012 0003 00000007 0007 72646b61666b61 00"  # header with its tags
            "05 646c6f67 04 312e30 00"
        ),  # compact strings carry length + 1
    ),
    "metadata of all topics, in the days when an empty list meant it": (
        MetadataRequest(topics=[]),
        0,
        "00000015 0003 0000 00000007 0007 72646b61666b61 00000000",
    ),
    "metadata of all topics": (
        MetadataRequest(topics=None),
        1,
        "00000015 0003 0001 00000007 0007 72646b61666b61 ffffffff",
    ),
    "the coordinator of a group": (
        FindCoordinatorRequest(key="billing", key_type=0),
        2,
        "0000001b 000a 0002 00000007 0007 72646b61666b61 0007 62696c6c696e67 00",
    ),
    "a batch for one partition": (
        ProduceRequest(
            acks=-1,
            timeout_ms=30000,
            topic_data=[
                TopicProduceData(name="t", partition_data=[PartitionProduceData(index=2, records=RECORDS)])
            ],
        ),
        7,
        (
            "00000030 0000 0007 00000007 0007 72646b61666b61"
            "ffff ffff 00007530"  # no transactional id, all acks, 30 s
            "00000001 0001 74 00000001 00000002 00000004 cafebabe"
        ),
    ),
    "the same in a flexible version": (
        ProduceRequest(
            transactional_id="x",
            acks=1,
            timeout_ms=30000,
            topic_data=[
                TopicProduceData(name="t", partition_data=[PartitionProduceData(index=2, records=RECORDS)])
            ],
        ),
        9,
        (
            "0000002a 0000 0009 00000007 0007 72646b61666b61 00"
            "02 78 0001 00007530 02 02 74 02 00000002 05 cafebabe 00 00 00"
        ),
    ),
    "a fetch of a consumer outside any session": (
        FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=52428800,
            isolation_level=1,
            session_epoch=-1,
            topics=[
                FetchTopic(
                    topic="t",
                    partitions=[
                        FetchPartition(
                            partition=2,
                            current_leader_epoch=5,
                            fetch_offset=1000,
                            partition_max_bytes=1048576,
                        )
                    ],
                )
            ],
        ),
        11,
        (
            "00000057 0001 000b 00000007 0007 72646b61666b61"
            "ffffffff 000001f4 00000001 03200000 01 00000000 ffffffff"
            "00000001 0001 74 00000001 00000002 00000005 00000000000003e8 ffffffffffffffff 00100000"
            "00000000 0000"
        ),  # nothing forgotten, no rack
    ),
}

RESPONSES: dict[str, tuple[Message, int, str]] = {
    "what the broker speaks, and its features as tagged fields": (
        ApiVersionsResponse(
            api_keys=[ApiVersion(api_key=0, min_version=0, max_version=12)],
            finalized_features_epoch=9,
            finalized_features=[
                FinalizedFeatureKey(name="transaction.version", max_version_level=2, min_version_level=1)
            ],
        ),
        3,
        ("00000039 00000007"  # no tags in this header, ever
        "0000 02 0000 0000 000c 00 00000000"
        "02 01 08 0000000000000009"  # two tagged fields: the epoch, and
        "02 1a 02 14 7472616e73616374696f6e2e76657273696f6e 0002 0001 00"),
    ),
    "an acknowledgement": (
        ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name="t",
                    partition_responses=[
                        PartitionProduceResponse(index=2, base_offset=1000, log_start_offset=7)
                    ],
                )
            ]
        ),
        9,
        ("00000030 00000007 00"
        "02 02 74 02 00000002 0000 00000000000003e8 ffffffffffffffff 0000000000000007 01 00 00 00"
        "00000000 00"),
    ),
    "fetched records with an aborted transaction and a new leader": (
        FetchResponse(
            session_id=4,
            responses=[
                FetchableTopicResponse(
                    topic="t",
                    partitions=[
                        PartitionData(
                            partition_index=2,
                            high_watermark=1001,
                            last_stable_offset=1001,
                            log_start_offset=7,
                            aborted_transactions=[AbortedTransaction(producer_id=3, first_offset=900)],
                            records=RECORDS,
                            current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=6),
                        )
                    ],
                )
            ],
        ),
        12,
        ("0000005a 00000007 00"
        "00000000 0000 00000004"
        "02 02 74 02 00000002 0000 00000000000003e9 00000000000003e9 0000000000000007"
        "02 0000000000000003 0000000000000384 00"
        "ffffffff 05 cafebabe"
        "01 01 09 00000001 00000006 00"  # one tagged field of nine bytes, which has a tagged section too
        "00 00"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("story", REQUESTS)
def test_a_request_has_the_bytes_of_the_book(story: str) -> None:
    request, version, written_out = REQUESTS[story]
    frame = bytes.fromhex(written_out.replace(" ", ""))
    assert join_parts(encode_request(request, version, 7, "rdkafka")).hex() == frame.hex()
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, read = decode_request(frame[4:])
    assert (header.correlation_id, header.client_id) == (7, "rdkafka")
    assert read == request


@pytest.mark.parametrize("story", RESPONSES)
def test_a_response_has_the_bytes_of_the_book(story: str) -> None:
    response, version, written_out = RESPONSES[story]
    frame = bytes.fromhex(written_out.replace(" ", ""))
    assert join_parts(encode_response(response, version, 7)).hex() == frame.hex()
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert decode_response(type(response), version, frame[4:]) == (7, response)
