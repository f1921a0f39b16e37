"""What can be known to be wrong before a run: nobody answers for a cluster, a topic is not there.

Spark, and the clients in it, would find the same a minute or three later, because they wait for brokers
that may come back.  Before the first run nobody is waited for.  Between runs that follow each other a
broker that is restarted is, for `TIMEOUT_MS`; if it is not there by then the run has failed, and the next
one asks again.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from distributedlog.client.addresses import parse_bootstrap
from distributedlog.client.admin.admin import Admin
from distributedlog.client.admin.topics import NewTopic
from distributedlog.client.metadata import Cluster
from distributedlog.client.options import ClientOptions
from distributedlog.model.errors import DlogError, TopicExistsError, UnknownTopicError
from distributedlog.pipelines.failures import Location
from distributedlog.spark.source.options import ReadOptions
from distributedlog.spark.source.topics import discover

TIMEOUT_MS: Final = 10_000
CONNECT_TIMEOUT_MS: Final = 5_000


def make_topics(
    bootstrap: str,
    wanted: Mapping[str, int],
    read: Iterable[str] = (),
    *,
    warn: Callable[[str], None] = lambda _: None,
    timeout_ms: int = CONNECT_TIMEOUT_MS,
    is_dry: bool = False,
) -> list[str]:
    """Makes those of `wanted` (name → partitions) that are missing, unless `is_dry`; says which they are.
    `read` must be there."""
    return asyncio.run(_make_topics(bootstrap, wanted, read, warn, timeout_ms, is_dry))


async def _make_topics(
    bootstrap: str,
    wanted: Mapping[str, int],
    read: Iterable[str],
    warn: Callable[[str], None],
    timeout_ms: int,
    is_dry: bool,
) -> list[str]:
    admin = Admin.connect(bootstrap, ClientOptions(connect_timeout_ms=timeout_ms))
    try:
        present = {topic.name: len(topic.partitions) for topic in await admin.list_topics()}
        for name in read:
            if name not in present and name not in wanted:
                raise UnknownTopicError(f"there is no topic {name!r} to read; {_advice(name)}")
        for name, count in wanted.items():
            if present.get(name, count) < count:
                warn(
                    f"topic {name} has {present[name]} of the {count} partitions that the project names:"
                    f" dlog topic alter {name} --partitions {count} adds them (dlog.topics)"
                )
        missing = sorted(wanted.keys() - present.keys())
        for name in missing if not is_dry else ():
            with contextlib.suppress(TopicExistsError):
                await admin.create_topic(NewTopic(name, partitions=wanted[name]))
        return missing
    finally:
        await admin.close()


def _advice(name: str) -> str:
    return f"make it (dlog topic create {name}), or name it under dlog.topics"


def check_sources(
    sources: Iterable[tuple[str, ReadOptions]], places: Mapping[str, Location], *, waits: bool
) -> None:
    """Each flow's topics are there, and have leaders; else an error that names the flow.

    `waits`: for a broker that may be on its way back.
    """
    for flow, options in sources:
        try:
            asyncio.run(_check_source(options, waits))
        except DlogError as error:
            error.args = (f"flow {flow}{_where(flow, places)}: {_explained(error, options)}",)
            raise


def _where(flow: str, places: Mapping[str, Location]) -> str:
    found = next((at for name, at in places.items() if name == flow or name.endswith(f".{flow}")), None)
    return "" if found is None else f" ({found})"


def _explained(error: DlogError, options: ReadOptions) -> str:
    if not isinstance(error, UnknownTopicError):
        return str(error)
    missing = next((name for name in options.subscription.names or () if repr(name) in str(error)), None)
    return str(error) if missing is None else f"{error}; {_advice(missing)}"


async def _check_source(options: ReadOptions, waits: bool) -> None:
    client_options = ClientOptions(
        connect_timeout_ms=CONNECT_TIMEOUT_MS,
        request_timeout_ms=TIMEOUT_MS,
        call_timeout_ms=TIMEOUT_MS,
        waits_for_first_contact=waits,
    )
    async with Cluster(parse_bootstrap(options.kafka.bootstrap), client_options) as cluster:
        await discover(cluster, options, must_exist=options.fails_on_data_loss)
