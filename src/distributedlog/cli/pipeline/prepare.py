"""`dlog pipeline prepare`: Spark starts sooner from now on."""

import click

from distributedlog.cli.output import print_line
from distributedlog.cli.pipeline.spark_errors import explained


@click.command()
@click.option("--anew", is_flag=True, help="Make it again, if it is there.")
def prepare(anew: bool) -> int:
    """Keep Java's classes loaded in a file, so that Spark starts in a fraction of the time.

    Takes about half a minute, once, and 250 MB in your cache directory.  Sessions use it from then on.

    \b
    dlog pipeline prepare
    """
    from distributedlog.pipelines.archive import make_archive

    with explained():
        path, is_new = make_archive(anew=anew)
    print_line(path)
    if not is_new:
        click.echo("it was there already; --anew makes it again", err=True)
    return 0
