"""Reading a topic from one place to another: what export, replay and analyze have in common.

Both ends are offsets that are fixed when the reading begins: so it ends, also under a writer that goes on.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import click

from distributedlog.cli.exit_codes import NotFoundError
from distributedlog.cli.records.offset_specs import OffsetSpecType
from distributedlog.cli.records.options import partitions_option
from distributedlog.client.admin.admin import Admin
from distributedlog.client.consumer import Consumer
from distributedlog.client.fetcher import FetchOptions
from distributedlog.client.offset_specs import BEGINNING, END, Isolation, OffsetSpec
from distributedlog.client.offsets import resolve
from distributedlog.model.ids import TopicPartition
from distributedlog.records.record import Record

Command = TypeVar("Command", bound=Callable[..., Any])

POLL_MS: Final = 1000
ISOLATIONS: Final = {"uncommitted": Isolation.READ_UNCOMMITTED, "committed": Isolation.READ_COMMITTED}


def range_options(command: Command) -> Command:
    """Adds --from, --to, --partition and --isolation."""
    command = click.option(
        "--isolation",
        type=click.Choice(list(ISOLATIONS)),
        default="committed",
        show_default=True,
        help="committed: leave out what a transaction has taken back, or may yet.",
    )(command)
    command = partitions_option(command)
    command = click.option(
        "--to",
        "end",
        type=OffsetSpecType(),
        default="end",
        show_default=True,
        metavar="PLACE",
        help="Where to stop, short of it; as for --from.",
    )(command)
    return click.option(
        "--from",
        "start",
        type=OffsetSpecType(),
        default="beginning",
        show_default=True,
        metavar="PLACE",
        help="Where to begin: beginning, end, an offset, -10 (the last ten of each partition), -10m (ten "
        "minutes ago), 2026-01-31T12:00, @MILLISECONDS.",
    )(command)


class OffsetSpan(NamedTuple):
    """The offsets from `start` on, short of `end`."""

    start: int
    end: int

    @property
    def offsets(self) -> int:
        return max(0, self.end - self.start)


@dataclass(frozen=True, slots=True)
class TopicRange:
    topic: str
    spans: Mapping[TopicPartition, OffsetSpan]
    isolation: Isolation

    @property
    def offset_count(self) -> int:
        """The offsets in the span; at most as many records are in it: compaction leaves gaps, and
        transactions have markers."""
        return sum(span.offsets for span in self.spans.values())


async def topic_partitions(
    admin: Admin, topic: str, chosen: tuple[int, ...] = (), *, allow_creation: bool = False
) -> list[TopicPartition]:
    """All of a topic, or those chosen, which must be there."""
    view = await admin.cluster.topic(topic, allow_creation=allow_creation)
    known = [each.index for each in view.partitions]
    missing = sorted(set(chosen) - set(known))
    if missing:
        raise NotFoundError(f"{topic} has partitions 0 to {max(known)}, not {missing[0]}")
    return [TopicPartition(topic, index) for index in known if not chosen or index in chosen]


async def resolve_range(
    admin: Admin,
    topic: str,
    start: OffsetSpec,
    end: OffsetSpec,
    chosen: tuple[int, ...],
    isolation: Isolation,
) -> TopicRange:
    wanted = await topic_partitions(admin, topic, chosen)
    first = await resolve(admin.cluster, dict.fromkeys(wanted, BEGINNING), isolation)
    last = await resolve(admin.cluster, dict.fromkeys(wanted, END), isolation)
    starts = await resolve(admin.cluster, dict.fromkeys(wanted, start), isolation)
    ends = await resolve(admin.cluster, dict.fromkeys(wanted, end), isolation)
    spans = {each: OffsetSpan(max(starts[each], first[each]), min(ends[each], last[each])) for each in wanted}
    return TopicRange(topic, spans, isolation)


class Portion(NamedTuple):
    """Records of one partition, in their order; and how many offsets further it is, which may be more."""

    partition: TopicPartition
    records: list[Record]
    offsets_passed: int


async def read_range(
    admin: Admin, wanted: TopicRange, options: FetchOptions | None = None
) -> AsyncGenerator[Portion, None]:
    """Everything in the range, each partition in its order, the partitions as they come."""
    spans = {each: span for each, span in wanted.spans.items() if span.offsets}
    if not spans:
        return
    chosen = options or FetchOptions(isolation=wanted.isolation)
    async with Consumer(admin.cluster, chosen) as consumer:
        consumer.seek({each: span.start for each, span in spans.items()})
        reached = {each: span.start for each, span in spans.items()}
        while consumer.positions:
            for fetched in await consumer.poll(POLL_MS):
                end = spans[fetched.partition].end
                records = fetched.records
                if records and records[-1].offset >= end:
                    records = [each for each in records if each.offset < end]
                passed = min(fetched.next_offset, end)
                yield Portion(fetched.partition, records, passed - reached[fetched.partition])
                reached[fetched.partition] = passed
            for partition, position in list(consumer.positions.items()):
                if position >= spans[partition].end:
                    consumer.drop(partition)
