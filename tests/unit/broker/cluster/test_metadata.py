"""A node's replica of the metadata: what it shows, whom it tells, and what it keeps for those behind it."""

from collections.abc import Callable

import pytest

from distributedlog.broker.cluster import metadata
from distributedlog.broker.cluster.metadata import MetadataReplica
from distributedlog.controller.bundles import decode_bundle, encode_bundle
from distributedlog.controller.features import LEVEL_MAX, versioned
from distributedlog.controller.image import MetadataImage
from distributedlog.controller.records import ClusterCreated, TopicCreated, Versioned
from distributedlog.controller.snapshots import encode_snapshot
from distributedlog.model.errors import DlogError, MalformedMessageError
from distributedlog.model.ids import Uuid


def creation(number: int) -> bytes:
    record = TopicCreated(name=f"topic-{number}", topic_id=Uuid(number.to_bytes(16, "big")))
    return encode_bundle(versioned([record], LEVEL_MAX))


def names(image: MetadataImage) -> set[str]:
    return set(image.topic_ids)


def filled(count: int, **settings: int) -> MetadataReplica:
    """Returns a replica with an entry at each of the first offsets, each creating a topic."""
    replica = MetadataReplica(**settings)
    for offset in range(count):
        replica.handle_entry(creation(offset), offset)
    replica.publish()
    return replica


class Follower:
    """A sink that is a replica itself, and remembers what it was given."""

    def __init__(self) -> None:
        self.replica = MetadataReplica()
        self.given: list[str] = []

    def handle_snapshot(self, data: bytes, offset: int) -> None:
        self.given.append(f"snapshot {offset}")
        self.replica.handle_snapshot(data, offset)

    def handle_entry(self, payload: bytes, offset: int) -> None:
        self.given.append(f"entry {offset}")
        self.replica.handle_entry(payload, offset)


def test_entries_become_the_image_and_are_told_of_once_per_batch() -> None:
    replica = MetadataReplica()
    shown: list[int] = []
    replica.on_publish(lambda image: shown.append(image.offset))
    replica.handle_entry(creation(0), 0)
    replica.handle_entry(creation(1), 1)
    replica.publish()
    replica.publish()
    assert shown == [-1, 1]
    assert names(replica.image) == {"topic-0", "topic-1"}


def test_an_entry_that_was_replayed_already_is_passed_over() -> None:
    replica = filled(2)
    before = replica.image
    replica.handle_entry(creation(1), 1)
    replica.handle_entry(creation(0), 0)
    assert replica.image is before


def test_offsets_without_metadata_are_simply_missing() -> None:
    replica = filled(1)
    replica.handle_entry(creation(5), 5)
    assert replica.image.offset == 5


def test_a_newer_snapshot_takes_the_place_of_everything() -> None:
    replica, ahead = filled(2), filled(5)
    replica.handle_snapshot(encode_snapshot(ahead.image), 4)
    replica.publish()
    assert replica.image == ahead.image


def test_an_older_snapshot_changes_nothing_whatever_offset_it_claims() -> None:
    replica, behind = filled(5), filled(2)
    for claimed in (-1, 1, 4, 9):
        replica.handle_snapshot(encode_snapshot(behind.image), claimed)
        assert replica.image.offset == 4


def test_a_listener_is_told_what_is_published_when_it_comes() -> None:
    replica = filled(1)
    replica.handle_entry(creation(1), 1)
    shown: list[int] = []
    replica.on_publish(lambda image: shown.append(image.offset))
    assert shown == [0], "what is not published yet is not shown"


# --- waiting -----------------------------------------------------------------------------------


def test_whoever_waits_is_called_when_its_offset_is_published_and_not_when_it_merely_arrives() -> None:
    replica = filled(1)
    called: list[str] = []
    replica.when_at(1, lambda: called.append("one"))
    replica.handle_entry(creation(1), 1)
    assert called == []
    replica.publish()
    assert called == ["one"]


def test_who_waits_for_what_is_there_is_called_at_once() -> None:
    called: list[str] = []
    filled(3).when_at(2, lambda: called.append("there"))
    MetadataReplica().when_at(-1, lambda: called.append("nothing to wait for"))
    assert called == ["there", "nothing to wait for"]


def test_who_waits_is_called_in_the_order_of_offsets_then_of_coming() -> None:
    replica = filled(1)
    called: list[str] = []
    for offset, name in ((3, "d"), (1, "a"), (2, "c"), (1, "b"), (4, "late")):
        replica.when_at(offset, lambda name=name: called.append(name))  # type: ignore[misc]
    for offset in (1, 2, 3):
        replica.handle_entry(creation(offset), offset)
    replica.publish()
    assert called == ["a", "b", "c", "d"]


def test_who_cancelled_is_not_called_and_the_others_are() -> None:
    replica = filled(1)
    called: list[int] = []
    cancels = [replica.when_at(1, lambda number=number: called.append(number)) for number in range(4)]  # type: ignore[misc]
    cancels[0]()
    cancels[2]()
    cancels[2]()
    replica.handle_entry(creation(1), 1)
    replica.publish()
    assert called == [1, 3]


def test_one_that_is_called_may_wait_again_and_see_the_published_image() -> None:
    replica = filled(1)
    seen: list[int] = []

    def first() -> None:
        seen.append(replica.image.offset)
        replica.when_at(1, lambda: seen.append(100))
        replica.when_at(2, lambda: seen.append(200))

    replica.when_at(1, first)
    replica.handle_entry(creation(1), 1)
    replica.publish()
    assert seen == [1, 100]
    replica.handle_entry(creation(2), 2)
    replica.publish()
    assert seen == [1, 100, 200]


# --- watching ----------------------------------------------------------------------------------


def test_a_watcher_that_is_not_far_behind_gets_the_entries_it_lacks_and_those_to_come() -> None:
    replica, follower = filled(4), Follower()
    replica.watch(2, follower)
    replica.handle_entry(creation(4), 4)
    assert follower.given == ["entry 2", "entry 3", "entry 4"]


def test_a_watcher_from_the_beginning_becomes_equal() -> None:
    replica, follower = filled(4), Follower()
    replica.watch(0, follower)
    assert follower.replica.image == replica.image


def test_a_watcher_that_is_too_far_behind_gets_a_snapshot_first() -> None:
    replica, follower = filled(20, recent_bytes_max=len(creation(0)) * 3), Follower()
    replica.watch(5, follower)
    replica.handle_entry(creation(20), 20)
    assert follower.given == ["snapshot 19", "entry 20"]
    assert follower.replica.image == replica.image


def test_the_oldest_entry_that_is_kept_is_given_and_the_one_before_it_is_not_missed() -> None:
    replica = filled(20, recent_bytes_max=len(creation(19)) * 3)
    exactly, just_behind = Follower(), Follower()
    replica.watch(17, exactly)
    replica.watch(16, just_behind)
    assert exactly.given == ["entry 17", "entry 18", "entry 19"]
    assert just_behind.given == ["snapshot 19"]


def test_what_was_before_a_snapshot_is_not_pretended_to_be_known() -> None:
    replica, follower = MetadataReplica(), Follower()
    replica.handle_snapshot(encode_snapshot(filled(5).image), -1)
    replica.handle_entry(creation(5), 5)
    replica.watch(0, follower)
    assert follower.given == ["snapshot 5"]
    assert follower.replica.image == replica.image


def test_watchers_hear_of_a_snapshot_that_comes() -> None:
    replica, follower = filled(2), Follower()
    replica.watch(2, follower)
    replica.handle_snapshot(encode_snapshot(filled(7).image), -1)
    assert follower.given == ["snapshot 6"]


def test_a_watcher_that_is_ahead_hears_where_we_are_and_waits_until_we_catch_up() -> None:
    """It moved from a node that was ahead of us."""
    replica, follower = filled(3), Follower()
    for offset in range(5):
        follower.replica.handle_entry(creation(offset), offset)
    replica.watch(5, follower)
    for offset in (3, 4, 5):
        replica.handle_entry(creation(offset), offset)
    assert follower.given == ["snapshot 2", "entry 3", "entry 4", "entry 5"]
    assert follower.replica.image == replica.image


def test_an_empty_replica_has_no_snapshot_to_give() -> None:
    replica, follower = MetadataReplica(), Follower()
    replica.watch(7, follower)
    assert follower.given == []
    replica.handle_entry(creation(0), 0)
    assert follower.given == ["entry 0"]


def test_a_watch_that_was_ended_hears_nothing_more() -> None:
    replica, follower, other = filled(1), Follower(), Follower()
    cancel = replica.watch(1, follower)
    replica.watch(1, other)
    cancel()
    cancel()
    replica.handle_entry(creation(1), 1)
    replica.handle_snapshot(encode_snapshot(filled(5).image), -1)
    assert follower.given == []
    assert other.given == ["entry 1", "snapshot 4"]


def test_a_watch_that_is_ended_by_an_earlier_watcher_does_not_hear_even_the_present_entry() -> None:
    replica, ended = filled(1), Follower()
    cancels: list[Callable[[], None]] = []

    class Ending(Follower):
        def handle_entry(self, payload: bytes, offset: int) -> None:
            cancels[0]()

        def handle_snapshot(self, data: bytes, offset: int) -> None:
            cancels[0]()

    replica.watch(1, Ending())
    cancels.append(replica.watch(1, ended))
    replica.handle_entry(creation(1), 1)
    replica.handle_snapshot(encode_snapshot(filled(5).image), -1)
    assert ended.given == []


def test_what_is_kept_for_watchers_is_bounded_and_an_entry_over_the_bound_is_not_kept_at_all() -> None:
    replica, follower = filled(4, recent_bytes_max=1), Follower()
    replica.watch(3, follower)
    assert follower.given == ["snapshot 3"]


# --- what may come in --------------------------------------------------------------------------


def test_an_entry_that_is_no_bundle_is_refused_before_it_is_committed() -> None:
    replica = filled(1)
    for garbage in (b"", b"garbage", creation(1)[:-1], creation(1) + b"x"):
        with pytest.raises(DlogError):
            replica.check_entry(garbage)
    replica.check_entry(creation(1))
    assert names(replica.image) == {"topic-0"}, "to look is not to take"
    replica.handle_entry(creation(1), 1)
    assert names(replica.image) == {"topic-0", "topic-1"}


def test_what_was_decoded_to_be_checked_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []

    def watched(data: bytes) -> list[Versioned]:
        decoded.append(data)
        return decode_bundle(data)

    monkeypatch.setattr(metadata, "decode_bundle", watched)
    replica = MetadataReplica()
    replica.check_entry(creation(0))
    replica.check_entry(creation(0))
    replica.handle_entry(creation(0), 0)
    assert len(decoded) == 1
    assert names(replica.image) == {"topic-0"}


def test_entries_that_are_never_committed_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "DECODED_BYTES_MAX", 3 * len(creation(0)))
    replica = MetadataReplica()
    for number in range(9):
        replica.check_entry(creation(number))
    assert len(replica._decoded) == 3
    for number in range(9):
        replica.handle_entry(creation(number), number)
    assert len(names(replica.image)) == 9
    assert (replica._decoded, replica._decoded_bytes) == ({}, 0)


def test_a_snapshot_that_is_none_or_of_elsewhere_is_refused() -> None:
    replica, other = filled(1), filled(5)
    sound = encode_snapshot(other.image)
    with pytest.raises(DlogError):
        replica.check_snapshot(b"forged", 5, "ours")
    with pytest.raises(DlogError):
        replica.check_snapshot(sound[:-1], 5, "ours")
    with pytest.raises(MalformedMessageError, match="holds metadata of entry 5"):
        replica.check_snapshot(sound, 4, "ours")
    other.handle_entry(encode_bundle(versioned([ClusterCreated(cluster_id="theirs")], LEVEL_MAX)), 5)
    with pytest.raises(MalformedMessageError, match="of the cluster 'theirs'"):
        replica.check_snapshot(encode_snapshot(other.image), 6, "ours")
    assert names(replica.image) == {"topic-0"}
    replica.check_snapshot(sound, 5, "ours")
    replica.handle_snapshot(sound, -1)
    assert len(names(replica.image)) == 5
