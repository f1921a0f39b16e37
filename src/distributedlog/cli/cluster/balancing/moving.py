"""The moves of a plan, made and watched.

    leaderships   the replicas of a partition in another order, which copies nothing, and a preferred election
    moves         as `dlog cluster reassign` makes them, throttled; at their end preferred elections, too

Partitions that another replica leads than the one that is to are part of it: their elections are what a plan
counts with.
"""

from typing import Final

from distributedlog.cli.cluster.balancing.planner import BalancePlan
from distributedlog.cli.cluster.reassign import (
    PARTITIONS_PER_REQUEST,
    alter_all,
    find_present_replicas,
    move_all,
    watch_moves,
)
from distributedlog.cli.cluster.reassignment_plan import Plan
from distributedlog.cli.output import warn
from distributedlog.client.admin.admin import Admin
from distributedlog.client.errors import code_of
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition

EXIT_REFUSED: Final = 1


async def make_moves(admin: Admin, plan: BalancePlan, throttle_rate: int | None) -> int:
    """Makes leaderships change hands, then moves replicas, and returns when all have arrived."""
    code = await hand_over(admin, plan.leaderships)
    if plan.moves:
        before = await find_present_replicas(admin, plan.moves)
        code = await move_all(admin, before, plan.moves, throttle_rate, wait=True) or code
    return await elect(admin, [*plan.targets, *await find_unpreferred(admin)]) or code


async def hand_over(admin: Admin, leaderships: Plan) -> int:
    """Gives replicas their new order; nothing is copied, so that is done at once."""
    if not leaderships:
        return 0
    refused = await alter_all(admin, dict(leaderships), "begun that copy nothing")
    await watch_moves(admin, leaderships)
    return EXIT_REFUSED if refused else 0


async def find_unpreferred(admin: Admin) -> list[TopicPartition]:
    """Returns the partitions whose first replica is in sync and does not lead."""
    topics = await admin.list_topics(with_internal=True)
    return [
        TopicPartition(topic.name, each.index)
        for topic in topics
        for each in topic.partitions
        if each.replicas and each.leader_id != each.replicas[0] and each.replicas[0] in each.isr
    ]


async def elect(admin: Admin, partitions: list[TopicPartition]) -> int:
    """Has preferred replicas lead; one that does already is no failure."""
    names = list(dict.fromkeys(partitions))
    outcomes: dict[TopicPartition, DlogError | None] = {}
    for at in range(0, len(names), PARTITIONS_PER_REQUEST):
        outcomes |= await admin.elect_leaders(names[at : at + PARTITIONS_PER_REQUEST])
    code = 0
    for name, error in outcomes.items():
        if error is not None and code_of(error) is not ErrorCode.ELECTION_NOT_NEEDED:
            warn(f"{name} is led by another replica than its first: {error}")
            code = EXIT_REFUSED
    return code
