"""Which replicas go where when one broker is emptied: a plan, made of what the cluster looks like.

Every replica of that broker is replaced by one on another broker, in the same place of the list, so that as
many partitions as before prefer each of the others.  Of the brokers that have no replica of the partition
yet the first is taken by:

    the host that the fewest other replicas are on           hosts and racks as when topics are made
    the rack that the fewest other replicas are in           (`controller.placement`)
    the fewest replicas                                      counted with what the plan has given it
    the fewest preferred leaderships                         if that is what is to be replaced
    the lowest id

No other replica moves, so a plan has as many moves as the broker has replicas: no plan has fewer.
"""

from collections import Counter
from collections.abc import Mapping

from distributedlog.cli.cluster.reassignment_plan import Plan
from distributedlog.controller.placement import Location, choose_replica
from distributedlog.model.errors import InvalidRequestError


def plan_drain(partitions: Plan, locations: Mapping[int, Location], drained: int) -> Plan:
    """Returns the replicas that each partition with a replica on `drained` is to have.

    `locations` are the brokers that live, and where they stand.  Raises InvalidRequestError for a partition
    that has no other broker to go to.
    """
    replicas = Counter(each for held in partitions.values() for each in held)
    leads = Counter(held[0] for held in partitions.values())
    plan: Plan = {}
    for name, held in sorted(partitions.items()):
        if drained not in held:
            continue
        free = [each for each in locations if each != drained and each not in held]
        if not free:
            raise InvalidRequestError(
                f"{name} has its replicas on {', '.join(map(str, held))}, and no other broker lives that "
                f"could take that of broker {drained}: add a broker, or give the topic fewer replicas first"
            )
        at = held.index(drained)
        others = [each for each in held if each != drained]
        load = {each: (replicas[each], leads[each] if at == 0 else 0) for each in free}
        chosen = choose_replica(free, others, locations, load)
        replicas[chosen] += 1
        if at == 0:
            leads[chosen] += 1
        plan[name] = (*held[:at], chosen, *held[at + 1 :])
    return plan
