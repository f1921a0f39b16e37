"""What a replica counts of the bytes that were appended and committed."""

from distributedlog.replication.replica import UNCOMMITTED_MAX
from tests.unit.replication.support import ME, OTHER, Stage, produce
from tests.unit.storage.support import batch_of, value_of


def test_bytes_are_counted_as_they_are_appended_and_committed() -> None:
    stage = Stage()
    partition = stage.lead()
    size = len(batch_of([value_of(1)]))
    produce(partition, 1)
    produce(partition, 2)
    assert (partition.appended_bytes, partition.committed_bytes) == (2 * size, 0)
    stage.executor.run_one()
    assert partition.committed_bytes == size
    stage.executor.run_all()
    assert partition.committed_bytes == 2 * size


def test_what_is_counted_of_appends_is_bounded_while_nothing_is_committed() -> None:
    stage = Stage(min_insync_replicas=2)
    partition = stage.lead(replicas=(ME, OTHER))
    size = len(batch_of([value_of(1)]))
    appends = 3 * UNCOMMITTED_MAX
    for _ in range(appends):
        produce(partition, 1)
    assert UNCOMMITTED_MAX // 2 <= len(partition._uncommitted) <= UNCOMMITTED_MAX
    assert partition.committed_bytes == 0
    stage.executor.run_all()
    for end in (appends // 3, appends // 2, appends - 1):
        partition.read_for_replica(OTHER, end, 1, 0)
        assert partition.high_watermark == end
        assert 0.9 * end * size <= partition.committed_bytes <= end * size
    partition.read_for_replica(OTHER, appends, 1, 0)
    assert partition.committed_bytes == partition.appended_bytes == appends * size
