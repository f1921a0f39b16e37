"""`dlog topic list`: the topics there are, or the partitions that are short of replicas.

    --under-replicated   not all replicas are in sync
    --under-min-isr      too few are in sync for acks=all
    --unavailable        nobody leads it

As with Kafka's `kafka-topics --describe`; of several any suffices.  Internal topics are looked at too.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import click

from distributedlog.cli.cluster.min_isr import find_min_isr, is_under_min_isr
from distributedlog.cli.cluster.problems import explain_missing
from distributedlog.cli.output import TextTable, columns, output_option, print_json, warn
from distributedlog.cli.session import cluster_options, run
from distributedlog.client.admin.admin import Admin
from distributedlog.client.view import PartitionView, TopicView
from distributedlog.model.ids import ZERO_UUID

PARTITION_COLUMNS = columns("topic<32 partition>9 leader>6 replicas<14 isr<14 why<40")
COLUMNS = columns("topic<32 partitions>10 replicas>8 state<8")


class Wanted(NamedTuple):
    """Which partitions are listed, instead of topics."""

    under_replicated: bool = False
    under_min_isr: bool = False
    unavailable: bool = False


@click.command("list")
@click.option(
    "--internal", "with_internal", is_flag=True, help="Also the topics that the cluster keeps for itself."
)
@click.option("--under-replicated", is_flag=True, help="Only partitions of which replicas are not in sync.")
@click.option("--under-min-isr", is_flag=True, help="Only partitions that refuse acks=all.")
@click.option("--unavailable", is_flag=True, help="Only partitions without a leader.")
@cluster_options
@output_option
def list_topics(
    with_internal: bool,
    under_replicated: bool,
    under_min_isr: bool,
    unavailable: bool,
    bootstrap: str,
    timeout_seconds: float,
    output: str,
) -> int:
    """List the topics there are, with their partitions and replicas; or partitions that are short of them.

    \b
    dlog topic list
    dlog topic list --under-replicated
    dlog topic list --bootstrap kafka.example.com:9092 -o json
    """
    wanted = Wanted(under_replicated, under_min_isr, unavailable)

    async def work(admin: Admin) -> None:
        if any(wanted):
            await _list_partitions(admin, wanted, output)
            return
        topics = await admin.list_topics(with_internal=with_internal)
        if not topics and output == "table":
            warn("there are no topics" if with_internal else "there are no topics but the cluster's own")
        table = TextTable(COLUMNS)
        for topic in topics:
            if output == "json":
                print_json(topic_fields(topic))
            else:
                table.row(topic.name, len(topic.partitions), topic.replication_factor, state_of(topic))

    return run(bootstrap, timeout_seconds, work)


async def _list_partitions(admin: Admin, wanted: Wanted, output: str) -> None:
    topics = await admin.list_topics(with_internal=True)
    live = (await admin.describe_cluster()).brokers.keys()
    min_isr = await find_min_isr(admin, topics) if wanted.under_min_isr else {}
    found = list(find_partitions(topics, min_isr, wanted))
    if not found and output == "table":
        warn("there are no such partitions")
    table = TextTable(PARTITION_COLUMNS)
    for topic, partition in found:
        why = explain_missing(partition, live)
        if output == "json":
            print_json(partition_fields(topic, partition) | {"why": why})
        else:
            leader = str(partition.leader_id) if partition.has_leader else "none"
            lists = (",".join(map(str, each)) or "none" for each in (partition.replicas, partition.isr))
            table.row(topic.name, partition.index, leader, *lists, why)


def find_partitions(
    topics: Iterable[TopicView], min_isr: Mapping[str, int], wanted: Wanted
) -> Iterator[tuple[TopicView, PartitionView]]:
    for topic in topics:
        for each in topic.partitions:
            if (
                (wanted.under_replicated and each.is_under_replicated)
                or (wanted.under_min_isr and is_under_min_isr(each, min_isr.get(topic.name, 1)))
                or (wanted.unavailable and not each.has_leader)
            ):
                yield topic, each


def partition_fields(topic: TopicView, partition: PartitionView) -> dict[str, object]:
    return {
        "type": "partition",
        "topic": topic.name,
        "partition": partition.index,
        "leader": partition.leader_id if partition.has_leader else None,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
    }


def topic_fields(topic: TopicView) -> dict[str, object]:
    return {
        "type": "topic",
        "topic": topic.name,
        "topic_id": None if topic.topic_id == ZERO_UUID else str(topic.topic_id),
        "is_internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "partitions_without_leader": _without_leader(topic),
        "partitions_under_replicated": _under_replicated(topic),
    }


def state_of(topic: TopicView) -> str:
    found = []
    if _without_leader(topic):
        found.append(f"{_without_leader(topic)} without leader")
    if _under_replicated(topic):
        found.append(f"{_under_replicated(topic)} under-replicated")
    return ", ".join(found) or "healthy"


def _without_leader(topic: TopicView) -> int:
    return sum(not each.has_leader for each in topic.partitions)


def _under_replicated(topic: TopicView) -> int:
    return sum(each.is_under_replicated for each in topic.partitions)
