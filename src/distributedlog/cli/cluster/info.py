"""`dlog cluster info`: what a cluster is made of.  What its brokers do not serve is left out, no error."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import click

from distributedlog.cli.output import TextTable, columns, output_option, print_json, print_line, show_size
from distributedlog.cli.session import cluster_options, run
from distributedlog.client.admin.admin import Admin
from distributedlog.client.admin.cluster import FeaturesView, QuorumView
from distributedlog.client.admin.log_dirs import LogDirView
from distributedlog.client.view import ClusterView, TopicView
from distributedlog.model.errors import DlogError

COLUMNS = columns("broker>6 address<24 host<16 rack<8 controller<10 leads>6 replicas>8 size>10")


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    view: ClusterView
    topics: tuple[TopicView, ...]
    features: FeaturesView
    quorum: QuorumView | DlogError
    directories: dict[int, tuple[LogDirView, ...] | DlogError]
    fenced: tuple[int, ...] = ()
    """The brokers that are registered and take no part."""
    hosts: Mapping[int, str] = field(default_factory=dict)
    """The machine each living broker runs on, where it is told."""

    @property
    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics)

    def size_of(self, node_id: int) -> int | None:
        """Returns what a broker has on its disks, if it says so."""
        found = self.directories.get(node_id)
        if found is None or isinstance(found, DlogError):
            return None
        return sum(each.size_bytes for each in found)


async def gather_facts(admin: Admin) -> ClusterFacts:
    topics = await admin.list_topics(with_internal=True)
    view = await admin.describe_cluster()
    features = await admin.describe_features()
    quorum = (await asyncio.gather(admin.describe_quorum(), return_exceptions=True))[0]
    if isinstance(quorum, BaseException) and not isinstance(quorum, DlogError):
        raise quorum
    directories = await admin.describe_log_dirs()
    fenced = await admin.list_fenced_brokers()
    hosts = await admin.list_broker_hosts()
    return ClusterFacts(view, topics, features, quorum, directories, fenced, hosts)


@click.command()
@cluster_options
@output_option
def info(bootstrap: str, timeout_seconds: float, output: str) -> int:
    """Brokers, the controllers and who leads them, features, how many topics and how much data.

    \b
    dlog cluster info
    dlog cluster info --bootstrap kafka.example.com:9092 -o json
    """

    async def work(admin: Admin) -> None:
        facts = await gather_facts(admin)
        _print_json(facts) if output == "json" else _print_table(facts)

    return run(bootstrap, timeout_seconds, work)


def _led_by(facts: ClusterFacts, node_id: int) -> int:
    return sum(each.leader_id == node_id for topic in facts.topics for each in topic.partitions)


def _held_by(facts: ClusterFacts, node_id: int) -> int:
    return sum(node_id in each.replicas for topic in facts.topics for each in topic.partitions)


def _role(facts: ClusterFacts, node_id: int) -> str | None:
    if isinstance(facts.quorum, DlogError):
        return "active" if facts.view.controller_id == node_id else None
    if facts.quorum.leader_id == node_id:
        return "active"
    return "voter" if any(each.node_id == node_id for each in facts.quorum.voters) else None


def _print_json(facts: ClusterFacts) -> None:
    quorum = facts.quorum
    print_json(
        {
            "type": "cluster",
            "cluster_id": facts.view.cluster_id,
            "brokers": len(facts.view.brokers),
            "topics": sum(not topic.is_internal for topic in facts.topics),
            "internal_topics": sum(topic.is_internal for topic in facts.topics),
            "partitions": facts.partition_count,
            "controller": facts.view.controller_id,
            "controller_epoch": None if isinstance(quorum, DlogError) else quorum.leader_epoch,
            "metadata_offset": None if isinstance(quorum, DlogError) else quorum.high_watermark,
            "features": dict(facts.features.finalized),
        }
    )
    for node_id, broker in sorted(facts.view.brokers.items()):
        print_json(
            {
                "type": "broker",
                "broker": node_id,
                "address": str(broker.address),
                "host": facts.hosts.get(node_id),
                "rack": broker.rack,
                "controller": _role(facts, node_id),
                "leads": _led_by(facts, node_id),
                "replicas": _held_by(facts, node_id),
                "size_bytes": facts.size_of(node_id),
            }
        )
    if not isinstance(quorum, DlogError):
        for each in (*quorum.voters, *quorum.observers):
            print_json(
                {
                    "type": "voter" if each in quorum.voters else "observer",
                    "node": each.node_id,
                    "log_end_offset": each.log_end_offset,
                    "lag": quorum.lag(each),
                    "last_caught_up_ms": each.last_caught_up_ms,
                }
            )


def _print_table(facts: ClusterFacts) -> None:
    internal = sum(topic.is_internal for topic in facts.topics)
    print_line(f"cluster     {facts.view.cluster_id}")
    print_line(
        f"topics      {len(facts.topics) - internal}, and {internal} internal, with {facts.partition_count} "
        "partitions"
    )
    quorum = facts.quorum
    if not isinstance(quorum, DlogError):
        voters = ", ".join(f"{each.node_id}{_behind(quorum.lag(each))}" for each in quorum.voters)
        print_line(
            f"controller  {quorum.leader_id}, of the voters {voters}; epoch {quorum.leader_epoch}, metadata "
            f"up to {quorum.high_watermark}"
        )
    features = ", ".join(f"{name} {level}" for name, level in sorted(facts.features.finalized.items()))
    print_line(f"features    {features or '-'}")
    table = TextTable(COLUMNS)
    for node_id, broker in sorted(facts.view.brokers.items()):
        size = facts.size_of(node_id)
        table.row(
            node_id,
            broker.address,
            facts.hosts.get(node_id),
            broker.rack,
            _role(facts, node_id),
            _led_by(facts, node_id),
            _held_by(facts, node_id),
            None if size is None else show_size(size),
        )


def _behind(lag: int) -> str:
    return f" ({lag} behind)" if lag else ""
