"""A replica that is moved away from this broker and back, while the work for it waits in line."""

import pytest

from distributedlog.model.internal_topics import OFFSETS_TOPIC
from tests.simulation.executor import StepExecutor
from tests.unit.broker.partition_stage import ME, OTHER, Stage
from tests.unit.replication.support import produce


@pytest.mark.parametrize("name", ["orders", OFFSETS_TOPIC])
def test_a_replica_that_is_dropped_and_added_again_begins_anew_and_is_there(name: str) -> None:
    maker = StepExecutor()
    stage = Stage(maker=maker)
    stage.metadata.create(name, 1, replicas=(ME, OTHER))
    stage.apply()
    maker.run_all()
    produce(stage[name], 1)
    stage.settle()
    stage.apply(stage.metadata.create("others", 2))  # its files are being made
    stage.apply(stage.metadata.change(1, replicas=[OTHER], isr=[OTHER], leader=OTHER))
    stage.apply(stage.metadata.change(1, replicas=[OTHER, ME]))
    maker.run_all()
    partition = stage.partitions.get(name, 0)
    assert partition is not None
    assert (partition.log_end_offset, partition.is_stopped) == (0, False)
    assert partition.log is stage.partitions.store.logs[partition.key]
