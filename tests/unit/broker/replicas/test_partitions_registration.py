"""A process leads what its own registration leads, and nothing of another's."""

from distributedlog.controller.records import NO_LEADER
from tests.unit.broker.partition_stage import ME, OTHER, Stage


def test_what_another_process_leads_under_our_id_is_not_ours() -> None:
    """A process that was paused, and replaced, still hears of the cluster."""
    stage = Stage()
    stage.metadata.create("orders", 1, replicas=(ME, OTHER))
    stage.partitions.is_registered = lambda image: False
    stage.apply()
    partition = stage["orders"]
    roles = [(partition.is_leader, partition.leader_id)]
    for is_registered in (True, False):
        stage.partitions.is_registered = lambda image, answer=is_registered: answer  # type: ignore[misc]
        stage.partitions.take_roles_again()
        roles.append((partition.is_leader, partition.leader_id))
    assert roles == [(False, NO_LEADER), (True, ME), (False, NO_LEADER)]
