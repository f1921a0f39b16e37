"""`dlog pipeline init NAME`: a project that works at once."""

from typing import TYPE_CHECKING

import click

from distributedlog.cli.output import print_line, warn
from distributedlog.cli.session import bootstrap_option

if TYPE_CHECKING:
    from distributedlog.pipelines.project import Project

CONNECT_TIMEOUT_MS = 2_000


@click.command()
@click.argument("name")
@click.option("--topic", default="orders", show_default=True, metavar="TOPIC", help="The topic it reads.")
@bootstrap_option("; written into the project.")
@click.option("--no-topics", is_flag=True, help="Leave the cluster alone: the first run makes the topics.")
def init(name: str, topic: str, bootstrap: str, no_topics: bool) -> int:
    """Write a new project into the directory NAME: a streaming table from a topic, a cleaned table, a
    windowed one, dead letters for what is no order, and a topic that gets the windows.

    It is an ordinary project of Spark's declarative pipelines; change what you like.  If a broker answers,
    the topics that it names are made, with as many partitions as it says; otherwise the first run makes them.

    \b
    dlog pipeline init shop
    dlog pipeline init clicks --topic web-clicks --bootstrap kafka.example.com:9092
    """
    from distributedlog.client.addresses import parse_bootstrap
    from distributedlog.model.ids import check_topic_name
    from distributedlog.pipelines.project import make_project

    parse_bootstrap(bootstrap)
    check_topic_name(topic)
    project = make_project(".", name, topic=topic, bootstrap=bootstrap)
    print_line(f"{project.directory}")
    if not no_topics:
        _make_topics(project, bootstrap)
    click.echo(
        f"\n  cd {name}\n  dlog topic produce {topic} < sample.jsonl"
        "\n  dlog pipeline run\n  dlog pipeline status",
        err=True,
    )
    return 0


def _make_topics(project: "Project", bootstrap: str) -> None:
    """Creates the topics before anybody produces to them: that would make them too, with the broker's number
    of partitions."""
    from distributedlog.model.errors import DlogError
    from distributedlog.pipelines.checks import make_topics

    try:
        made = make_topics(bootstrap, project.topics(), warn=warn, timeout_ms=CONNECT_TIMEOUT_MS)
    except DlogError as error:
        warn(
            f"no topic was made ({error}): the first run makes them; one that is produced to before that has"
            " the broker's number of partitions"
        )
        return
    for name in made:
        print_line(f"topic {name}")
