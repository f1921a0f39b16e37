"""`dlog topic create`."""

import click

from distributedlog.cli.exit_codes import join_errors
from distributedlog.cli.output import output_option, print_json, print_line
from distributedlog.cli.session import cluster_options, run
from distributedlog.client.admin.admin import AS_CONFIGURED, Admin, CreatedTopic, NewTopic
from distributedlog.model.errors import TopicExistsError
from distributedlog.model.ids import ZERO_UUID, check_topic_name


class Setting(click.ParamType[tuple[str, str]]):
    name = "setting"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, equals, setting = str(value).partition("=")
        if not key.strip() or not equals:
            self.fail(
                f"{value!r} is not a setting: write KEY=VALUE, such as retention.ms=3600000", param, ctx
            )
        return key.strip(), setting.strip()


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC…")
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(1),
    metavar="N",
    help="How many each has; without it, the cluster's num.partitions.",
)
@click.option(
    "-r",
    "--replication-factor",
    type=click.IntRange(1, 32767),
    metavar="N",
    help="Replicas of each partition; without it, the cluster's default.replication.factor.",
)
@click.option(
    "-c",
    "--config",
    "--set",
    "settings",
    type=Setting(),
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of the topic, by Kafka's name (docs/configuration.md); may be repeated.",
)
@click.option("--if-not-exists", is_flag=True, help="A topic that is there already is no error.")
@click.option(
    "--dry-run", "--validate-only", "validate_only", is_flag=True, help="Only say whether it could be made."
)
@cluster_options
@output_option
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    settings: tuple[tuple[str, str], ...],
    if_not_exists: bool,
    validate_only: bool,
    bootstrap: str,
    timeout_seconds: float,
    output: str,
) -> int:
    """Make topics.  Settings have Kafka's names.

    \b
    dlog topic create orders -p 3
    dlog topic create users -p 1 -c cleanup.policy=compact -c min.insync.replicas=2
    dlog topic create orders payments --if-not-exists
    """
    wanted = [
        NewTopic(
            check_topic_name(name),
            partitions or AS_CONFIGURED,
            replication_factor or AS_CONFIGURED,
            dict(settings),
        )
        for name in dict.fromkeys(names)
    ]

    async def work(admin: Admin) -> None:
        outcomes = await admin.create_topics(wanted, validate_only=validate_only)
        failures = []
        for topic in wanted:
            outcome = outcomes.get(topic.name)
            if isinstance(outcome, CreatedTopic):
                _show(outcome, output, "could be created" if validate_only else "created")
            elif isinstance(outcome, TopicExistsError) and if_not_exists:
                _show(CreatedTopic(topic.name), output, "exists already")
            elif outcome is not None:
                failures.append(outcome)
        if failures:
            raise join_errors(failures)

    return run(bootstrap, timeout_seconds, work)


def _show(topic: CreatedTopic, output: str, what: str) -> None:
    if output == "json":
        print_json(
            {
                "type": "created",
                "topic": topic.name,
                "outcome": what,
                "topic_id": None if topic.topic_id == ZERO_UUID else str(topic.topic_id),
                "partitions": _known(topic.partitions),
                "replication_factor": _known(topic.replication_factor),
            }
        )
        return
    details = ""
    if topic.partitions > 0:
        details = f" with {topic.partitions} partition(s), {topic.replication_factor} replica(s) each"
    print_line(f"{topic.name} {what}{details}")


def _known(count: int) -> int | None:
    return None if count == AS_CONFIGURED else count
