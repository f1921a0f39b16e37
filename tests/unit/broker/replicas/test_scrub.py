"""The scrub: every sealed segment once a round, slowly, and on from where the last process was."""

from distributedlog.broker.replicas.healing import Healing, SegmentReader
from distributedlog.broker.replicas.scrub import SCRUB_FILE, Scrub
from distributedlog.replication.partition import Partition
from tests.unit.broker.partition_stage import ME, ROOT, Stage
from tests.unit.replication.support import produce

INTERVAL_MS = 1_000_000


class Scrubbed:
    """Two logs with sealed segments, and their scrub."""

    def __init__(self, bytes_per_second: int = 1 << 20) -> None:
        self.bytes_per_second = bytes_per_second
        stage = self.stage = Stage()
        self.scrub = self.make()
        stage.metadata.create("a", 1)
        stage.metadata.create("b", 2)
        stage.apply()
        for name in ("a", "b"):
            for number in range(40):
                produce(stage[name], number)
        stage.settle()

    def make(self) -> Scrub:
        stage = self.stage
        reader = SegmentReader(stage.executor, stage.disk)
        healing = Healing(
            stage.partitions, node_id=ME, clock=stage.clock, scheduler=stage.scheduler, reader=reader
        )
        return Scrub(
            stage.partitions,
            healing,
            bytes_per_second=self.bytes_per_second,
            interval_ms=INTERVAL_MS,
            clock=stage.clock,
            scheduler=stage.scheduler,
            executor=stage.executor,
            reader=reader,
        )

    @property
    def sealed_bytes(self) -> int:
        logs = self.stage.partitions.store.logs.values()
        return sum(segment.size for log in logs for segment in log.segments.sealed)

    def start(self) -> None:
        self.scrub.start()
        self.stage.settle()

    def partition(self, name: str) -> Partition:
        return self.stage[name]


def test_a_round_reads_every_sealed_segment_once_and_the_next_begins_after_the_interval() -> None:
    scrubbed = Scrubbed()
    scrubbed.start()
    scrubbed.stage.pass_time(20_000)
    assert scrubbed.scrub.read_bytes == scrubbed.sealed_bytes > 4_000
    assert scrubbed.scrub.rounds == 1
    scrubbed.stage.pass_time(INTERVAL_MS - 40_000)
    assert scrubbed.scrub.read_bytes == scrubbed.sealed_bytes
    scrubbed.stage.pass_time(60_000)
    assert scrubbed.scrub.read_bytes == 2 * scrubbed.sealed_bytes
    assert scrubbed.scrub.findings == 0


def test_no_more_is_read_than_the_rate_allows_but_for_one_batch_a_piece() -> None:
    scrubbed = Scrubbed(bytes_per_second=100)
    scrubbed.start()
    scrubbed.stage.pass_time(10_000)
    assert 500 <= scrubbed.scrub.read_bytes <= 10 * 100 + 200


def test_a_rate_of_zero_reads_nothing() -> None:
    scrubbed = Scrubbed(bytes_per_second=0)
    scrubbed.start()
    scrubbed.stage.pass_time(10_000)
    assert scrubbed.scrub.read_bytes == 0


def test_what_is_corrupt_is_handed_to_healing_and_the_rest_is_read_on() -> None:
    scrubbed = Scrubbed()
    segment = scrubbed.partition("a").log.segments.sealed[1]
    scrubbed.stage.sim.flip_bit(segment.log.path, 80, 3)
    scrubbed.start()
    scrubbed.stage.pass_time(20_000)
    assert scrubbed.scrub.findings == 1
    corruption = scrubbed.partition("a").corruption
    assert corruption is not None
    assert corruption.base_offset == segment.base_offset
    assert scrubbed.partition("b").corruption is None
    assert scrubbed.scrub.rounds == 1


def test_the_next_process_goes_on_where_the_last_one_was() -> None:
    scrubbed = Scrubbed(bytes_per_second=50)
    scrubbed.start()
    scrubbed.stage.pass_time(90_000)
    read = scrubbed.scrub.read_bytes
    assert read < scrubbed.sealed_bytes
    assert SCRUB_FILE in scrubbed.stage.disk.list_directory(ROOT)
    scrubbed.stage.restart(clean=True)
    scrubbed.bytes_per_second = 1 << 20
    scrubbed.scrub = scrubbed.make()
    scrubbed.stage.apply()
    scrubbed.start()
    scrubbed.stage.pass_time(20_000)
    assert scrubbed.scrub.rounds == 1
    assert 0 < scrubbed.scrub.read_bytes < scrubbed.sealed_bytes - 1_500


def test_a_log_that_is_deleted_meanwhile_is_passed_over() -> None:
    scrubbed = Scrubbed(bytes_per_second=100)
    scrubbed.start()
    scrubbed.stage.pass_time(3_000)
    scrubbed.stage.apply(scrubbed.stage.metadata.remove(1))
    scrubbed.stage.pass_time(200_000)
    assert scrubbed.scrub.rounds == 1
    assert scrubbed.scrub.findings == 0


def test_a_scrape_shows_how_far_the_round_is() -> None:
    scrubbed = Scrubbed(bytes_per_second=100)
    scrubbed.start()
    scrubbed.stage.pass_time(30_000)
    shown = {each.name: each.samples[0].value for each in scrubbed.scrub.families()}
    progress = shown["dlog_scrub_progress_ratio"]
    assert isinstance(progress, float)
    assert 0 < progress < 1
    assert shown["dlog_scrub_bytes"] == scrubbed.scrub.read_bytes
