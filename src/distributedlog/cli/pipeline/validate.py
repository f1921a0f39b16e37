"""`dlog pipeline validate`: what would run, and what is wrong with it, without running it.

| exit code | meaning                                                                     |
|-----------|-----------------------------------------------------------------------------|
| 0         | a run could begin                                                           |
| 1         | something is wrong: each problem is shown, with its file and line         |
| 3         | no cluster, no Java, Spark did not start                                    |
"""

from typing import TYPE_CHECKING

import click

from distributedlog.cli.output import TextTable, columns, output_option, print_json, print_text, warn
from distributedlog.cli.pipeline.places import project_bootstrap_option, project_option
from distributedlog.cli.pipeline.spark_errors import explained

if TYPE_CHECKING:
    from distributedlog.pipelines.graph import FlowNode
    from distributedlog.pipelines.runner import Validation

HEADING = "flow<24 reads<32 writes<24 defined-in<40"


@click.command()
@project_option
@project_bootstrap_option
@click.option("--master", metavar="URL", help="Where Spark runs.  [default: local[*], in this process]")
@output_option
def validate(where: str, bootstrap: str | None, master: str | None, output: str) -> int:
    """Say what the pipeline would run: each flow, what it reads and writes, where it is defined; and what is
    wrong: definitions that do not fit together, columns that changed their type, topics that are not there.

    Nothing is run, read or written, and no topic is made.  It works while the pipeline runs; what its tables
    hold is then not looked at.

    \b
    dlog pipeline validate
    dlog pipeline validate -p shop -o json
    """
    from distributedlog.pipelines.project import find_project
    from distributedlog.pipelines.runner import Runner

    project = find_project(where)
    with explained(), Runner(project, master=master, bootstrap=bootstrap, warn=warn, is_dry=True) as runner:
        found = runner.validate()
    if output == "json":
        _show_json(found)
    else:
        _show_table(found)
    return 1 if found.problems else 0


def _reads(flow: "FlowNode", found: "Validation") -> list[str]:
    from distributedlog.pipelines.graph import short

    topics = [
        f"topic {name}"
        for source in found.sources
        if source.flow in (flow.name, short(flow.name))
        for name in (source.options.subscription.names or (source.options.subscription.label,))
    ]
    return [*topics, *map(short, flow.inputs)]


def _writes(flow: "FlowNode", found: "Validation") -> str:
    from distributedlog.pipelines.graph import short

    topic = next((sink.topic for sink in found.sinks if sink.name == flow.target), None)
    return short(flow.target) if topic is None else f"topic {topic}"


def _show_table(found: "Validation") -> None:
    from distributedlog.pipelines.graph import short

    table = TextTable(columns(HEADING))
    for flow in found.graph.flows if found.graph is not None else ():
        reads = ", ".join(_reads(flow, found)) or None
        table.row(short(flow.name), reads, _writes(flow, found), found.places.get(flow.name))
    for problem in found.problems:
        print_text(f"\n{problem}")
    print_text("\nvalid" if not found.problems else f"\n{len(found.problems)} thing(s) wrong")


def _show_json(found: "Validation") -> None:
    for flow in found.graph.flows if found.graph is not None else ():
        place = found.places.get(flow.name)
        print_json(
            {
                "type": "flow",
                "name": flow.name,
                "reads": _reads(flow, found),
                "writes": _writes(flow, found),
                "file": place and place.file,
                "line": place and place.line,
                "columns": dict(flow.columns),
            }
        )
    for problem in found.problems:
        print_json({"type": "problem", "message": problem})
    print_json({"type": "validation", "is_valid": not found.problems, "problems": len(found.problems)})
