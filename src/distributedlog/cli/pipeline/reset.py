"""`dlog pipeline reset`: the tables and how far the flows have come, gone together."""

import click

from distributedlog.cli.confirming import check_can_ask, confirm
from distributedlog.cli.output import print_line
from distributedlog.cli.pipeline.places import project_option


@click.command()
@project_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask whether it is meant.")
def reset(where: str, yes: bool) -> int:
    """Remove the pipeline's tables, its checkpoints and its history: the next run begins anew.

    Topics stay as they are.  What the next run sends to topics it sends a second time.

    \b
    dlog pipeline reset
    dlog pipeline reset -p shop --yes
    """
    from distributedlog.pipelines.project import find_project, reset_project

    project = find_project(where)
    if not yes:
        check_can_ask("tables and checkpoints are gone for good")
        confirm(f"Remove all tables and checkpoints of {project.name}?")
    for path in reset_project(project):
        print_line(path)
    return 0
