"""Writes the corpus (`python -m tests.unit.protocol.corpus`): inputs that are refused, and why."""

from pathlib import Path

from distributedlog.protocol.primitives import uvarint

HUGE = uvarint(2**32 - 1)
INPUTS = {
    # Counts whose elements could not be there.
    "MetadataRequest-v1-two-thousand-million-topics": b"\x7f\xff\xff\xff",
    "MetadataRequest-v12-four-thousand-million-topics": HUGE + b"\x00" * 64,
    "MetadataResponse-v12-replicas-beyond-the-end": (
        b"\x00\x00\x00\x00\x01\x00\x00\x00\x00\x01\x02\x00\x00\x02t" + b"\x00" * 17
        + b"\x02" + b"\x00" * 14 + HUGE
    ),
    "OffsetFetchRequest-v8-nested-counts": b"\x02\x02g\x02\x02t" + HUGE,
    "CreateTopicsRequest-v2-negative-count": b"\xff\xff\xff\xfe",
    "LeaveGroupRequest-v3-null-where-none-may-be": b"\x00\x01g\xff\xff\xff\xff",
    # Lengths.
    "ProduceRequest-v3-records-longer-than-the-frame": (
        b"\xff\xff\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01\x00\x00\x00\x00\x7f\xff\xff\xff"
    ),
    "ProduceRequest-v9-records-longer-than-the-frame": (
        b"\x00\x00\x01\x00\x00\x00\x00\x02\x02t\x02\x00\x00\x00\x00" + HUGE
    ),
    "ProduceRequest-v3-records-of-length-minus-two": (
        b"\xff\xff\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01\x00\x00\x00\x00\xff\xff\xff\xfe"
    ),
    "SaslAuthenticateRequest-v0-token-longer-than-the-frame": b"\x00\x00\x01\x00abc",
    "SyncGroupRequest-v0-string-of-length-minus-two": b"\xff\xfe",
    # Varints.
    "FetchRequest-v12-varint-without-an-end": b"\x00" * 21 + b"\xff" * 12,
    "FetchRequest-v12-varint-of-33-bits": b"\x00" * 25 + b"\xff\xff\xff\xff\x1f",
    # Tagged sections.
    "ApiVersionsRequest-v3-ten-thousand-and-one-tags": b"\x01\x01" + uvarint(10_001) + b"\x00" * 20_002,
    "ApiVersionsRequest-v3-tags-out-of-order": b"\x01\x01\x02\x02\x00\x01\x00",
    "ApiVersionsRequest-v3-a-tag-twice": b"\x01\x01\x02\x01\x00\x01\x00",
    "ApiVersionsResponse-v3-a-known-tag-with-the-wrong-size": (
        b"\x00\x00\x01\x00\x00\x00\x00\x01\x01\x07" + b"\x00" * 8
    ),
    "ApiVersionsResponse-v3-a-tag-longer-than-the-frame": b"\x00\x00\x01\x00\x00\x00\x00\x01\x09" + HUGE,
    # Text.
    "FindCoordinatorRequest-v0-half-a-character": b"\x00\x02\xe2\x82",
    "FindCoordinatorRequest-v3-a-surrogate": b"\x04\xed\xa0\x80\x00\x00",
    # Cut within a fixed run, a mark and an array of numbers.
    "HeartbeatRequest-v0-cut-in-a-number": b"\x00\x01g\x00\x00",
    "ConsumerGroupHeartbeatResponse-v0-cut-behind-the-mark": b"\x00" * 15 + b"\x01",
    "DescribeTopicPartitionsRequest-v0-cut-before-the-cursor": b"\x01\x00\x00\x00\x01",
    "OffsetCommitRequest-v2-nothing-at-all": b"",
}  # fmt: skip


def main() -> None:
    folder = Path(__file__).parent
    for name, data in INPUTS.items():
        (folder / f"{name}.bin").write_bytes(data)


if __name__ == "__main__":
    main()
