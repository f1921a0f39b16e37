from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from distributedlog.pipelines.compaction.plan import plan_merges
from distributedlog.pipelines.compaction.streams import FileStream

TARGET = 1000


def entry(path: str, size: int = 10, time_ms: int = 0) -> dict[str, Any]:
    place = f"file://{path}"
    return {"path": place, "size": size, "isDir": False, "modificationTime": time_ms, "action": "add"}


def stream(read: str = "", pending: str = "") -> FileStream:
    paths = [f"/t/{name}" for name in read]
    return FileStream(
        f"log of {read}", {path: f"file://{path}" for path in paths}, frozenset(f"/t/{n}" for n in pending)
    )


def planned(entries: list[dict[str, Any]], *streams: FileStream) -> list[str]:
    merges = plan_merges(entries, streams, TARGET)
    return ["".join(each["path"].rpartition("/")[2] for each in merge.entries) for merge in merges]


FILES = [entry(f"/t/{name}", time_ms=number) for number, name in enumerate("abcdef")]


def test_all_small_files_become_one() -> None:
    assert planned(FILES) == ["abcdef"]
    assert plan_merges(FILES, (), TARGET)[0].modified_ms == 5


def test_what_a_stream_has_read_is_merged_apart() -> None:
    assert sorted(planned(FILES, stream("abc"))) == ["abc", "def"]
    assert sorted(planned(FILES, stream("abcd"), stream("ab"))) == ["ab", "cd", "ef"]
    merges = plan_merges(FILES, [stream("abcd"), stream("ab")], TARGET)
    assert sorted(len(merge.streams) for merge in merges) == [0, 1, 2]


def test_what_a_stream_has_taken_and_not_read_stays() -> None:
    assert planned(FILES, stream("abcdef"), stream("ab", pending="cd")) == ["ef", "ab"]


def test_one_file_alone_and_large_files_stay() -> None:
    assert planned(FILES[:1]) == []
    assert planned([*FILES[:2], entry("/t/x", size=500)]) == ["ab"]


def test_partitions_are_merged_apart() -> None:
    files = [entry(f"/t/p={number}/{name}") for number in (1, 2) for name in "ab"]
    assert planned(files) == ["ab", "ab"]


def test_what_is_no_file_of_this_machine_stays() -> None:
    assert planned([{**each, "path": "s3://b/a"} for each in FILES]) == []
    assert planned([{**each, "isDir": True} for each in FILES]) == []


@given(
    st.lists(st.integers(1, 700), max_size=30),
    st.lists(st.tuples(st.sets(st.integers(0, 29)), st.sets(st.integers(0, 29))), max_size=3),
)
def test_every_merge_can_be_told_apart_by_nobody(
    sizes: list[int], told: list[tuple[set[int], set[int]]]
) -> None:
    files = [entry(f"/t/{number}", size, number) for number, size in enumerate(sizes)]
    streams = [
        FileStream(
            str(at),
            {f"/t/{number}": f"file:///t/{number}" for number in read - pending},
            frozenset(f"/t/{number}" for number in pending),
        )
        for at, (read, pending) in enumerate(told)
    ]
    seen: set[str] = set()
    for merge in plan_merges(files, streams, TARGET):
        paths = {each["path"].removeprefix("file://") for each in merge.entries}
        assert len(paths) > 1
        assert not paths & seen
        seen |= paths
        assert sum(each["size"] for each in merge.entries) <= TARGET
        for each in streams:
            assert not paths & each.pending
            assert paths <= each.read.keys() if each in merge.streams else not paths & each.read.keys()
