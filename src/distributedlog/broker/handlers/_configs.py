"""What both ways to alter settings have in common: what is checked before the controller is asked.

Each resource stands for itself.  One that is in the request twice is refused both times.  The controller
judges topics' settings; of brokers' settings it knows little, so they are checked here against the table of
settings: what a running broker does not take over is refused, and so is a value that cannot be.  A name that
this version does not know is accepted, as in Kafka: another broker may know it.  Groups' settings have their
bounds from this broker.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from distributedlog.broker.context import RequestContext
from distributedlog.broker.coordinators import group_config
from distributedlog.broker.handlers._asking import ask
from distributedlog.broker.settings import SETTINGS, SYNONYMS
from distributedlog.controller.configs import ConfigEdit
from distributedlog.controller.image import CLUSTER_DEFAULT, NO_SETTINGS, ConfigResource, ResourceType
from distributedlog.controller.requests import (
    AlterConfigsRequest,
    ConfigsReply,
    IncrementalAlterConfigsRequest,
    Outcome,
    failure,
)
from distributedlog.groups.config import GroupConfig
from distributedlog.groups.consumer.settings import check as check_group
from distributedlog.model.config_ops import ConfigOp
from distributedlog.model.errors import ConfigError, InvalidRequestError

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

BROKER_ID_DIGITS_MAX = 10


class Change(NamedTuple):
    """What is to become of one resource."""

    resource: ConfigResource
    edits: tuple[ConfigEdit, ...]


def broker_id_of(name: str) -> int:
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
) -> list[Outcome]:
    """What became of each change."""
    refused = _refusals(services, changes, replaces_all=replaces_all)
    wanted = [change for change in changes if change.resource not in refused]
    outcomes: Mapping[ConfigResource, Outcome] = {}
    if wanted:
        asked = _replacing(wanted, validate_only) if replaces_all else _editing(wanted, validate_only)
        reply = await ask(services, context, asked, ConfigsReply, services.settings.request_timeout_ms)
        outcomes = dict(reply.resources)
    return [refused.get(each.resource) or outcomes[each.resource] for each in changes]


def _replacing(changes: Iterable[Change], validate_only: bool) -> AlterConfigsRequest:
    return AlterConfigsRequest(
        tuple((resource, {edit.name: edit.value for edit in edits}) for resource, edits in changes),
        validate_only,
    )


def _editing(changes: Iterable[Change], validate_only: bool) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(tuple(changes), validate_only)


def _refusals(
    services: "Services", changes: Sequence[Change], *, replaces_all: bool
) -> dict[ConfigResource, Outcome]:
    counts = Counter(change.resource for change in changes)
    config, image = group_config(services.settings), services.metadata.image
    refused = {}
    for change in changes:
        try:
            if counts[change.resource] > 1:
                raise InvalidRequestError(f"{change.resource.name!r} is in the request more than once")
            _check(services.settings.node_id, change)
            if change.resource.kind == ResourceType.GROUP:
                before = NO_SETTINGS if replaces_all else image.settings_of(*change.resource)
                _check_of_group(dict(before.items()), change, config)
        except (InvalidRequestError, ConfigError) as error:
            refused[change.resource] = failure(error)
    return refused


def _check(node_id: int, change: Change) -> None:
    names = [edit.name for edit in change.edits]
    if len(set(names)) < len(names):
        raise InvalidRequestError("a setting is changed more than once")
    nulls = [edit.name for edit in change.edits if edit.value is None and edit.op != ConfigOp.DELETE]
    if nulls:
        raise InvalidRequestError(f"the setting {nulls[0]!r} has no value")
    kind, name = change.resource
    if kind == ResourceType.BROKER:
        if name != CLUSTER_DEFAULT and broker_id_of(name) != node_id:
            raise InvalidRequestError(f"this is broker {node_id}: broker {name} changes its own settings")
        for edit in change.edits:
            _check_of_broker(edit)
    elif kind not in (ResourceType.TOPIC, ResourceType.GROUP):
        raise InvalidRequestError(f"resources of type {kind} have no settings here")


def _check_of_group(settings: dict[str, str], change: Change, config: GroupConfig) -> None:
    """All that the group would have."""
    for edit in change.edits:
        if edit.op == ConfigOp.DELETE:
            settings.pop(edit.name, None)
        elif edit.op == ConfigOp.SET and edit.value is not None:
            settings[edit.name] = edit.value
    check_group(settings, config)


def _check_of_broker(edit: ConfigEdit) -> None:
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
