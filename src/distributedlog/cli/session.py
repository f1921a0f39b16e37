"""What the commands on a cluster share: how it is named, one event loop for the command, and plain errors."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import click

from distributedlog.cli.exit_codes import NotFoundError
from distributedlog.client.addresses import parse_bootstrap
from distributedlog.client.admin.admin import Admin
from distributedlog.client.metadata import Cluster
from distributedlog.client.options import ClientOptions
from distributedlog.model.errors import (
    BrokerUnreachableError,
    ConnectionLostError,
    RequestTimedOutError,
    UnknownTopicError,
)

Command = TypeVar("Command", bound=Callable[..., Any])

BOOTSTRAP_VARIABLE: Final = "DLOG_BOOTSTRAP"
BOOTSTRAP_DEFAULT: Final = "127.0.0.1:9092"
TIMEOUT_SECONDS_DEFAULT: Final = 30.0
TIMEOUT_SECONDS_MAX: Final = 86_400.0


class NoClusterError(click.ClickException):
    """Nobody there to ask, or no answer."""

    exit_code = 3


def bootstrap_option(note: str, *, default: str | None = BOOTSTRAP_DEFAULT) -> Callable[[Command], Command]:
    """Makes --bootstrap; `note` ends its help."""
    return click.option(
        "-b",
        "--bootstrap",
        envvar=BOOTSTRAP_VARIABLE,
        default=default,
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT,…",
        help=f"Some of the cluster's brokers{note}",
    )


def cluster_options(command: Command) -> Command:
    """Adds --bootstrap and --timeout."""
    command = click.option(
        "--timeout",
        "timeout_seconds",
        type=click.FloatRange(0.001, TIMEOUT_SECONDS_MAX),
        default=TIMEOUT_SECONDS_DEFAULT,
        show_default=True,
        metavar="SECONDS",
        help="How long a cluster that was reached may take to answer.",
    )(command)
    return bootstrap_option(".")(command)


def run(
    bootstrap: str, timeout_seconds: float, work: Callable[[Admin], Coroutine[Any, Any, int | None]]
) -> int:
    """Runs a command's work on an event loop of its own; its exit code."""
    timeout_ms = max(1, int(timeout_seconds * 1000))
    options = ClientOptions(
        connect_timeout_ms=min(timeout_ms, ClientOptions().connect_timeout_ms),
        request_timeout_ms=timeout_ms,
        call_timeout_ms=timeout_ms,
    )
    addresses = parse_bootstrap(bootstrap)

    async def session() -> int:
        async with Cluster(addresses, options) as cluster:
            return await work(Admin(cluster)) or 0

    try:
        return asyncio.run(session())
    except BrokerUnreachableError as error:
        raise NoClusterError(
            f"no broker answers: {error}; start one with 'dlog dev', or name yours with --bootstrap HOST:PORT"
        ) from error
    except (ConnectionLostError, RequestTimedOutError) as error:
        raise NoClusterError(f"{error}; what was asked may or may not have been done") from error
    except UnknownTopicError as error:
        raise NotFoundError(f"{error}; 'dlog topic list' shows those there are") from error
