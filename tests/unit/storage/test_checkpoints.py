import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.model.errors import CorruptLogError
from distributedlog.model.ids import TopicPartition, Uuid
from distributedlog.storage import checkpoints
from distributedlog.storage.checkpoints import (
    MetaProperties,
    decode_clean_shutdown,
    decode_epochs,
    decode_meta_properties,
    decode_offsets,
    decode_partition_metadata,
    decode_properties,
    encode_clean_shutdown,
    encode_epochs,
    encode_meta_properties,
    encode_offsets,
    encode_partition_metadata,
    encode_properties,
)
from distributedlog.storage.epochs import EpochEntry

TOPIC_ID = Uuid(bytes(range(16)))
TOPIC_PARTITIONS = st.builds(
    TopicPartition, st.from_regex(r"[a-z][A-Za-z0-9._-]{0,20}", fullmatch=True), st.integers(0, 2**31 - 1)
)
OFFSETS = st.integers(0, 2**63 - 1)


# --- offsets and epochs ------------------------------------------------------------------------


def test_an_offset_checkpoint_has_kafkas_bytes() -> None:
    offsets = {TopicPartition("orders", 10): 99, TopicPartition("orders", 2): 1234, TopicPartition("a", 0): 0}
    data = b"0\n3\na 0 0\norders 2 1234\norders 10 99\n"
    assert encode_offsets(offsets) == data
    assert decode_offsets(data) == offsets


def test_an_epoch_checkpoint_has_kafkas_bytes() -> None:
    entries = [EpochEntry(0, 0), EpochEntry(3, 120)]
    assert encode_epochs(entries) == b"0\n2\n0 0\n3 120\n"
    assert decode_epochs(b"0\n2\n0 0\n3 120\n") == entries


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(TOPIC_PARTITIONS, OFFSETS, max_size=20))
def test_offsets_are_read_as_written(offsets: dict[TopicPartition, int]) -> None:
    assert decode_offsets(encode_offsets(offsets)) == offsets


@settings(max_examples=50, deadline=None)
@given(st.lists(st.builds(EpochEntry, st.integers(0, 2**31 - 1), OFFSETS), max_size=20))
def test_epochs_are_read_as_written(entries: list[EpochEntry]) -> None:
    assert decode_epochs(encode_epochs(entries)) == entries


@pytest.mark.parametrize("data", [b"", b"0\n", b"0\n0\n", b"0\n0"])
def test_a_file_that_kafka_only_created_has_no_entries(data: bytes) -> None:
    assert decode_offsets(data) == {}
    assert decode_epochs(data) == []


@pytest.mark.parametrize("data", [b"0\r\n1\r\na 0 5\r\n", b"0\n1\na  0\t5", b"0\r1\ra 0 5\r"])
def test_other_line_ends_and_blanks_are_read(data: bytes) -> None:
    assert decode_offsets(data) == {("a", 0): 5}


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"1\n0\n", "version 1"),
        (b"x\n0\n", "not a version"),
        (b"0\n-1\n", "count"),
        (b"0\n1_0\n", "count"),
        (b"0\n2\na 0 5\n", "should have 2 entries and has 1"),
        (b"0\n1\na 0 5\nb 0 5\n", "should have 1 entries and has 2"),
        (b"0\n1\n\n", "line 3 has 0 fields"),
        (b"0\n1\na 0\n", "line 3 has 2 fields"),
        (b"0\n1\na 0 5 6\n", "line 3 has 4 fields"),
        (b"0\n1\na/b 0 5\n", "topic name"),
        (b"0\n1\na -1 5\n", "partition"),
        (b"0\n1\na 2147483648 5\n", "partition"),
        (b"0\n1\na 0 -5\n", "offset"),
        (b"0\n1\na 0 9223372036854775808\n", "offset"),
        (b"0\n1\na 0 +5\n", "offset"),
        ("0\n1\na 0 ٥\n".encode(), "offset"),
        (b"0\n1\na 0 " + b"1" * 5000 + b"\n", "offset"),
        (b"0\n1\na 0 \xff\n", "not UTF-8 text at byte 8"),
        (bytes(10), "not a version"),
    ],
)
def test_a_damaged_offset_checkpoint_says_what_is_wrong_with_it(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptLogError, match=problem) as caught:
        decode_offsets(data, "the-file")
    assert "the-file" in str(caught.value)


def test_an_absurd_count_is_refused_before_anything_is_made_of_it() -> None:
    with pytest.raises(CorruptLogError, match="2147483647 entries and has 0"):
        decode_epochs(b"0\n2147483647\n")


def test_an_absurd_size_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_BYTES_MAX", 10)
    assert decode_epochs(b"0\n1\n5 55\n\n"[:9]) == [(5, 55)]
    with pytest.raises(CorruptLogError, match="11 bytes"):
        decode_epochs(b"0\n1\n5 5555\n")


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_damage_is_never_anything_but_corruption(data: st.DataObject) -> None:
    sound = bytearray(encode_offsets({TopicPartition("orders", 1): 17, TopicPartition("b", 0): 5}))
    for _ in range(data.draw(st.integers(1, 3))):
        sound[data.draw(st.integers(0, len(sound) - 1))] = data.draw(st.integers(0, 255))
    try:
        offsets = decode_offsets(bytes(sound))
    except CorruptLogError:
        return
    assert all(0 <= offset < 2**63 for offset in offsets.values())


# --- partition.metadata ------------------------------------------------------------------------


def test_partition_metadata_has_kafkas_bytes() -> None:
    data = b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert encode_partition_metadata(TOPIC_ID) == data
    assert decode_partition_metadata(data) == TOPIC_ID
    assert decode_partition_metadata(data + b"\n") == TOPIC_ID


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version: 0",
        b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw",
        b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0O",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: 0\ntopic_id",
        b"version 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw",
        b"topic_id: AAECAwQFBgcICQoLDA0ODw\nversion: 0",
        b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\nmore: 1",
        b"version: 0\ntopic_id: \xff\xff",
    ],
)
def test_damaged_partition_metadata_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptLogError, match=r"partition\.metadata"):
        decode_partition_metadata(data)


# --- meta.properties ---------------------------------------------------------------------------

META = MetaProperties("4L6g3nShT-eMCtK--X86sw", 3, TOPIC_ID)


def test_meta_properties_are_a_java_properties_file_of_version_1() -> None:
    data = encode_meta_properties(META)
    assert data == (
        b"#\ncluster.id=4L6g3nShT-eMCtK--X86sw\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\nnode.id=3\nversion=1\n"
    )
    assert decode_meta_properties(data) == META


def test_meta_properties_as_java_writes_them_are_read() -> None:
    data = b"#\n#Sat Mar 02 10:11:12 UTC 2024\nnode.id=3\nversion=1\ncluster.id=a\\=b\\:c\\#\nother=x\n"
    assert decode_meta_properties(data) == MetaProperties("a=b:c#", 3, None)


def test_meta_properties_of_zookeepers_days_are_read() -> None:
    assert decode_meta_properties(b"version=0\nbroker.id=7\n") == MetaProperties(None, 7, None, version=0)
    assert decode_meta_properties(b"") == MetaProperties(None, None, None, version=0)


def test_a_directory_of_nobody_is_not_written() -> None:
    with pytest.raises(ValueError, match="both ids"):
        encode_meta_properties(META._replace(node_id=None))


@pytest.mark.parametrize(
    "data",
    [
        b"version=2\ncluster.id=a\nnode.id=1\n",
        b"version=one\n",
        b"version=1\ncluster.id=a\n",
        b"version=1\nnode.id=1\n",
        b"version=1\ncluster.id=a\nnode.id=-1\n",
        b"version=1\ncluster.id=a\nnode.id=1\ndirectory.id=short\n",
        b"version=1\ncluster.id=\\u12\nnode.id=1\n",
        b"version=1\ncluster.id=\\uD83D\nnode.id=1\n",
        b"version=1\ncluster.id=\xff\nnode.id=1\n",
    ],
)
def test_damaged_meta_properties_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptLogError, match=r"meta\.properties"):
        decode_meta_properties(data)


# --- Java properties ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "properties"),
    [
        (b"a=b\n", {"a": "b"}),
        (b"a = b\n", {"a": "b"}),
        (b"a:b\n", {"a": "b"}),
        (b"a b c\n", {"a": "b c"}),
        (b"  \t a=b", {"a": "b"}),
        (b"a= b ", {"a": "b "}),
        (b"a", {"a": ""}),
        (b"a==b", {"a": "=b"}),
        (b"=b", {"": "b"}),
        (b"#a=b\n!c=d\n  # e=f\n\n   \ng=h", {"g": "h"}),
        (b"a=b\\\n   c\\\n#d\ne=f", {"a": "bc#d", "e": "f"}),
        (b"a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        (b"a\\ b\\=c=d", {"a b=c": "d"}),
        (b"a=\\t\\n\\r\\f\\q\\u00e4\\uD83D\\uDE00", {"a": "\t\n\r\fq\u00e4\U0001f600"}),
        (b"a=1\na=2", {"a": "2"}),
        (b"a=b\\", {"a": "b"}),
    ],
)
def test_properties_are_read_as_java_reads_them(data: bytes, properties: dict[str, str]) -> None:
    assert decode_properties(data, "p") == properties


def test_what_would_be_misread_is_escaped() -> None:
    properties = {" a b": "  c d", "e=": "f=g\\", "#": "!", "\u00e4": "\U0001f600\n"}
    data = encode_properties(properties)
    assert (
        data
        == rb"""#
\ a\ b=\  c d
e\==f\=g\\
\#=\!
\u00E4=\uD83D\uDE00\n
"""
    )
    assert decode_properties(data, "p") == properties


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(max_size=8), st.text(max_size=12), max_size=5))
def test_any_property_is_read_as_written(properties: dict[str, str]) -> None:
    data = encode_properties(properties)
    assert decode_properties(data, "p") == properties
    assert data.isascii()


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="a=: \\u0!#\n\r\t", max_size=30))
def test_hostile_properties_are_read_or_refused_and_nothing_else(text: str) -> None:
    try:
        properties = decode_properties(text.encode(), "p")
    except CorruptLogError:
        return
    assert decode_properties(encode_properties(properties), "p") == properties


# --- .kafka_cleanshutdown ----------------------------------------------------------------------


def test_a_clean_shutdown_tells_the_broker_epoch() -> None:
    assert encode_clean_shutdown(42) == b'{"version":0,"brokerEpoch":42}'
    assert decode_clean_shutdown(b'{"version":0,"brokerEpoch":42}') == 42
    assert decode_clean_shutdown(b'{"version":0,"brokerEpoch":-1,"more":[]}') == -1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"nonsense",
        b"\xff\xfe\xfd",
        b'{"brokerEpoch":"42"}',
        b'{"brokerEpoch":true}',
        b'{"brokerEpoch":1.5}',
        b'{"brokerEpoch":9223372036854775808}',
        b"[" * 4096,
        b" " * 5000 + b'{"brokerEpoch":42}',
    ],
)
def test_a_clean_shutdown_without_an_epoch_is_still_one(data: bytes) -> None:
    assert decode_clean_shutdown(data) is None
