"""Throttles of moves (KIP-73): set before they begin, removed when they have ended, as Kafka's own tool does.

    of each topic     who sends as a leader: every replica before the move; who fetches: those that are added
    of each broker    the rate, of what it sends and of what it fetches, on every one that takes part

Moves under way are part of it: a topic has one list, and a broker one rate.  What is refused is taken out
again.  When moves have ended, the lists go of those topics that have none left, and the rates when no move is
left at all.
"""

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from distributedlog.cli.cluster.reassignment_plan import Plan
from distributedlog.cli.output import warn
from distributedlog.client.admin.admin import Admin, Reassignment
from distributedlog.client.admin.configs import ConfigEdit, ConfigOf, ConfigSource, edits, of_broker, of_topic
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition

REPLICAS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LIST_CHARACTERS_MAX: Final = 32_000
"""The length of a setting's value; a topic with more than fits is throttled as a whole."""
TOPICS_PER_REQUEST: Final = 500
EVERY_REPLICA: Final = "*"

Changes = Mapping[ConfigOf, tuple[ConfigEdit, ...]]


def add_plan(
    moving: Mapping[TopicPartition, Reassignment], before: Plan, plan: Plan
) -> dict[TopicPartition, Reassignment]:
    """Returns the moves as they will be when the plan is begun; `before` are the replicas that it finds."""
    moves = dict(moving)
    for name, target in plan.items():
        present = before.get(name, ())
        original = tuple(each for each in present if name not in moving or each not in moving[name].adding)
        added = tuple(each for each in target if each not in original)
        removed = tuple(each for each in original if each not in target)
        moves[name] = Reassignment((*target, *removed), added, removed)
    return moves


def plan_throttles(moves: Mapping[TopicPartition, Reassignment], rate: int) -> Changes:
    """Returns the settings that throttle these moves, of topics and of all brokers that take part."""
    senders: dict[str, list[str]] = {}
    fetchers: dict[str, list[str]] = {}
    brokers: set[int] = set()
    for (topic, partition), move in sorted(moves.items()):
        if move.adding:
            sending = [each for each in move.replicas if each not in move.adding]
            senders.setdefault(topic, []).extend(f"{partition}:{each}" for each in sending)
            fetchers.setdefault(topic, []).extend(f"{partition}:{each}" for each in move.adding)
            brokers.update(move.replicas)
    throttled = {
        of_topic(topic): edits(dict(zip(REPLICAS, (_join(sending), _join(fetchers[topic])), strict=True)))
        for topic, sending in senders.items()
    }
    rates = edits(dict.fromkeys(RATES, str(rate)))
    return throttled | {of_broker(each): rates for each in sorted(brokers)}


def _join(replicas: list[str]) -> str:
    text = ",".join(replicas)
    return text if len(text) <= LIST_CHARACTERS_MAX else EVERY_REPLICA


def plan_removal(topics: Iterable[str], brokers: Iterable[int]) -> Changes:
    """Returns the changes after which these are not throttled."""
    lists = {of_topic(topic): edits(to_unset=REPLICAS) for topic in sorted(topics)}
    return lists | {of_broker(each): edits(to_unset=RATES) for each in sorted(brokers)}


def plan_narrowing(
    wide: Mapping[TopicPartition, Reassignment], moves: Mapping[TopicPartition, Reassignment], rate: int
) -> Changes:
    """Returns the changes after which only `moves` are throttled, and not what else is in `wide`."""
    before, after = plan_throttles(wide, rate), plan_throttles(moves, rate)
    ended = before.keys() - after.keys()
    narrowed = {whose: change for whose, change in after.items() if before.get(whose) != change}
    return narrowed | {
        whose: edits(to_unset=REPLICAS if _is_topic(whose) else RATES) for whose in sorted(ended)
    }


# --- with a cluster ----------------------------------------------------------------------------


async def throttle(admin: Admin, moves: Mapping[TopicPartition, Reassignment], rate: int) -> None:
    """Throttles moves; raises if a topic or a living broker cannot be."""
    for error in (await _change(admin, await _reachable(admin, plan_throttles(moves, rate)))).values():
        raise error


async def narrow_throttle(
    admin: Admin,
    wide: Mapping[TopicPartition, Reassignment],
    moves: Mapping[TopicPartition, Reassignment],
    rate: int,
) -> None:
    """Leaves only `moves` throttled of those in `wide`."""
    _warn_of(await _change(admin, await _reachable(admin, plan_narrowing(wide, moves, rate))))


@contextlib.contextmanager
def warning_of_throttle() -> Iterator[None]:
    """Says, if it is left early, that a throttle stays and how it is removed."""
    try:
        yield
    except BaseException:
        warn(
            "moves that have begun go on, and stay throttled: remove the throttle with "
            "`dlog cluster reassign --unthrottle` when they have ended, or --cancel them"
        )
        raise


async def end_throttles(admin: Admin, topics: Collection[str]) -> None:
    """Ends the throttles of these topics, and of all brokers if nothing is moved any more."""
    moving = await admin.list_reassignments()
    ended = set(topics) - {name.topic for name in moving}
    living = await find_living(admin)
    present = {each.name for each in await admin.list_topics(with_internal=True)}
    _warn_of(await _change(admin, plan_removal(ended & present, () if moving else living)))
    if moving and await _has_rate(admin, living):
        warn(f"brokers stay throttled: {len(moving)} other moves are under way")


async def _has_rate(admin: Admin, brokers: Collection[int]) -> bool:
    for each in brokers:
        with contextlib.suppress(DlogError):  # it went meanwhile
            entries = await admin.describe_configs(of_broker(each), RATES)
            if any(entry.source == ConfigSource.BROKER for entry in entries or ()):
                return True
    return False


def _warn_of(failed: Mapping[ConfigOf, DlogError]) -> None:
    for whose, error in failed.items():
        warn(f"{whose} is still throttled: {error}")


async def _reachable(admin: Admin, changes: Changes) -> Changes:
    """Returns those of topics and of living brokers: only a broker itself takes its settings."""
    alive = {of_broker(each) for each in await find_living(admin)}
    return {whose: change for whose, change in changes.items() if whose in alive or _is_topic(whose)}


async def find_living(admin: Admin) -> list[int]:
    fenced = await admin.list_fenced_brokers()
    view = await admin.describe_cluster()
    return [each.node_id for each in view.brokers.values() if each.node_id not in fenced]


async def _change(admin: Admin, changes: Changes) -> dict[ConfigOf, DlogError]:
    """Returns what failed."""
    topics = [whose for whose in changes if _is_topic(whose)]
    parts = [topics[at : at + TOPICS_PER_REQUEST] for at in range(0, len(topics), TOPICS_PER_REQUEST)]
    parts += [[whose] for whose in changes if not _is_topic(whose)]
    failed: dict[ConfigOf, DlogError] = {}
    for part in parts:
        outcomes = await admin.alter_configs({whose: changes[whose] for whose in part})
        failed |= {whose: error for whose, error in outcomes.items() if error is not None}
    return failed


def _is_topic(whose: ConfigOf) -> bool:
    return whose == of_topic(whose.name)
