"""`dlog topic list`."""

import click

from distributedlog.cli.output import TextTable, columns, output_option, print_json, warn
from distributedlog.cli.session import cluster_options, run
from distributedlog.client.admin.admin import Admin
from distributedlog.client.view import TopicView
from distributedlog.model.ids import ZERO_UUID

COLUMNS = columns("topic<32 partitions>10 replicas>8 state<8")


@click.command("list")
@click.option(
    "--internal", "with_internal", is_flag=True, help="Also the topics that the cluster keeps for itself."
)
@cluster_options
@output_option
def list_topics(with_internal: bool, bootstrap: str, timeout_seconds: float, output: str) -> int:
    """List the topics there are, with their partitions and replicas.

    \b
    dlog topic list
    dlog topic list --bootstrap kafka.example.com:9092 -o json
    """

    async def work(admin: Admin) -> None:
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
