"""What the settings of a node must be together; each by itself is checked where it is parsed."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from distributedlog.model.cluster_settings import CLUSTER_SETTINGS
from distributedlog.model.errors import ConfigError
from distributedlog.settings.addresses import WILDCARDS, Endpoint, is_loopback

if TYPE_CHECKING:
    from distributedlog.settings.node_settings import NodeSettings

BROKER: Final = "broker"
CONTROLLER: Final = "controller"
ROLES: Final = (BROKER, CONTROLLER)


def check_consistency(settings: "NodeSettings") -> None:
    """Raises ConfigError, with what to do about it."""
    _check_roles(settings)
    _check_listeners(settings)
    _check_times(settings)
    _check_cluster_settings(settings)


def _check_roles(settings: "NodeSettings") -> None:
    if not settings.process_roles or settings.process_roles - set(ROLES):
        raise ConfigError(f"process.roles must be of {', '.join(ROLES)}")
    if not settings.controller_quorum_voters:
        raise ConfigError("a node that is no controller must know who is: set controller.quorum.voters")
    voter_ids = [voter.node_id for voter in settings.controller_quorum_voters]
    if settings.is_standby and settings.control_listener.host in WILDCARDS:
        raise ConfigError(
            f"node {settings.node_id} is not among controller.quorum.voters, so it tells the others where it "
            f"is: control.listener cannot be {settings.control_listener.host}, name an address"
        )
    if not settings.is_controller and settings.node_id in voter_ids:
        raise ConfigError(
            f"controller.quorum.voters names node {settings.node_id}, but its process.roles lack 'controller'"
        )


def _check_cluster_settings(settings: "NodeSettings") -> None:
    given = [name for name in settings.sources if name in CLUSTER_SETTINGS]
    if given and not settings.is_controller:
        raise ConfigError(
            f"{given[0]} is a setting of the whole cluster, and node {settings.node_id} is no controller: "
            "take it out here, and set it for all brokers with `dlog cluster config`"
        )


def _check_listeners(settings: "NodeSettings") -> None:
    names = {listener.name for listener in settings.listeners}
    for advertised in settings.advertised_listeners:
        if advertised.name not in names:
            raise ConfigError(
                f"advertised.listeners names {advertised.name}, which listeners has not: {', '.join(names)}"
            )
        if advertised.host in WILDCARDS:
            raise ConfigError(
                f"clients cannot connect to {advertised.host}: say with advertised.listeners where to"
            )
    if settings.insecure:
        return
    for name, endpoint in _bound(settings):
        if not is_loopback(endpoint.host):
            raise ConfigError(
                f"{name} is {endpoint}: anyone who can reach that address could read and write everything, "
                "since there is no authentication yet; use 127.0.0.1, or --insecure if that is what you want"
            )


def _bound(settings: "NodeSettings") -> Iterator[tuple[str, Endpoint]]:
    if settings.is_broker:
        for listener in settings.listeners:
            yield "listeners", listener.endpoint
    yield "control.listener", settings.control_listener
    if settings.ops_listener is not None:
        yield "ops.listener", settings.ops_listener


def _check_times(settings: "NodeSettings") -> None:
    if settings.quorum_heartbeat_ms * 2 > settings.quorum_election_timeout_ms:
        raise ConfigError(
            f"controller.quorum.heartbeat.interval.ms is {settings.quorum_heartbeat_ms}: two must fit into "
            f"controller.quorum.election.timeout.ms, {settings.quorum_election_timeout_ms}"
        )
    if settings.broker_heartbeat_interval_ms * 2 > settings.broker_session_timeout_ms:
        raise ConfigError(
            f"broker.heartbeat.interval.ms is {settings.broker_heartbeat_interval_ms}: two must fit into "
            f"broker.session.timeout.ms, {settings.broker_session_timeout_ms}"
        )
    if settings.group_session_timeout_ms_min > settings.group_session_timeout_ms_max:
        raise ConfigError("group.min.session.timeout.ms is over group.max.session.timeout.ms")
    if settings.consumer_heartbeat_interval_ms >= settings.consumer_session_timeout_ms:
        raise ConfigError(
            "group.consumer.heartbeat.interval.ms is not below group.consumer.session.timeout.ms"
        )
    if settings.consumer_session_timeout_ms_min > settings.consumer_session_timeout_ms_max:
        raise ConfigError("group.consumer.min.session.timeout.ms is over its max")
    if settings.consumer_heartbeat_interval_ms_min > settings.consumer_heartbeat_interval_ms_max:
        raise ConfigError("group.consumer.min.heartbeat.interval.ms is over its max")
    if settings.queued_bytes_per_connection_max > settings.queued_bytes_max:
        raise ConfigError("queued.bytes.per.connection.max is over queued.bytes.max")
