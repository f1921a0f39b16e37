"""The records that every client writes and reads in these tests."""

from distributedlog.model.limits import RecordLimits
from distributedlog.records.record import Header, Record

LIMITS = RecordLimits()
NOW_MS = 1_700_000_000_000
HEADERS = (Header("a", b"1"), Header("a", b"2"), Header("ünï", b""), Header("", None))
RECORDS = [
    Record(b"value", b"key", (), NOW_MS, 0),
    Record(b"", b"", (), NOW_MS + 1, 1),
    Record(None, b"tombstone", (), NOW_MS - 5000, 2),
    Record(b"no key", None, (), NOW_MS, 3),
    Record(None, None, (Header("alone", b"header"),), NOW_MS + 86_400_000, 4),
    Record(
        b"headers",
        b"k",
        (Header("a", b"1"), Header("a", b"2"), Header("ünï", b""), Header("", None)),
        NOW_MS,
        5,
    ),
    Record(b"large " * 20_000, b"large", (), NOW_MS, 6),
    *(Record(b"bulk-%d" % index, b"%d" % (index % 7), (), NOW_MS + index, index) for index in range(7, 500)),
]
