"""`dlog pipeline init NAME`: a project that works at once."""

import click

from distributedlog.cli.output import print_line
from distributedlog.cli.topic.session import BOOTSTRAP_DEFAULT, BOOTSTRAP_VARIABLE


@click.command()
@click.argument("name")
@click.option("--topic", default="orders", show_default=True, metavar="TOPIC", help="The topic it reads.")
@click.option(
    "-b",
    "--bootstrap",
    envvar=BOOTSTRAP_VARIABLE,
    default=BOOTSTRAP_DEFAULT,
    show_default=True,
    show_envvar=True,
    metavar="HOST:PORT,…",
    help="Some of the cluster's brokers; written into the project.",
)
def init(name: str, topic: str, bootstrap: str) -> int:
    """Write a new project into the directory NAME: a streaming table from a topic, a cleaned table, a
    windowed one, dead letters for what is no order, and a topic that gets the windows.

    It is an ordinary project of Spark's declarative pipelines; change what you like.

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
    click.echo(
        f"\n  cd {name}\n  dlog topic produce {topic} < sample.jsonl"
        "\n  dlog pipeline run\n  dlog pipeline status",
        err=True,
    )
    return 0
