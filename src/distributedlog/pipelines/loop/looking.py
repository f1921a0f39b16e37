"""The project's files and the ends of its topics, as they are now: what a run would find.

**Files** are all those below the project's directory but what runs leave there themselves, and hidden
directories.  They are known by size, times and number, not by what they hold.  Too many to look at each time
are an error, and so count as news.

**Ends** are asked of the cluster with the isolation level of the source that reads them, as it would itself.
"""

import asyncio
import os
from collections.abc import Iterable, Iterator
from typing import Final

from distributedlog.client.addresses import parse_bootstrap
from distributedlog.client.metadata import Cluster
from distributedlog.client.offset_specs import LATEST
from distributedlog.client.options import ClientOptions
from distributedlog.model.errors import PipelineError, UnknownTopicIdError
from distributedlog.pipelines.loop.news import Stamp, TopicEnds, TopicRead
from distributedlog.pipelines.project import WAREHOUSE_KEY, Project, local_directory
from distributedlog.spark.source.topics import discover_once, ends_of

FILES_MAX: Final = 10_000
TIMEOUT_MS: Final = 5_000
_MADE_BY_PYTHON: Final = "__pycache__"


def look_at_files(project: Project) -> dict[str, Stamp]:
    """Returns path → stamp."""
    found: dict[str, Stamp] = {}
    for path in _paths(project):
        try:
            about = os.stat(path)
        except FileNotFoundError:  # gone since, or a link to nowhere
            continue
        found[path] = (about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino, about.st_dev)
        if len(found) > FILES_MAX:
            raise PipelineError(f"{project.directory} has more than {FILES_MAX:,} files")
    return found


def _paths(project: Project) -> Iterator[str]:
    places = (project.storage, project.configuration.get(WAREHOUSE_KEY, project.state_directory))
    made = {os.path.realpath(path) for each in places if (path := local_directory(project, each))}
    for directory, below, names in os.walk(project.directory):
        below[:] = [
            each
            for each in below
            if not each.startswith(".")
            and each != _MADE_BY_PYTHON
            and os.path.realpath(os.path.join(directory, each)) not in made
        ]
        yield from (os.path.join(directory, each) for each in names)


def look_at_ends(reads: Iterable[TopicRead]) -> dict[TopicRead, TopicEnds]:
    """Raises `DlogError` if not all of them can be known."""
    return asyncio.run(_ends_of_all(reads))


async def _ends_of_all(reads: Iterable[TopicRead]) -> dict[TopicRead, TopicEnds]:
    options = ClientOptions(
        connect_timeout_ms=TIMEOUT_MS, request_timeout_ms=TIMEOUT_MS, call_timeout_ms=TIMEOUT_MS
    )
    by_cluster: dict[str, list[TopicRead]] = {}
    for read in reads:
        by_cluster.setdefault(read.bootstrap, []).append(read)
    found = {}
    for bootstrap, wanted in by_cluster.items():
        async with Cluster(parse_bootstrap(bootstrap), options) as cluster:
            for read in wanted:
                found[read] = await _ends(cluster, read)
    return found


async def _ends(cluster: Cluster, read: TopicRead) -> TopicEnds:
    there = await discover_once(cluster, read.subscription)
    without = {each.topic for each in there.partitions} - there.topic_ids.keys()
    if without:
        raise UnknownTopicIdError(f"the cluster tells no id of {', '.join(sorted(without))}")
    return TopicEnds(await ends_of(cluster, there.partitions, LATEST, read.isolation), dict(there.topic_ids))
