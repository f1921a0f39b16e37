"""What both ways to alter settings have in common: what is checked before the controller is asked.

Each resource stands for itself.  One that is in the request twice is refused both times.  The controller
judges topics' settings; of brokers' settings it knows little, so they are checked here against the table of
settings: what a running broker does not take over is refused, and so is a value that cannot be.  A name that
this version does not know is accepted, as in Kafka: another broker may know it.  Groups' settings have their
bounds from this broker.

The levels of this broker's loggers are its own: they are changed here, at once, and the controller is not
asked.  As in Kafka they are changed one by one and never replaced as a whole.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from distributedlog.broker.coordination.coordinators import group_config
from distributedlog.broker.handlers._forwarding import forward
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.observability import loggers
from distributedlog.controller.configs import ConfigEdit
from distributedlog.controller.image import CLUSTER_DEFAULT, NO_SETTINGS, ConfigResource, ResourceType
from distributedlog.controller.requests import (
    AlterConfigsRequest,
    ConfigsReply,
    IncrementalAlterConfigsRequest,
    ItemOutcome,
    failure,
)
from distributedlog.groups.config import GroupConfig
from distributedlog.groups.consumer.settings import check as check_group
from distributedlog.model.config_ops import ConfigOp
from distributedlog.model.errors import ConfigError, InvalidRequestError
from distributedlog.settings.node_settings import SETTINGS, SYNONYMS

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

BROKER_ID_DIGITS_MAX = 10


class Change(NamedTuple):
    """What is to become of one resource."""

    resource: ConfigResource
    edits: tuple[ConfigEdit, ...]


def parse_broker_id(name: str) -> int:
    if not (name.isascii() and name.isdigit() and len(name) <= BROKER_ID_DIGITS_MAX):
        raise InvalidRequestError(f"{name[:80]!r} is no broker id")
    return int(name)


async def alter(
    services: "Services",
    context: RequestContext,
    changes: Sequence[Change],
    *,
    validate_only: bool,
    replaces_all: bool,
) -> list[ItemOutcome]:
    """Returns what became of each change."""
    refused = _find_refused(services, changes, replaces_all=replaces_all)
    allowed = [change for change in changes if change.resource not in refused]
    outcomes: dict[ConfigResource, ItemOutcome] = {}
    wanted = []
    for change in allowed:
        if change.resource.kind != ResourceType.BROKER_LOGGER:
            wanted.append(change)
            continue
        outcomes[change.resource] = ItemOutcome()
        if not validate_only:
            _change_levels(change)
    if wanted:
        asked = _replace_all(wanted, validate_only) if replaces_all else _edit(wanted, validate_only)
        reply = await forward(services, context, asked, ConfigsReply, services.settings.request_timeout_ms)
        outcomes.update(reply.resources)
    return [refused.get(each.resource) or outcomes[each.resource] for each in changes]


def _replace_all(changes: Iterable[Change], validate_only: bool) -> AlterConfigsRequest:
    return AlterConfigsRequest(
        tuple((resource, {edit.name: edit.value for edit in edits}) for resource, edits in changes),
        validate_only,
    )


def _edit(changes: Iterable[Change], validate_only: bool) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(tuple(changes), validate_only)


def _find_refused(
    services: "Services", changes: Sequence[Change], *, replaces_all: bool
) -> dict[ConfigResource, ItemOutcome]:
    counts = Counter(change.resource for change in changes)
    config, image = group_config(services.settings), services.metadata.image
    refused = {}
    for change in changes:
        try:
            if counts[change.resource] > 1:
                raise InvalidRequestError(f"{change.resource.name!r} is in the request more than once")
            _check(services.settings.node_id, change, replaces_all=replaces_all)
            if change.resource.kind == ResourceType.GROUP:
                before = NO_SETTINGS if replaces_all else image.settings_of(*change.resource)
                _check_group_change(dict(before.items()), change, config)
        except (InvalidRequestError, ConfigError) as error:
            refused[change.resource] = failure(error)
    return refused


def _check(node_id: int, change: Change, *, replaces_all: bool) -> None:
    names = [edit.name for edit in change.edits]
    if len(set(names)) < len(names):
        raise InvalidRequestError("a setting is changed more than once")
    nulls = [edit.name for edit in change.edits if edit.value is None and edit.op != ConfigOp.DELETE]
    if nulls:
        raise InvalidRequestError(f"the setting {nulls[0]!r} has no value")
    kind, name = change.resource
    if kind == ResourceType.BROKER:
        if name != CLUSTER_DEFAULT and parse_broker_id(name) != node_id:
            raise InvalidRequestError(f"this is broker {node_id}: broker {name} changes its own settings")
        for edit in change.edits:
            _check_broker_edit(edit)
    elif kind == ResourceType.BROKER_LOGGER and not replaces_all:
        if parse_broker_id(name) != node_id:
            raise InvalidRequestError(f"this is broker {node_id}: broker {name} changes its own loggers")
        for edit in change.edits:
            _check_level_edit(edit)
    elif kind not in (ResourceType.TOPIC, ResourceType.CLIENT_METRICS, ResourceType.GROUP):
        raise InvalidRequestError(f"resources of type {kind} have no settings here")


def _check_group_change(settings: dict[str, str], change: Change, config: GroupConfig) -> None:
    """All that the group would have."""
    for edit in change.edits:
        if edit.op == ConfigOp.DELETE:
            settings.pop(edit.name, None)
        elif edit.op == ConfigOp.SET and edit.value is not None:
            settings[edit.name] = edit.value
    check_group(settings, config)


def _check_level_edit(edit: ConfigEdit) -> None:
    if edit.op == ConfigOp.SET and edit.value is not None:
        loggers.check_level(edit.name, edit.value)
    elif edit.op == ConfigOp.DELETE:
        loggers.check_unset(edit.name)
    else:
        raise InvalidRequestError("the level of a logger is set or taken back: it is no list")


def _change_levels(change: Change) -> None:
    for edit in change.edits:
        if edit.op == ConfigOp.SET and edit.value is not None:
            loggers.set_level(edit.name, edit.value)
        else:
            loggers.unset_level(edit.name)


def _check_broker_edit(edit: ConfigEdit) -> None:
    if edit.op == ConfigOp.DELETE:
        return
    setting = SETTINGS.get(edit.name)
    if edit.name in SYNONYMS or (setting is not None and not setting.is_dynamic):
        raise InvalidRequestError(f"{edit.name} cannot be changed while the broker runs")
    if setting is not None and edit.op == ConfigOp.SET and edit.value is not None:
        try:
            setting.read(edit.value)
        except ConfigError as error:
            raise InvalidRequestError(str(error)) from error
