"""`dlog topic alter`: more partitions, other settings, another number of replicas.

Settings are changed first: if they are refused, there are no new partitions either, and no moves.  Replicas
come last, so that new partitions, which are made with as many as the others have, get theirs too.  With
--dry-run the cluster only says whether it would; all are asked then, whatever becomes of the first.
"""

from dataclasses import dataclass
from typing import Final

import click

from distributedlog.cli.cluster.reassign import throttle_option
from distributedlog.cli.output import output_option, print_json, print_line, warn
from distributedlog.cli.session import cluster_options, run
from distributedlog.cli.topic.create import Setting
from distributedlog.cli.topic.replication_factor import CHANGED, NOTHING, change_factor, make_factor_plan
from distributedlog.client.admin.admin import Admin
from distributedlog.client.admin.configs import ConfigEntry, edits, of_topic
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import check_topic_name
from distributedlog.model.suggestions import did_you_mean

FACTOR_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one setting, or of the number of partitions."""

    name: str
    before: str | None
    after: str | None
    """None: by default again."""


@click.command()
@click.argument("topic")
@click.option(
    "-p", "--partitions", type=click.IntRange(1), metavar="N", help="How many it shall have in all."
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, FACTOR_MAX),
    metavar="N",
    help="How many replicas each partition shall have; they are moved to where there is room.",
)
@throttle_option
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until replicas have arrived.")
@click.option(
    "--set",
    "to_set",
    type=Setting(),
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting, by Kafka's name; may be repeated.",
)
@click.option(
    "--unset", "to_unset", multiple=True, metavar="KEY", help="Back to the default; may be repeated."
)
@click.option("--dry-run", is_flag=True, help="Only say what would change, and whether it could.")
@cluster_options
@output_option
def alter(
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    throttle_rate: int | None,
    wait: bool,
    to_set: tuple[tuple[str, str], ...],
    to_unset: tuple[str, ...],
    dry_run: bool,
    bootstrap: str,
    timeout_seconds: float,
    output: str,
) -> int:
    """Change settings of a topic, or give it more partitions, or other numbers of replicas.  Partitions
    cannot be taken away.  Replicas are added on other hosts and racks where there are any; it goes on if the
    command is ended, and `dlog cluster reassign` shows it.

    \b
    dlog topic alter orders --set retention.ms=3600000 --unset cleanup.policy
    dlog topic alter orders --partitions 12 --dry-run
    dlog topic alter orders --replication-factor 3 --throttle 10000000
    """
    check_topic_name(topic)
    wanted = dict(to_set)
    if both := sorted(wanted.keys() & set(to_unset)):
        raise click.UsageError(f"{both[0]} is both set and unset: take one")
    if throttle_rate is not None and replication_factor is None:
        raise click.UsageError("--throttle is of moves: say --replication-factor with it")
    if partitions is None and replication_factor is None and not wanted and not to_unset:
        raise click.UsageError("nothing to change: say --partitions, --replication-factor, --set or --unset")

    async def work(admin: Admin) -> int:
        count = len((await admin.describe_topics([topic]))[0].partitions)
        changes = []
        failures: list[DlogError] = []
        if wanted or to_unset:
            configs = await admin.topic_configs(topic) or ()
            _check_known({each.name for each in configs}, to_unset)
            changes += _setting_changes(configs, wanted, to_unset)
            outcome = await admin.alter_configs(
                {of_topic(topic): edits(wanted, to_unset)}, validate_only=dry_run
            )
            failures += [error for error in outcome.values() if error is not None]
        if partitions is not None and partitions != count and (dry_run or not failures):
            changes.append(Change("partitions", str(count), str(partitions)))
            made = await admin.create_partitions({topic: partitions}, validate_only=dry_run)
            failures += [error for error in made.values() if error is not None]
        if failures:
            raise failures[0]
        plan = NOTHING
        if replication_factor is not None:
            plan = await make_factor_plan(admin, topic, replication_factor)
        replicas = [Change(CHANGED, plan.spell_before(), str(replication_factor))] if plan.moves else []
        if dry_run:
            changes += replicas
        if changes or not replicas:
            _show(topic, changes, output, dry_run=dry_run)
        if partitions is not None and partitions > count and not dry_run:
            warn("keys may go to other partitions from now on: what was written before stays where it is")
        if not replicas or dry_run:
            return 0
        code = await change_factor(admin, plan, throttle_rate, wait=wait, is_json=output == "json")
        if code == 0 and wait:
            _show(topic, replicas, output, dry_run=False)
        return code

    return run(bootstrap, timeout_seconds, work)


def _check_known(known: set[str], to_unset: tuple[str, ...]) -> None:
    """Raises for what is unset and was never there: that would go unnoticed, as a cluster refuses only to set
    it."""
    unknown = [name for name in to_unset if known and name not in known]
    if unknown:
        meant = did_you_mean(unknown[0], known, f"known are {', '.join(sorted(known))}")
        raise click.UsageError(f"there is no setting {unknown[0]} of topics; {meant}")


def _setting_changes(
    configs: tuple[ConfigEntry, ...], to_set: dict[str, str], to_unset: tuple[str, ...]
) -> list[Change]:
    """Returns what differs from what the topic has of its own."""
    own = {each.name: each.value for each in configs if each.is_set_on_topic}
    wanted: dict[str, str | None] = {**to_set, **dict.fromkeys(to_unset)}
    return [Change(name, own.get(name), value) for name, value in wanted.items() if own.get(name) != value]


def _show(topic: str, changes: list[Change], output: str, *, dry_run: bool) -> None:
    if output == "json":
        for each in changes:
            print_json(
                {
                    "type": "altered",
                    "topic": topic,
                    "name": each.name,
                    "before": each.before,
                    "after": each.after,
                    "done": not dry_run,
                }
            )
        return
    if not changes:
        print_line(f"{topic} is so already")
    for each in changes:
        verb = "would become" if dry_run else "became"
        before = "the default" if each.before is None else each.before
        after = "the default" if each.after is None else each.after
        print_line(f"{topic}  {each.name}: {before} {verb} {after}")
