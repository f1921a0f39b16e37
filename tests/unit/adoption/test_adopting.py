"""Taking over, on a disk that is cut off at any step: doing it again finishes it, and no record of Kafka's is
lost."""

from collections.abc import Callable

import pytest

from distributedlog.adoption.adopting import Tools, adopt_in_place, adopt_into
from distributedlog.adoption.cluster_metadata import ADOPTED_BROKER_EPOCH
from distributedlog.adoption.survey import Survey, survey
from distributedlog.controller.features import FEATURES
from distributedlog.controller.image import MetadataImage
from distributedlog.controller.snapshots import decode_snapshot
from distributedlog.data_directory.identity import load_identity
from distributedlog.data_directory.raft_storage import LogRaftStorage
from distributedlog.model.errors import DiskFullError, NotAdoptableError, StorageError
from distributedlog.ports.clock import SystemClock
from distributedlog.settings.loading import load_settings
from distributedlog.storage.files import Files
from distributedlog.storage.store import LogStore
from tests.simulation.clock import SeededRandomness
from tests.simulation.disk import PowerCut, SimDisk
from tests.unit.adoption.kafka_stage import (
    CLEAN,
    METADATA,
    KafkaDirectory,
    copy_in,
    put,
    topic_records,
    uuid,
)

KAFKA = "/kafka"
OURS = "/ours"
ORDERS, USERS, STATE = uuid(1), uuid(2), uuid(3)


def small() -> SimDisk:
    """Two topics to take, a third that stays, and a leftover."""
    disk = SimDisk(1)
    records = [
        *topic_records("orders", ORDERS, [[1], [1]]),
        *topic_records("users", USERS, [[1]]),
        *topic_records("__transaction_state", STATE, [[1]]),
    ]
    directory = KafkaDirectory(disk, KAFKA).metadata(records)
    directory.partition("orders", 0, ORDERS).partition("orders", 1, ORDERS).partition("users", 0, USERS)
    directory.partition("__transaction_state", 0, STATE)
    put(disk, f"{KAFKA}/recovery-point-offset-checkpoint", b"0\n2\norders 0 3\n__transaction_state 0 3\n")
    return disk


def tools(disk: SimDisk) -> Tools:
    return Tools(Files(disk), SystemClock(), SeededRandomness(5))


def look(disk: SimDisk) -> Survey:
    return survey(Files(disk), [KAFKA])


def into(disk: SimDisk) -> None:
    adopt_into(tools(disk), look(disk), OURS)


def in_place(disk: SimDisk) -> None:
    adopt_in_place(tools(disk), look(disk))


def start(disk: SimDisk, directory: str) -> MetadataImage:
    """Starts as a node does: whose directory it is, then the metadata."""
    settings = load_settings(None, {"log.dirs": directory, "node.id": "1"}, {})
    identity = load_identity(Files(disk), settings, clock=SystemClock(), randomness=SeededRandomness(6))
    assert identity.clean_epoch == ADOPTED_BROKER_EPOCH
    loaded = LogRaftStorage(Files(disk), f"{directory}/__cluster_metadata", SystemClock()).load()
    assert not loaded.lost
    assert loaded.recovered.snapshot is not None
    image = decode_snapshot(loaded.recovered.snapshot.data)
    assert image.cluster_id == identity.cluster_id
    assert image.brokers[1].log_dirs == (identity.directory_id,)
    return image


def records_of(disk: SimDisk, directory: str) -> dict[str, tuple[int, int]]:
    """The logs there are, with their ends; nothing is left to recover."""
    store = LogStore.open(disk, directory, clock=SystemClock(), randomness=SeededRandomness(1))
    assert store.was_clean
    found = {str(key): (log.start_offset, log.end_offset) for key, log in store.logs.items()}
    assert not any(report.damage or report.notes for report in store.reports.values())
    store.abandon()
    return found


def under(disk: SimDisk, directory: str) -> dict[str, bytes]:
    return {path: data for path, data in disk.files().items() if path.startswith(f"{directory}/")}


# --- into a new directory ----------------------------------------------------------------------


def test_a_new_directory_serves_what_kafka_had_and_kafkas_stays_as_it_was() -> None:
    disk = small()
    before = under(disk, KAFKA)
    into(disk)
    assert under(disk, KAFKA) == before
    image = start(disk, OURS)
    assert set(image.topic_ids) == {"orders", "users"}
    assert image.topic_ids["orders"] == ORDERS
    assert dict(image.features.items()) == {name: high for name, (_, high) in FEATURES.items()}
    partition = image.topics[ORDERS].partitions[1]
    assert (partition.replicas, partition.isr, partition.leader, partition.leader_epoch) == (
        (1,),
        (1,),
        -1,
        4,
    )
    assert records_of(disk, OURS) == {"orders-0": (0, 3), "orders-1": (0, 3), "users-0": (0, 3)}
    checkpoint = disk.files()[f"{OURS}/recovery-point-offset-checkpoint"]
    assert checkpoint == b"0\n1\norders 0 3\n"
    assert f"{OURS}/adoption-unfinished" not in disk.files()


def test_everything_that_kafka_itself_wrote_can_be_opened() -> None:
    disk = SimDisk(1)
    copy_in(disk, CLEAN, KAFKA)
    into(disk)
    image = start(disk, OURS)
    assert image.next_producer_id == 1000
    assert dict(image.settings_of(2, "codec-zstd").items()) == {"compression.type": "zstd"}
    found = records_of(disk, OURS)
    assert len(found) == 26
    assert found["start-advanced-0"][0] == 11


def test_a_second_try_of_a_finished_adoption_is_refused() -> None:
    disk = small()
    into(disk)
    with pytest.raises(NotAdoptableError, match="is not empty"):
        into(disk)


def test_an_unfinished_adoption_is_not_mixed_with_another() -> None:
    disk = small()
    Files(disk).make_directory(OURS)
    put(disk, f"{OURS}/adoption-unfinished", b"{}")
    with pytest.raises(NotAdoptableError, match="an adoption of something else"):
        into(disk)


def test_without_room_nothing_is_begun_but_the_marker() -> None:
    disk = small()
    short = Files(disk)
    disk.free_bytes = lambda path: 1000  # type: ignore[method-assign]
    with pytest.raises(DiskFullError, match="--link and --in-place"):
        adopt_into(Tools(short, SystemClock(), SeededRandomness(1)), look(disk), OURS)
    assert set(under(disk, OURS)) == {f"{OURS}/.lock", f"{OURS}/adoption-unfinished"}


def test_sealed_segments_are_linked_and_the_newest_is_copied() -> None:
    disk = small()
    put(disk, f"{KAFKA}/orders-0/{3:020d}.log", b"")
    linked: list[tuple[str, str]] = []

    def link(source: str, target: str) -> bool:
        linked.append((source, target))
        put(disk, target, disk.files()[source])
        return True

    adopt_into(tools(disk), look(disk), OURS, link=link)
    name = f"{0:020d}.log"
    assert linked == [(f"{KAFKA}/orders-0/{name}", f"{OURS}/orders-0.adopting/{name}")]
    assert records_of(disk, OURS)["orders-0"] == (0, 3)


# --- in place ----------------------------------------------------------------------------------


def test_in_place_the_logs_stay_where_they_are_and_what_is_not_taken_is_set_aside() -> None:
    disk = small()
    before = under(disk, KAFKA)
    aside = adopt_in_place(tools(disk), look(disk))
    assert aside == ["__transaction_state-0.kafka", f"{METADATA}.kafka"]
    after = under(disk, KAFKA)
    for path, data in before.items():
        moved = path.replace("__transaction_state-0/", "__transaction_state-0.kafka/")
        moved = moved.replace(f"{METADATA}/", f"{METADATA}.kafka/")
        assert after[moved] == data or path.endswith(".kafka_cleanshutdown")
    assert set(start(disk, KAFKA).topic_ids) == {"orders", "users"}
    assert records_of(disk, KAFKA) == {"orders-0": (0, 3), "orders-1": (0, 3), "users-0": (0, 3)}


def test_in_place_is_for_one_directory_and_for_its_own_id() -> None:
    disk = small()
    KafkaDirectory(disk, "/more", directory_id=uuid(8))
    with pytest.raises(NotAdoptableError, match="has one directory here"):
        adopt_in_place(tools(disk), survey(Files(disk), [KAFKA, "/more"]))
    with pytest.raises(NotAdoptableError, match="keeps its id, 1"):
        adopt_in_place(tools(disk), survey(Files(disk), [KAFKA], node_id=4))


# --- cut short ---------------------------------------------------------------------------------


def operations_of(work: Callable[[SimDisk], None]) -> int:
    disk = small()
    before = disk.operations
    work(disk)
    return disk.operations - before


@pytest.mark.parametrize("mode", ["drop", "keep", "random"])
@pytest.mark.parametrize("work", [into, in_place])
def test_cut_short_anywhere_no_node_starts_on_half_of_it_and_a_second_run_finishes(
    work: Callable[[SimDisk], None], mode: str
) -> None:
    directory = OURS if work is into else KAFKA
    for after in range(operations_of(work)):
        disk = small()
        disk.fail_after(after)
        with pytest.raises(PowerCut):
            work(disk)
        disk.crash(mode)  # type: ignore[arg-type]
        logs = {path for path in under(disk, KAFKA) if path.endswith(".log")}
        assert len(logs) == 5, f"after {after} operations a log of Kafka's is gone"
        if not is_startable(disk, directory):
            work(disk)
        assert set(start(disk, directory).topic_ids) == {"orders", "users"}
        assert records_of(disk, directory) == {"orders-0": (0, 3), "orders-1": (0, 3), "users-0": (0, 3)}


def is_startable(disk: SimDisk, directory: str) -> bool:
    """A node that may not start says so, and leaves everything alone."""
    before = disk.files()
    begun = {name for name in before if name.startswith(f"{directory}/")}
    if begun <= {f"{directory}/.lock", f"{directory}/adoption-unfinished.tmp"}:
        return False  # not yet begun: that would be a new node's directory
    try:
        settings = load_settings(None, {"log.dirs": directory, "node.id": "1"}, {})
        load_identity(Files(disk), settings, clock=SystemClock(), randomness=SeededRandomness(6))
    except StorageError:
        assert disk.files() == before
        return False
    return True
