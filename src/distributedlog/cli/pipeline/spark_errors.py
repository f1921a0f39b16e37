"""What commands that start Spark say when there is no cluster, or no Spark: one line, exit code 3."""

from collections.abc import Iterator
from contextlib import contextmanager

import click

from distributedlog.cli.session import NoClusterError


class NoSparkError(click.ClickException):
    exit_code = 3


@contextmanager
def explained() -> Iterator[None]:
    from distributedlog.model.errors import BrokerUnreachableError, SparkNotReadyError

    try:
        yield
    except BrokerUnreachableError as error:
        raise NoClusterError(
            f"{error}; start one with `dlog dev`, or name another with --bootstrap"
        ) from error
    except SparkNotReadyError as error:
        raise NoSparkError(str(error)) from error
