"""`dlog topic describe`.  What a broker does not serve (settings, sizes) is left out, not an error."""

from collections.abc import Mapping
from dataclasses import dataclass

import click

from distributedlog.cli.output import (
    TextTable,
    columns,
    output_option,
    print_json,
    print_line,
    show_size,
)
from distributedlog.cli.session import cluster_options, run
from distributedlog.cli.topic.list_ import state_of, topic_fields
from distributedlog.client.admin.admin import Admin, ConfigEntry, OffsetRange
from distributedlog.client.view import PartitionView, TopicView
from distributedlog.model.ids import ZERO_UUID, TopicPartition, check_topic_name

COLUMNS = columns("partition>9 leader>6 epoch>5 replicas<10 in-sync<10 start>10 end>10 size>10")
SOURCES = {
    1: "topic",
    2: "broker",
    3: "brokers",
    4: "file",
    5: "default",
}


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """What the cluster says of one topic."""

    topic: TopicView
    ranges: Mapping[TopicPartition, OffsetRange]
    sizes: Mapping[TopicPartition, int] | None
    configs: tuple[ConfigEntry, ...] | None


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC…")
@click.option("--all", "with_defaults", is_flag=True, help="Also the settings that the topic has by default.")
@cluster_options
@output_option
def describe(
    names: tuple[str, ...], with_defaults: bool, bootstrap: str, timeout_seconds: float, output: str
) -> int:
    """Partitions with their leaders, replicas, offsets and sizes; and the settings of the topic.

    \b
    dlog topic describe orders
    dlog topic describe orders --all -o json
    """
    wanted = [check_topic_name(name) for name in dict.fromkeys(names)]

    async def work(admin: Admin) -> None:
        topics = await admin.describe_topics(wanted)
        ranges = await admin.offset_ranges(topics)
        sizes = await admin.log_sizes(topics)
        for topic in topics:
            found = TopicDescription(topic, ranges, sizes, await admin.topic_configs(topic.name))
            if output == "json":
                _print_json(found)
            else:
                _print_table(found, with_defaults=with_defaults)

    return run(bootstrap, timeout_seconds, work)


def _print_json(found: TopicDescription) -> None:
    configs = found.configs
    settings = None
    if configs is not None:
        settings = {
            each.name: {"value": each.value, "source": SOURCES.get(each.source, "unknown")}
            for each in configs
        }
    print_json({**topic_fields(found.topic), "settings": settings})
    for partition in found.topic.partitions:
        place = TopicPartition(found.topic.name, partition.index)
        offsets = found.ranges.get(place)
        print_json(
            {
                "type": "partition",
                "topic": found.topic.name,
                "partition": partition.index,
                "leader": partition.leader_id if partition.has_leader else None,
                "leader_epoch": partition.leader_epoch,
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
                "offline": list(partition.offline),
                "start_offset": None if offsets is None else offsets.start,
                "end_offset": None if offsets is None else offsets.end,
                "size_bytes": None if found.sizes is None else found.sizes.get(place),
            }
        )


def _print_table(found: TopicDescription, *, with_defaults: bool) -> None:
    topic = found.topic
    topic_id = "" if topic.topic_id == ZERO_UUID else f"  id {topic.topic_id}"
    print_line(f"{topic.name}  {len(topic.partitions)} partition(s), {state_of(topic)}{topic_id}")
    table = TextTable(COLUMNS, indent=2)
    for partition in topic.partitions:
        table.row(*_cells(found, partition))
    for each in found.configs or ():
        if each.is_set_on_topic or with_defaults:
            value = "(hidden)" if each.is_sensitive else each.value
            print_line(f"  {each.name}={value}{'' if each.is_set_on_topic else '  (default)'}")


def _cells(found: TopicDescription, partition: PartitionView) -> tuple[object, ...]:
    place = TopicPartition(found.topic.name, partition.index)
    offsets = found.ranges.get(place)
    size = None if found.sizes is None else found.sizes.get(place)
    return (
        partition.index,
        partition.leader_id if partition.has_leader else None,
        partition.leader_epoch if partition.leader_epoch >= 0 else None,
        ",".join(map(str, partition.replicas)) or None,
        ",".join(map(str, partition.isr)) or None,
        None if offsets is None else offsets.start,
        None if offsets is None else offsets.end,
        None if size is None else show_size(size),
    )
