"""The wire protocol's codec against kio's, for the messages of the hot paths: one topic, one partition.

kio writes in Python and reads with a native extension; ours does both in Python that was generated for the
version.  The figures in microseconds include what a server pays: header, body and frame.
"""

import io
from collections.abc import Callable
from functools import partial
from typing import Any

from kio.schema.fetch.v12.request import FetchRequest as KioFetchRequest
from kio.schema.fetch.v12.response import FetchResponse as KioFetchResponse
from kio.schema.metadata.v12.response import MetadataResponse as KioMetadataResponse
from kio.schema.produce.v9.request import ProduceRequest as KioProduceRequest
from kio.schema.produce.v9.response import ProduceResponse as KioProduceResponse
from kio.serial import entity_reader, entity_writer

from distributedlog.model.ids import Uuid
from distributedlog.protocol import framing
from distributedlog.protocol.codec import decode, encode, encode_bytes, join_parts
from distributedlog.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from distributedlog.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from distributedlog.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from distributedlog.protocol.schema import Message
from tests.bench.figures import Figure, at_most, medians, stopwatch
from tests.bench.harness import Bench

ROUNDS = 15
TIMES = 400
BATCH = bytes(16384)
PARTITIONS = 100

PRODUCE_REQUEST = ProduceRequest(
    acks=-1,
    timeout_ms=30000,
    topic_data=[
        TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=3, records=BATCH)])
    ],
)
PRODUCE_RESPONSE = ProduceResponse(
    responses=[
        TopicProduceResponse(
            name="orders",
            partition_responses=[PartitionProduceResponse(index=3, base_offset=123456, log_start_offset=0)],
        )
    ]
)
FETCH_REQUEST = FetchRequest(
    max_wait_ms=500,
    min_bytes=1,
    max_bytes=52428800,
    topics=[
        FetchTopic(
            topic="orders",
            partitions=[FetchPartition(partition=3, fetch_offset=123456, partition_max_bytes=1048576)],
        )
    ],
)
FETCH_RESPONSE = FetchResponse(
    responses=[
        FetchableTopicResponse(
            topic="orders",
            partitions=[
                PartitionData(
                    partition_index=3, high_watermark=123999, aborted_transactions=None, records=BATCH
                )
            ],
        )
    ]
)
METADATA_RESPONSE = MetadataResponse(
    brokers=[MetadataResponseBroker(node_id=node, host="broker", port=9092) for node in range(3)],
    topics=[
        MetadataResponseTopic(
            name="orders",
            topic_id=Uuid(bytes(range(16))),
            partitions=[
                MetadataResponsePartition(
                    partition_index=index,
                    leader_id=index % 3,
                    replica_nodes=[0, 1, 2],
                    isr_nodes=[0, 1, 2],
                )
                for index in range(PARTITIONS)
            ],
        )
    ],
)


def timed(work: Callable[[], object], times: int) -> Callable[[], float]:
    def run() -> float:
        with stopwatch() as seconds:
            for _ in range(times):
                work()
        return seconds() / times

    return run


def both_ways(name: str, message: Message, version: int, theirs: Any, times: int = TIMES) -> list[Figure]:
    """Our time over kio's, for the body alone."""
    data = encode_bytes(message, version)
    read, write = entity_reader(theirs), entity_writer(theirs)
    their_message, _ = read(data, 0)

    def their_encode() -> bytes:
        with io.BytesIO() as out:
            write(out, their_message)
            return out.getvalue()

    if their_encode() != data:
        raise ValueError(f"kio writes {name} differently")
    decoding, their_decoding, encoding, their_encoding = medians(
        ROUNDS,
        timed(lambda: decode(type(message), version, data), times),
        timed(lambda: read(data, 0), times),
        timed(lambda: encode(message, version), times),
        timed(their_encode, times),
    )
    return [
        Figure(f"{name} v{version}, decode: our time / kio's (native)", decoding / their_decoding, "x"),
        at_most(f"{name} v{version}, encode: our time / kio's", encoding / their_encoding, "x", 0.5),
    ]


def a_frame(request: Message, version: int) -> bytearray:
    return bytearray(join_parts(framing.encode_request(request, version, 7, "bench")))[4:]


def with_frames() -> list[Figure]:
    """What the server pays for a request and its answer, in microseconds."""
    produce, fetch = a_frame(PRODUCE_REQUEST, 9), a_frame(FETCH_REQUEST, 12)
    produced, answered, fetched, sent = (
        seconds * 1e6
        for seconds in medians(
            ROUNDS,
            timed(lambda: framing.decode_request(produce), TIMES),
            timed(lambda: framing.encode_response(PRODUCE_RESPONSE, 9, 7), TIMES),
            timed(lambda: framing.decode_request(fetch), TIMES),
            timed(lambda: framing.encode_response(FETCH_RESPONSE, 12, 7), TIMES),
        )
    )
    return [
        at_most("Produce v9: decode header and request", produced, "µs", 8),
        at_most("Produce v9: encode response and header", answered, "µs", 8),
        at_most("Fetch v12: decode header and request", fetched, "µs", 10),
        at_most("Fetch v12: encode response and header", sent, "µs", 10),
    ]


def run(bench: Bench) -> None:
    bench.case("header, body and frame", with_frames)
    for name, message, version, theirs, times in (
        ("ProduceRequest", PRODUCE_REQUEST, 9, KioProduceRequest, TIMES),
        ("ProduceResponse", PRODUCE_RESPONSE, 9, KioProduceResponse, TIMES),
        ("FetchRequest", FETCH_REQUEST, 12, KioFetchRequest, TIMES),
        ("FetchResponse", FETCH_RESPONSE, 12, KioFetchResponse, TIMES),
        ("MetadataResponse of 100 partitions", METADATA_RESPONSE, 12, KioMetadataResponse, 20),
    ):
        bench.case(name, partial(both_ways, name, message, version, theirs, times))
