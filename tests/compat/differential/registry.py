"""Which probes there are.  A module of `probes/` registers its own when it is imported.

    @probe(FetchRequest)
    def offset_out_of_range(of: Conversation, version: int) -> None:
        topic = of.topic()
        of.ask("behind the end", fetch(topic, version, offset=5), version)

A probe runs once for each version that both brokers offer, from `since` to `until`, on each of them.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Final, NamedTuple

from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.schema import VERSION_MAX, Message, VersionRange
from tests.compat.differential import probes as package
from tests.compat.differential.asking import Conversation

Run = Callable[[Conversation, int], None]


class Probe(NamedTuple):
    api: ApiKey
    api_name: str
    name: str
    since: int
    until: int
    run: Run

    @property
    def title(self) -> str:
        return f"{self.api_name}/{self.name.replace('_', ' ')}"

    @property
    def prefix(self) -> str:
        """What the names of its topics and groups begin with."""
        return f"{self.api_name}-{self.name.replace('_', '-')}".lower()

    def versions_within(self, offered: VersionRange) -> range:
        return range(max(self.since, offered[0]), min(self.until, offered[1]) + 1)


PROBES: Final[list[Probe]] = []


def probe(request: type[Message], *, since: int = 0, until: int = VERSION_MAX) -> Callable[[Run], Run]:
    def register(run: Run) -> Run:
        api_name = request.__name__.removesuffix("Request")
        PROBES.append(Probe(ApiKey(request.api_key), api_name, run.__name__, since, until, run))
        return run

    return register


def all_probes() -> Iterator[Probe]:
    for module in iter_modules(package.__path__):
        import_module(f"{package.__name__}.{module.name}")
    titles = [each.title for each in PROBES]
    assert len(set(titles)) == len(titles), "two probes have one name"
    yield from PROBES
