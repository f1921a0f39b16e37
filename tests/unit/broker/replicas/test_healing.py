"""A corrupt replica: told, released by the controller, set aside, fetched again, healed."""

import asyncio

import pytest

from distributedlog.broker.replicas.healing import ASK_AGAIN_MS, SUSPECT_AGAIN_MS, Healing, SegmentReader
from distributedlog.broker.replicas.replica_fetcher_manager import FetchLimits, ReplicaFetcherManager
from distributedlog.client.connection import Connection
from distributedlog.controller.records import PartitionChanged, RegisterBroker
from distributedlog.controller.replica_faults import Fault
from distributedlog.model.errors import BrokerUnreachableError
from distributedlog.replication.partition import Partition
from distributedlog.storage.recovery import QUARANTINE
from tests.unit.broker.partition_stage import ME, OTHER, ROOT, Stage, topic_id
from tests.unit.replication.support import follower_batch, produce
from tests.unit.storage.support import NOW_MS, value_of, values_in

WHERE = (topic_id(1), 0)
BATCHES = 40


class Healer:
    """A partition with sealed segments, and what heals it."""

    def __init__(self, *, leader: int = ME, replicas: tuple[int, ...] = (ME, OTHER)) -> None:
        stage = self.stage = Stage()
        self.healing = make_healing(stage)
        for broker_id in (ME, OTHER):
            stage.metadata.apply(
                RegisterBroker(
                    broker_id=broker_id,
                    incarnation_id=topic_id(50 + broker_id),
                    broker_epoch=7,
                    end_points=[],
                    features=[],
                    rack=None,
                    fenced=False,
                )
            )
        stage.metadata.create("orders", 1, replicas=replicas, leader=leader)
        stage.apply()
        for number in range(BATCHES):
            if leader == ME:
                produce(self.partition, number, acks=1)
            else:
                data = follower_batch(number, number)
                self.partition.append_as_follower(
                    data, leader_epoch=0, leader_high_watermark=number, now_ms=NOW_MS
                )
        stage.settle()

    @property
    def partition(self) -> Partition:
        return self.stage["orders"]

    def damage(self, number: int = 1) -> int:
        """Flips a bit; returns where the segment begins."""
        segment = self.partition.log.segments.all()[number]
        self.stage.sim.flip_bit(segment.log.path, 80, 3)
        return segment.base_offset

    def told(self) -> list[int]:
        return [each.fault for each in self.stage.partitions.faults.untaken.values()]

    def take(self) -> None:
        self.stage.partitions.take_faults(tuple(self.stage.partitions.faults.untaken.values()))

    def change(self, *, leader: int, isr: list[int], elr: list[int] | None = None) -> None:
        self.stage.apply(
            self.stage.metadata.apply(
                PartitionChanged(
                    partition_id=0,
                    topic_id=topic_id(1),
                    leader=leader,
                    isr=isr,
                    eligible_leader_replicas=elr,
                )
            )
        )
        self.stage.settle()


def make_healing(stage: Stage) -> Healing:
    return Healing(
        stage.partitions,
        node_id=ME,
        clock=stage.clock,
        scheduler=stage.scheduler,
        reader=SegmentReader(stage.executor, stage.disk),
    )


def suspect(healer: Healer, offset: int) -> None:
    healer.stage.partitions.suspect(healer.partition, offset)
    healer.stage.settle()


@pytest.fixture(params=[ME, OTHER], ids=["leader", "follower"])
def healer(request: pytest.FixtureRequest) -> Healer:
    return Healer(leader=request.param)


def test_a_corrupt_replica_is_told_set_aside_when_it_is_released_and_healed_in_the_isr(
    healer: Healer,
) -> None:
    base = healer.damage()
    suspect(healer, base)
    assert healer.told() == [Fault.CORRUPT]
    healer.take()
    assert healer.partition.log_end_offset == BATCHES, "it may still be elected: nothing is removed"
    healer.change(leader=OTHER, isr=[OTHER])
    assert values_in(healer.partition.log) == [value_of(each) for each in range(base)]
    kept = healer.stage.disk.list_directory(f"{ROOT}/orders-0/{QUARANTINE}")
    assert kept == [f"{base:020d}.log", "told"]
    assert healer.healing.healed == 0
    assert healer.stage.partitions.faults.present == {WHERE: Fault.CORRUPT}
    healer.change(leader=OTHER, isr=[ME, OTHER])
    assert healer.healing.healed == 1
    assert healer.stage.partitions.faults.present == {}


@pytest.mark.parametrize(
    ("leader", "isr", "elr"),
    [
        (ME, [ME], None),
        (OTHER, [OTHER, ME], None),
        (OTHER, [OTHER], [ME]),
        (-1, [], None),
    ],
    ids=["leads", "in-sync", "eligible", "no-leader"],
)
def test_nothing_is_removed_of_a_replica_that_counts_for_something(
    healer: Healer, leader: int, isr: list[int], elr: list[int] | None
) -> None:
    suspect(healer, healer.damage())
    healer.take()
    healer.change(leader=leader, isr=isr, elr=elr)
    healer.stage.pass_time(3 * ASK_AGAIN_MS)
    assert healer.partition.log_end_offset == BATCHES
    assert healer.partition.corruption is not None


def test_a_release_without_a_new_leader_epoch_does_not_count() -> None:
    """A fetch of before may still be on its way to the leader, and bring this replica back into the ISR."""
    healer = Healer(leader=OTHER)
    suspect(healer, healer.damage())
    healer.stage.apply(healer.stage.metadata.change(1, isr=[OTHER]))
    healer.stage.settle()
    assert healer.partition.log_end_offset == BATCHES
    healer.change(leader=OTHER, isr=[OTHER])
    assert healer.partition.log_end_offset < BATCHES


def test_a_leader_without_another_in_sync_leads_on_and_asks_when_there_is_one() -> None:
    healer = Healer()
    healer.change(leader=ME, isr=[ME])
    suspect(healer, healer.damage())
    healer.take()
    healer.stage.pass_time(3 * ASK_AGAIN_MS)
    assert healer.told() == [], "the controller can do nothing yet"
    assert healer.partition.is_leader
    produce(healer.partition, 99, acks=1)
    healer.stage.apply(healer.stage.metadata.change(1, isr=[ME, OTHER]))
    healer.stage.settle()
    assert healer.told() == [Fault.CORRUPT]


def test_a_suspicion_that_is_wrong_changes_nothing_and_is_not_looked_into_again_at_once(
    healer: Healer,
) -> None:
    suspect(healer, 0)
    assert healer.told() == []
    assert healer.partition.corruption is None
    base = healer.damage()
    suspect(healer, base)
    assert healer.partition.corruption is None
    healer.stage.pass_time(SUSPECT_AGAIN_MS)
    suspect(healer, base)
    assert healer.partition.corruption is not None


def test_a_segment_that_is_another_one_by_now_is_not_believed_to_be_corrupt() -> None:
    healer = Healer(leader=OTHER)
    base = healer.damage()
    healer.stage.partitions.suspect(healer.partition, base)
    healer.partition.truncate_to(base, leader_epoch=0, now_ms=NOW_MS)
    healer.stage.settle()
    assert healer.partition.corruption is None
    assert healer.told() == []


def test_what_recovery_found_damaged_is_healed_once_it_is_in_sync() -> None:
    healer = Healer(leader=OTHER)
    stage = healer.stage
    stage.sim.crash("drop")
    stage.sim.flip_bit(f"{ROOT}/orders-0/{0:020d}.log", 80, 3)
    stage.open()
    healing = make_healing(stage)
    stage.apply()
    assert stage.partitions.faults.present == {WHERE: Fault.DAMAGED}
    healer.take()
    healer.change(leader=OTHER, isr=[OTHER])
    assert stage.partitions.faults.present == {WHERE: Fault.DAMAGED}
    healer.change(leader=OTHER, isr=[ME, OTHER])
    assert stage.partitions.faults.present == {}
    assert healing.healed == 1


def test_a_scrape_shows_what_is_corrupt_and_what_healed() -> None:
    healer = Healer(leader=OTHER)
    suspect(healer, healer.damage())

    def scrape() -> dict[str, float]:
        return {each.name: float(each.samples[0].value) for each in healer.healing.families()}  # type: ignore[arg-type]

    assert scrape() == {
        "dlog_corrupt_segments": 1,
        "dlog_corrupt_replicas_unhealed": 1,
        "dlog_replicas_healed": 0,
    }
    healer.change(leader=OTHER, isr=[OTHER])
    healer.change(leader=OTHER, isr=[ME, OTHER])
    assert scrape()["dlog_replicas_healed"] == 1
    assert scrape()["dlog_corrupt_replicas_unhealed"] == 0


def test_a_corrupt_follower_fetches_nothing_until_it_is_cut() -> None:
    healer = Healer(leader=OTHER)
    stage = healer.stage
    fetchers = ReplicaFetcherManager(
        stage.partitions.signals,
        node_id=ME,
        broker_epoch=lambda: 7,
        connect=_connect_to_nobody,
        clock=stage.clock,
        scheduler=stage.scheduler,
        limits=FetchLimits(),
    )

    async def story() -> None:
        healer.change(leader=OTHER, isr=[ME, OTHER])
        assert fetchers.leaders == [OTHER]
        base = healer.damage()
        stage.partitions.suspect(healer.partition, base)
        stage.settle()
        assert fetchers.leaders == []
        healer.change(leader=OTHER, isr=[ME, OTHER])
        assert fetchers.leaders == []
        healer.change(leader=OTHER, isr=[OTHER])
        assert fetchers.leaders == [OTHER]
        assert healer.partition.log_end_offset == base
        fetchers.close()

    asyncio.run(story())


async def _connect_to_nobody(broker_id: int) -> Connection:
    raise BrokerUnreachableError(f"nobody listens as broker {broker_id}")
