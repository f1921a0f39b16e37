"""What a scrape shows of replication."""

from distributedlog.broker.observability.metrics import Sample
from distributedlog.broker.replicas.replica_fetcher_manager import FetcherCounts
from distributedlog.broker.replicas.replication_metrics import ReplicationMetrics
from distributedlog.controller.image import ResourceType
from distributedlog.controller.records import NO_LEADER
from distributedlog.storage.append import Origin
from tests.unit.broker.partition_stage import ME, OTHER
from tests.unit.broker.replicas.test_isr_changes import NUMBER, THIRD, Leader
from tests.unit.replication.support import produce_data
from tests.unit.storage.support import batch_of, marker_of, value_of


class _Fetchers:
    counts = FetcherCounts()


class Scrape:
    def __init__(self) -> None:
        self.leader = Leader()
        self.metrics = ReplicationMetrics(
            self.leader.stage.partitions,
            _Fetchers(),  # type: ignore[arg-type]
            self.leader.changes,
            lambda: self.leader.stage.metadata.image,
            self.leader.stage.clock,
        )

    def samples(self, name: str) -> list[Sample]:
        (family,) = [each for each in self.metrics.families() if each.name == f"dlog_{name}"]
        return family.samples

    def __getitem__(self, name: str) -> float:
        (sample,) = self.samples(name)
        assert not sample.labels
        assert isinstance(sample.value, int | float)
        return sample.value


def test_partitions_that_are_short_of_replicas_are_counted_by_how_short_they_are() -> None:
    scrape = Scrape()
    metadata = scrape.leader.stage.metadata
    metadata.configure(ResourceType.TOPIC, "t", "min.insync.replicas", "2")
    seen = {}
    for isr in ((ME,), (ME, OTHER), (ME, OTHER, THIRD)):
        scrape.leader.set_isr(*isr)
        names = ("under_replicated_partitions", "under_min_isr_partitions", "at_min_isr_partitions")
        seen[len(isr)] = tuple(scrape[name] for name in names)
    assert seen == {1: (1, 1, 0), 2: (1, 0, 1), 3: (0, 0, 0)}


def test_followers_lag_in_records_and_in_time() -> None:
    scrape = Scrape()
    leader = scrape.leader
    leader.set_isr(ME, OTHER, THIRD)
    leader.fetch(OTHER, 0)
    leader.fetch(THIRD, 0)
    assert (scrape["replica_lag_records_max"], scrape["replica_lag_seconds_max"]) == (0, 0)
    produce_data(leader.stage["t"], batch_of([value_of(1), value_of(2)]))
    leader.advance(1_500)
    leader.fetch(OTHER, 2)
    assert (scrape["replica_lag_records_max"], scrape["replica_lag_seconds_max"]) == (2, 1.5)
    leader.fetch(THIRD, 2)
    leader.advance(1_500)
    assert (scrape["replica_lag_records_max"], scrape["replica_lag_seconds_max"]) == (0, 0)


def test_what_open_transactions_hold_back_is_counted_in_records() -> None:
    scrape = Scrape()
    leader, lag = scrape.leader, "last_stable_offset_lag_records_max"
    by_partition = "last_stable_offset_lag_records"
    leader.set_isr(ME, OTHER)
    partition = leader.stage["t"]
    values = [value_of(1), value_of(2)]
    produce_data(
        partition,
        batch_of(values, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True),
    )
    leader.stage.settle()
    assert scrape[lag] == 0, "they are not committed yet"
    assert not scrape.samples(by_partition)
    leader.fetch(OTHER, 2)
    assert scrape[lag] == 2
    assert scrape.samples(by_partition) == [({"topic": "t", "partition": "0"}, 2)]
    produce_data(partition, marker_of(7, commit=True), Origin.COORDINATOR)
    leader.stage.settle()
    leader.fetch(OTHER, 3)
    assert scrape[lag] == 0
    assert not scrape.samples(by_partition), "partitions that have none are not named"


def test_partitions_without_a_leader_are_counted_wherever_they_are() -> None:
    scrape = Scrape()
    assert scrape["offline_partitions"] == 0
    scrape.leader.stage.metadata.create("elsewhere", NUMBER + 1, replicas=(OTHER,))
    scrape.leader.stage.metadata.change(NUMBER + 1, isr=[], leader=NO_LEADER)
    assert scrape["offline_partitions"] == 1


def test_internal_topics_with_fewer_replicas_than_there_are_brokers_for() -> None:
    scrape = Scrape()
    metadata = scrape.leader.stage.metadata
    metadata.create("__consumer_offsets", NUMBER + 1, replicas=(ME, OTHER))
    metadata.create("__transaction_state", NUMBER + 2, replicas=(ME, OTHER, THIRD))
    metadata.create("mine", NUMBER + 3, replicas=(ME,))
    assert scrape["internal_topics_with_few_replicas"] == 1
