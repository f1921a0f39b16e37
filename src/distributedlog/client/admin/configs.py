"""Settings of topics, of brokers, their loggers, groups and the cluster: told and altered.

A broker knows only its own settings and loggers, so it is asked itself; all else is asked of any.  What a
broker does not serve is reported as None where that is said, not as an error: older and smaller ones do not
have it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from distributedlog.client.admin.changes import nothing_was_done
from distributedlog.client.connection import Connection
from distributedlog.client.errors import check_response, error_from
from distributedlog.client.metadata import Cluster
from distributedlog.model.config_ops import ConfigOp
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, InvalidRequestError
from distributedlog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from distributedlog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from distributedlog.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)


class ConfigKind(IntEnum):
    """What has settings, as Kafka numbers it."""

    TOPIC = 2
    BROKER = 4
    """Named by its id; the one without a name is the default of all brokers."""
    BROKER_LOGGER = 8
    """The loggers of the broker with this id, and their levels."""
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a value was set, as Kafka numbers it."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    """Set on this broker, while it ran."""
    CLUSTER = 3
    """Set for all brokers, while they ran."""
    STARTUP = 4
    """Set in the broker's file, its environment or its command line."""
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigOf(NamedTuple):
    """Whose settings are meant."""

    kind: int
    name: str

    def __str__(self) -> str:
        if self.kind == ConfigKind.BROKER:
            return f"broker {self.name}" if self.name else "the cluster"
        if self.kind == ConfigKind.BROKER_LOGGER:
            return f"the loggers of broker {self.name}"
        if self.kind == ConfigKind.GROUP:
            return f"group {self.name!r}"
        return f"topic {self.name!r}" if self.kind == ConfigKind.TOPIC else f"{self.name!r}"


CLUSTER_DEFAULT: Final = ConfigOf(ConfigKind.BROKER, "")


def of_topic(name: str) -> ConfigOf:
    return ConfigOf(ConfigKind.TOPIC, name)


def of_group(name: str) -> ConfigOf:
    return ConfigOf(ConfigKind.GROUP, name)


def of_broker(node_id: int) -> ConfigOf:
    return ConfigOf(ConfigKind.BROKER, str(node_id))


def of_loggers(node_id: int) -> ConfigOf:
    return ConfigOf(ConfigKind.BROKER_LOGGER, str(node_id))


class Synonym(NamedTuple):
    """A place that the value is looked for in, if none before it has one."""

    name: str
    value: str | None
    source: int


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    value: str | None
    source: int
    is_sensitive: bool = False
    is_read_only: bool = False
    documentation: str | None = None
    synonyms: tuple[Synonym, ...] = ()
    """The first that applies first, this entry's own included."""

    @property
    def is_set_on_topic(self) -> bool:
        return self.source == ConfigSource.TOPIC


class ConfigEdit(NamedTuple):
    name: str
    op: ConfigOp
    value: str | None = None


def edits(to_set: Mapping[str, str] | None = None, to_unset: Collection[str] = ()) -> tuple[ConfigEdit, ...]:
    """The usual ones: names that get a value, and names that fall back to their defaults."""
    setting = (ConfigEdit(name, ConfigOp.SET, value) for name, value in (to_set or {}).items())
    return (*setting, *(ConfigEdit(name, ConfigOp.DELETE) for name in to_unset))


async def describe_configs(
    cluster: Cluster,
    whose: ConfigOf,
    names: Collection[str] | None = None,
    *,
    with_documentation: bool = False,
) -> tuple[ConfigEntry, ...] | None:
    """The settings, all or those named, in the order of names; None if the broker does not serve them."""
    resource = DescribeConfigsResource(
        resource_type=whose.kind,
        resource_name=whose.name,
        configuration_keys=None if names is None else sorted(names),
    )
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=True, include_documentation=with_documentation
    )

    async def attempt() -> tuple[ConfigEntry, ...] | None:
        connection = await _connection_for(cluster, whose)
        if not connection.serves(DescribeConfigsRequest):
            return None
        response = await cluster.call(connection, request, DescribeConfigsResponse)
        entries: list[ConfigEntry] = []
        for result in response.results:
            check_response(result.error_code, f"the settings of {whose}", result.error_message)
            entries += map(_entry, result.configs)
        return tuple(sorted(entries, key=lambda each: each.name))

    return await cluster.retrying(attempt)


def _entry(result: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        result.name,
        result.value,
        result.config_source,
        result.is_sensitive,
        result.read_only,
        result.documentation,
        tuple(Synonym(each.name, each.value, each.source) for each in result.synonyms),
    )


def _is_brokers_own(whose: ConfigOf) -> bool:
    """Whether only one broker can tell or change it."""
    return whose.kind in (ConfigKind.BROKER, ConfigKind.BROKER_LOGGER) and whose != CLUSTER_DEFAULT


async def _connection_for(cluster: Cluster, whose: ConfigOf) -> Connection:
    if not _is_brokers_own(whose):
        return await cluster.any_connection()
    if not (whose.name.isascii() and whose.name.isdigit()):
        raise InvalidRequestError(f"{whose.name!r} is no broker id")
    await cluster.brokers()
    return await cluster.connection(int(whose.name))


async def alter_configs(
    cluster: Cluster,
    changes: Mapping[ConfigOf, Sequence[ConfigEdit]],
    *,
    validate_only: bool = False,
) -> dict[ConfigOf, DlogError | None]:
    """Returns what became of each: None if all of its edits were made, or the reason why none was."""
    outcomes: dict[ConfigOf, DlogError | None] = {}
    for asked in _by_whom(changes):
        request = IncrementalAlterConfigsRequest(
            resources=[_alterable(whose, changes[whose]) for whose in asked], validate_only=validate_only
        )
        try:
            response = await _ask_to_alter(cluster, asked[0], request)
        except DlogError as error:
            outcomes.update(dict.fromkeys(asked, error))
            continue
        for result in response.responses:
            whose = ConfigOf(result.resource_type, result.resource_name)
            failure = error_from(result.error_code, f"the settings of {whose}", result.error_message)
            outcomes[whose] = None if result.error_code == ErrorCode.NONE else failure
    return outcomes


def _by_whom(changes: Mapping[ConfigOf, object]) -> list[list[ConfigOf]]:
    """Those that any broker can alter in one request, and one for each broker."""
    anybody = [each for each in changes if not _is_brokers_own(each)]
    themselves = [[each] for each in changes if _is_brokers_own(each)]
    return ([anybody] if anybody else []) + themselves


def _alterable(whose: ConfigOf, wanted: Sequence[ConfigEdit]) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=whose.kind,
        resource_name=whose.name,
        configs=[
            AlterableConfig(name=edit.name, config_operation=edit.op, value=edit.value) for edit in wanted
        ],
    )


async def _ask_to_alter(
    cluster: Cluster, whose: ConfigOf, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    async def attempt() -> IncrementalAlterConfigsResponse:
        connection = await _connection_for(cluster, whose)
        response = await cluster.call(connection, request, IncrementalAlterConfigsResponse)
        if any(each.error_code == ErrorCode.NOT_CONTROLLER for each in response.responses):
            raise error_from(ErrorCode.NOT_CONTROLLER, "the broker that was asked")
        return response

    return await cluster.retrying(attempt, is_worth_waiting=nothing_was_done)


async def list_config_resources(cluster: Cluster, kinds: Collection[int] = ()) -> tuple[ConfigOf, ...]:
    """Returns what has settings, of these kinds, or of all."""
    request = ListConfigResourcesRequest(resource_types=sorted(kinds))

    async def attempt() -> tuple[ConfigOf, ...]:
        response = await cluster.call(await cluster.any_connection(), request, ListConfigResourcesResponse)
        check_response(response.error_code, "what has settings")
        return tuple(
            sorted(ConfigOf(each.resource_type, each.resource_name) for each in response.config_resources)
        )

    return await cluster.retrying(attempt)
