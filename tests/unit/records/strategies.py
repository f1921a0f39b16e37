"""Records of every shape, for Hypothesis; and how many examples a run may take."""

import os

from hypothesis import settings
from hypothesis import strategies as st

from distributedlog.model.limits import RecordLimits
from distributedlog.records.compression import Codec
from distributedlog.records.record import Header, Record

LIMITS = RecordLimits()
SOAK = os.environ.get("DLOG_SOAK") == "1"
thorough = settings(max_examples=2000 if SOAK else 60, deadline=None)
brief = settings(max_examples=500 if SOAK else 20, deadline=None)

int64s = st.integers(-(2**63), 2**63 - 1)
codecs = st.sampled_from(list(Codec))
blobs = st.one_of(st.none(), st.binary(max_size=40), st.integers(60, 300).map(lambda n: b"x" * n))
header_keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
headers = st.lists(st.builds(Header, header_keys, blobs), max_size=4).map(tuple)
timestamps = st.one_of(st.integers(0, 2**41), int64s, st.sampled_from([-(2**63), 2**63 - 1, -1, 0]))
records = st.builds(Record, blobs, blobs, headers, timestamps)
record_lists = st.lists(records, max_size=8)


def numbered(these: list[Record], base_offset: int = 0) -> list[Record]:
    """The records as they are read back: with their offsets."""
    return [record._replace(offset=base_offset + index) for index, record in enumerate(these)]


def some_records(count: int) -> list[Record]:
    """Records with everything a record can have."""
    return [
        Record(
            value=None if index % 7 == 3 else b"value-%d" % index * (index % 5),
            key=None if index % 3 == 1 else b"key-%d" % index,
            headers=(Header("trace", b"%d" % index), Header("ünï", None)) if index % 4 == 0 else (),
            timestamp_ms=1_700_000_000_000 + index * 17 * (-1) ** index,
        )
        for index in range(count)
    ]
