"""`dlog topic alter --replication-factor`: more replicas of a topic, or fewer, as moves.  The plan is pure.

    more    on brokers that live: other hosts first, other racks, then the fewest replicas
            (`controller.placement`, as when topics are made); behind those that are there
    fewer   who is not in sync goes first, then who shares a host or a rack with others, then who holds most;
            the first stays, as it is preferred as leader, unless it is not in sync

Replicas that stay keep their order.  The replicas are those that there will be once all moves have ended, so
that two plans agree.
"""

import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext, redirect_stdout
from typing import Final, NamedTuple

from distributedlog.cli.cluster.drain import find_locations, find_replicas
from distributedlog.cli.cluster.reassign import find_present_replicas, move_all
from distributedlog.cli.cluster.reassignment_plan import Plan
from distributedlog.client.admin.admin import Admin
from distributedlog.controller.placement import Location, choose_leaving, choose_replica
from distributedlog.model.errors import InvalidReplicationFactorError
from distributedlog.model.ids import TopicPartition

CHANGED: Final = "replication factor"
"""What the change is called."""


class FactorPlan(NamedTuple):
    before: tuple[int, ...]
    """The numbers of replicas that partitions have, each once."""
    moves: Plan

    def spell_before(self) -> str:
        return ", ".join(map(str, self.before))


NOTHING: Final = FactorPlan((), {})


def plan_factor(
    held: Plan,
    topic: str,
    factor: int,
    locations: Mapping[int, Location],
    in_sync: Mapping[TopicPartition, frozenset[int]],
) -> FactorPlan:
    """Returns the replicas that each partition of the topic is to have which has another number of them.

    `held` has the replicas of every topic, `locations` the brokers that live.  Raises
    InvalidReplicationFactorError if too few do.
    """
    load = Counter(each for replicas in held.values() for each in replicas)
    moves: Plan = {}
    own = {name: replicas for name, replicas in sorted(held.items()) if name.topic == topic}
    for name, before in own.items():
        target = before
        while len(target) < factor:
            free = [each for each in locations if each not in target]
            if not free:
                raise InvalidReplicationFactorError(
                    f"{name} has a replica on every one of the {len(locations)} brokers that live: "
                    f"{factor} replicas need more brokers"
                )
            added = choose_replica(free, target, locations, {each: (load[each],) for each in free})
            load[added] += 1
            target = (*target, added)
        synced = {each: at for each, at in locations.items() if each in in_sync.get(name, ())}
        while len(target) > factor:
            leaving = choose_leaving(target, synced, load)
            load[leaving] -= 1
            target = tuple(each for each in target if each != leaving)
        if target != before:
            moves[name] = target
    return FactorPlan(tuple(sorted({len(each) for each in own.values()})), moves)


async def make_factor_plan(admin: Admin, topic: str, factor: int) -> FactorPlan:
    (view,) = await admin.describe_topics([topic])
    in_sync = {TopicPartition(topic, each.index): frozenset(each.isr) for each in view.partitions}
    return plan_factor(await find_replicas(admin), topic, factor, await find_locations(admin), in_sync)


async def change_factor(
    admin: Admin, plan: FactorPlan, throttle_rate: int | None, *, wait: bool, is_json: bool
) -> int:
    """Begins the moves, and waits for them if told to; what it tells goes to stderr beside JSON."""
    with redirect_stdout(sys.stderr) if is_json else nullcontext():
        before = await find_present_replicas(admin, plan.moves)
        return await move_all(admin, before, plan.moves, throttle_rate, wait=wait)
