"""`dlog cluster reassign`: moves of partitions to other brokers: begun, watched, cancelled, listed."""

import asyncio
from typing import Final, TextIO

import click

from distributedlog.cli.cluster.reassignment_plan import Plan, parse_plan, spell_plan
from distributedlog.cli.output import TextTable, columns, output_option, print_json, print_line, warn
from distributedlog.cli.progress import count_bar
from distributedlog.cli.session import cluster_options, run
from distributedlog.client.admin.admin import Admin, Reassignment
from distributedlog.model.errors import DlogError, InvalidRequestError
from distributedlog.model.ids import TopicPartition

COLUMNS = columns("topic<40 partition>9 replicas<16 adding<12 removing<12")
LOOK_SECONDS: Final = 0.5
PARTITIONS_PER_REQUEST: Final = 500
PLAN_CHARACTERS_MAX: Final = 64 * 1024 * 1024
EXIT_REFUSED: Final = 1


@click.command()
@click.option(
    "--plan",
    "plan_file",
    type=click.File(encoding="utf-8"),
    metavar="FILE",
    help="Moves, in Kafka's JSON; '-' is stdin.",
)
@click.option("--cancel", is_flag=True, help="Cancel the moves of the plan; without a plan, all.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until all have arrived.")
@cluster_options
@output_option
def reassign(
    plan_file: TextIO | None, cancel: bool, wait: bool, bootstrap: str, timeout_seconds: float, output: str
) -> int:
    """Move partitions to other brokers.  A move adds the new replicas, waits until they are in sync, and then
    removes the others; it goes on if the command is ended.  Without a plan, the moves under way are listed.

    What would bring everything back is printed first.

    \b
    dlog cluster reassign --plan moves.json
    dlog cluster reassign
    dlog cluster reassign --cancel
    """
    plan = None if plan_file is None else _read_plan(plan_file)

    async def work(admin: Admin) -> int:
        if cancel:
            wanted = plan or dict.fromkeys(await admin.list_reassignments())
            return await _alter(admin, dict.fromkeys(wanted), "cancelled")
        if plan is None:
            return _show(await admin.list_reassignments(), output)
        before = await _find_replicas(admin, plan)
        print_line(spell_plan(before))
        code = await _alter(admin, dict(plan), "begun")
        if code == 0 and wait:
            await _watch(admin, plan)
        return code

    return run(bootstrap, timeout_seconds, work)


def _read_plan(plan_file: TextIO) -> Plan:
    text = plan_file.read(PLAN_CHARACTERS_MAX + 1)
    if len(text) > PLAN_CHARACTERS_MAX:
        raise click.UsageError(f"the plan is longer than {PLAN_CHARACTERS_MAX} characters")
    try:
        return parse_plan(text)
    except InvalidRequestError as error:
        raise click.UsageError(str(error)) from error


async def _find_replicas(admin: Admin, plan: Plan) -> Plan:
    topics = await admin.describe_topics(sorted({name.topic for name in plan}))
    known = {
        TopicPartition(topic.name, each.index): tuple(each.replicas)
        for topic in topics
        for each in topic.partitions
    }
    return {name: known[name] for name in plan if name in known}


async def _alter(admin: Admin, targets: dict[TopicPartition, tuple[int, ...] | None], done: str) -> int:
    outcomes: dict[TopicPartition, DlogError | None] = {}
    items = list(targets.items())
    for at in range(0, len(items), PARTITIONS_PER_REQUEST):
        outcomes |= await admin.alter_reassignments(dict(items[at : at + PARTITIONS_PER_REQUEST]))
    refused = {name: error for name, error in outcomes.items() if error is not None}
    for name, error in refused.items():
        warn(f"{name}: {error}")
    print_line(f"{len(outcomes) - len(refused)} moves {done}, {len(refused)} refused")
    return EXIT_REFUSED if refused else 0


async def _watch(admin: Admin, plan: Plan) -> None:
    with count_bar("moving", len(plan)) as advance:
        left = len(plan)
        while left:
            moving = await admin.list_reassignments()
            still = sum(name in moving for name in plan)
            advance(left - still)
            left = still
            if left:
                await asyncio.sleep(LOOK_SECONDS)
    print_line(f"{len(plan)} moves have ended")


def _show(moves: dict[TopicPartition, Reassignment], output: str) -> int:
    if output == "json":
        for name, move in sorted(moves.items()):
            print_json({"topic": name.topic, "partition": name.partition, **move._asdict()})
        return 0
    if not moves:
        warn("nothing is being moved")
        return 0
    table = TextTable(COLUMNS)
    for name, move in sorted(moves.items()):
        table.row(name.topic, name.partition, *(",".join(map(str, each)) for each in move))
    return 0
