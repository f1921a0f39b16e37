"""`dlog pipeline reset`: the tables and how far the flows have come, gone together."""

import click

from distributedlog.cli.confirmation import confirm, require_terminal
from distributedlog.cli.output import print_line, warn
from distributedlog.cli.pipeline.places import project_option


@click.command()
@project_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask whether it is meant.")
def reset(where: str, yes: bool) -> int:
    """Remove the pipeline's tables, its checkpoints, its history, and the offsets that it has told consumer
    groups: the next run begins anew.

    Topics stay as they are.  What the next run sends to topics it sends a second time.

    \b
    dlog pipeline reset
    dlog pipeline reset -p shop --yes
    """
    from distributedlog.pipelines.groups import forget_offsets
    from distributedlog.pipelines.history import read_history
    from distributedlog.pipelines.project import find_project, reset_project
    from distributedlog.pipelines.status import fold

    project = find_project(where)
    if not yes:
        require_terminal("tables and checkpoints are gone for good")
        confirm(f"Remove all tables and checkpoints of {project.name}?")
    known = fold(read_history(project.history_path))
    for path in reset_project(project):
        print_line(path)
    for removed in forget_offsets(known, warn):
        print_line(removed)
    return 0
