"""Appends, syncs and power cuts in any order: what was acknowledged is there, and was synced before."""

from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.model.error_codes import ErrorCode
from tests.simulation.disk import SimDisk
from tests.simulation.executor import StepExecutor
from tests.unit.replication.support import ME, OTHER, Stage, produce
from tests.unit.storage.support import values_in

STEPS = st.lists(
    st.sampled_from(("append", "append", "sync", "cut", "follow", "checkpoint", "fetch")), max_size=40
)


@settings(max_examples=80)
@given(steps=STEPS, seed=st.integers(0, 2**16), alone=st.booleans())
def test_what_is_acknowledged_was_synced_and_survives_every_power_cut(
    steps: list[str], seed: int, alone: bool
) -> None:
    replicas = (ME,) if alone else (ME, OTHER)
    stage = Stage(disk=SimDisk(seed), executor=StepExecutor(seed))
    epoch, number, checkpointed = 0, 0, 0
    acknowledged: dict[int, bytes | None] = {}
    partition = stage.lead(epoch, replicas=replicas)
    for step in steps:
        if step == "append":
            number += 1
            produce(partition, number)
        elif step == "sync":
            stage.executor.run_one()
        elif step == "fetch" and not alone:
            region = partition.read_for_replica(OTHER, partition.log_end_offset, 100, 0).region
            assert region is None
        elif step == "follow":
            epoch += 2
            stage.follow(epoch - 1)
            partition = stage.lead(epoch, replicas=replicas)
        elif step == "checkpoint":
            checkpointed = partition.high_watermark
        elif step == "cut":
            stage.disk.crash("random")
            epoch += 1
            stage = Stage(disk=stage.disk, executor=StepExecutor(seed), high_watermark=checkpointed)
            partition = stage.lead(epoch, replicas=replicas)
        log = partition.log
        assert log.start_offset <= log.last_stable_offset <= log.high_watermark <= log.flushed_end_offset
        values = values_in(log)
        for end_offset in range(1, log.end_offset + 1):
            if partition.check_acknowledged(end_offset) == ErrorCode.NONE:
                value = acknowledged.setdefault(end_offset, values[end_offset - 1])
                assert value == values[end_offset - 1]
        assert len(acknowledged) <= log.end_offset, "an acknowledged record is gone"
