"""`dlog cluster adopt`: the topics of a stopped Apache Kafka broker become those of a node.

Without --to and --in-place it only says what it would do.  The judgement is `adoption`'s; here it is
rendered.  Exit code 1 if something cannot be taken; then nothing is done, unless --leave-behind.
"""

import os

import click

from distributedlog.adoption.adopting import Tools, adopt_in_place, adopt_into
from distributedlog.adoption.survey import NODE_ID_MAX, Remark, RemarkKind, Survey, survey
from distributedlog.cli.exit_codes import EXISTING_FILE
from distributedlog.cli.locations import is_locked
from distributedlog.cli.output import (
    TextTable,
    columns,
    output_option,
    print_json,
    print_line,
    show_size,
)
from distributedlog.cli.progress import progress_bar
from distributedlog.model.errors import DirectoryLockedError
from distributedlog.ports.clock import SystemClock
from distributedlog.ports.disk import SystemDisk
from distributedlog.ports.randomness import SystemRandomness
from distributedlog.storage.checkpoints import decode_properties
from distributedlog.storage.files import Files

EXIT_REFUSED = 1
COLUMNS = columns("topic<32 partitions>10 size>10 settings<8")


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="DIR…")
@click.option(
    "--to",
    "target",
    type=click.Path(),
    metavar="NEWDIR",
    help="Copy into this new directory, and make it a node's.",
)
@click.option("--in-place", is_flag=True, help="Make Kafka's own directory a node's; nothing is copied.")
@click.option(
    "--link",
    "with_links",
    is_flag=True,
    help="With --to: log files that are full become hard links to Kafka's instead of copies.",
)
@click.option(
    "-t", "--topic", "topics", multiple=True, metavar="NAME", help="Only this topic; may be repeated."
)
@click.option("--leave-behind", is_flag=True, help="Take what can be taken, although not all can be.")
@click.option(
    "--properties",
    "properties_path",
    type=EXISTING_FILE,
    metavar="FILE",
    help="Kafka's server.properties, for the settings that are only there.",
)
@click.option(
    "--node-id",
    type=click.IntRange(0, NODE_ID_MAX),
    metavar="N",
    help="The id of the new node; without it, Kafka's.",
)
@output_option
def adopt(
    paths: tuple[str, ...],
    target: str | None,
    in_place: bool,
    with_links: bool,
    topics: tuple[str, ...],
    leave_behind: bool,
    properties_path: str | None,
    node_id: int | None,
    output: str,
) -> int:
    """Take over the topics of a stopped Kafka broker (KRaft): DIR… are its log directories.

    Topics keep their names, ids, settings and records, groups their offsets.  Directories of several brokers
    of one cluster may be named together: the best replica of each partition is taken, to one node.  Without
    --to and --in-place it only says what could be taken, and changes nothing.

    \b
    dlog cluster adopt /var/lib/kafka/data
    dlog cluster adopt /kafka/disk1 /kafka/disk2 --to /var/lib/dlog --properties server.properties
    dlog cluster adopt /var/lib/kafka/data --in-place
    """
    if target is not None and in_place:
        raise click.UsageError("--to and --in-place exclude each other: take one")
    if with_links and target is None:
        raise click.UsageError("--link is for --to: in place nothing is copied anyway")
    clean = list(dict.fromkeys(os.path.abspath(path) for path in paths))
    for path in clean:
        if os.path.isdir(path) and is_locked(path):
            raise DirectoryLockedError(f"{path} is in use: stop Kafka first")
    tools = Tools(Files(SystemDisk()), SystemClock(), SystemRandomness())
    properties = None if properties_path is None else _properties(properties_path)
    found = survey(tools.files, clean, node_id=node_id, topics=topics, properties=properties)
    report = Report(found, as_json=output == "json")
    is_refused = bool(found.refusals) and not leave_behind
    is_meant = target is not None or in_place
    report.show()
    if is_refused or not is_meant:
        report.finish(_verdict(found, leave_behind=leave_behind, is_meant=is_meant), None)
        return EXIT_REFUSED if found.refusals else 0
    directory = clean[0] if target is None else os.path.abspath(target)
    with progress_bar("adopting", found.size_bytes) as on_progress:
        if target is None:
            adopt_in_place(tools, found)
        else:
            adopt_into(tools, found, directory, link=_link if with_links else None, on_progress=on_progress)
    report.finish(
        f"done; start it with: dlog server start --set node.id={found.node_id} --set log.dirs={directory}",
        directory,
    )
    return 0


def _properties(path: str) -> dict[str, str]:
    with open(path, "rb") as file:
        return decode_properties(file.read(), path)


def _link(source: str, target: str) -> bool:
    try:
        os.link(source, target)
    except OSError:
        return False  # another file system, or one without links: it is copied
    return True


def _verdict(found: Survey, *, leave_behind: bool, is_meant: bool) -> str:
    if not found.refusals:
        return "all of it can be taken: say --to NEWDIR, or --in-place"
    if leave_behind:
        return "the rest can be taken: say --to NEWDIR, or --in-place"
    done = "nothing was done; " if is_meant else ""
    return f"{done}not all of it can be taken: name what is missing, or take the rest with --leave-behind"


class Report:
    def __init__(self, found: Survey, *, as_json: bool) -> None:
        self._found = found
        self._as_json = as_json

    def show(self) -> None:
        if self._as_json:
            self._show_json()
            return
        table = TextTable(COLUMNS)
        for topic in self._found.topics:
            settings = ",".join(f"{name}={value}" for name, value in topic.settings.items())
            size = sum(each.size_bytes for each in topic.partitions)
            table.row(topic.name, len(topic.partitions), show_size(size), settings or None)
        for remark in self._found.remarks:
            print_line(f"{remark.kind.value:<8}  {remark.subject}: {remark.message}")

    def _show_json(self) -> None:
        for topic in self._found.topics:
            print_json(
                {
                    "type": "topic",
                    "topic": topic.name,
                    "topic_id": str(topic.topic_id),
                    "partitions": len(topic.partitions),
                    "size_bytes": sum(each.size_bytes for each in topic.partitions),
                    "settings": dict(topic.settings),
                }
            )
        for remark in self._found.remarks:
            print_json(_remark_fields(remark))

    def finish(self, verdict: str, directory: str | None) -> None:
        found = self._found
        partitions = sum(len(topic.partitions) for topic in found.topics)
        if self._as_json:
            print_json(
                {
                    "type": "adoption",
                    "cluster_id": found.cluster_id,
                    "node_id": found.node_id,
                    "topics": len(found.topics),
                    "partitions": partitions,
                    "size_bytes": found.size_bytes,
                    "refused": len(found.refusals),
                    "was_clean": found.is_clean,
                    "settings": found.broker_settings,
                    "directory": directory,
                }
            )
            return
        print_line(
            f"{len(found.topics)} topics, {partitions} partitions, {show_size(found.size_bytes)}, of node "
            f"{found.node_id} of the cluster {found.cluster_id}"
        )
        print_line(verdict)


def _remark_fields(remark: Remark) -> dict[str, object]:
    kinds = {RemarkKind.REFUSED: "refused", RemarkKind.LEFT: "left", RemarkKind.NOTE: "note"}
    return {"type": kinds[remark.kind], "subject": remark.subject, "message": remark.message}
