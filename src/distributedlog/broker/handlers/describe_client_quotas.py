"""DescribeClientQuotas: the quotas of those entities that a filter matches, out of the image.

A filter has components, one for each type of part that it speaks of:

    0 exact       the entity has a part of the type, with this name
    1 default     the entity has a part of the type, and it is the default
    2 any         the entity has a part of the type

All must be met.  A strict filter leaves out entities that have parts of other types.  Many entities are
listed in slices, between which others have their turn.
"""

import asyncio
from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.controller.image import QuotaEntity, Quotas
from distributedlog.controller.quotas import CLIENT_ID, IP, USER, sorting_key
from distributedlog.model.errors import InvalidRequestError, UnsupportedVersionError
from distributedlog.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


SLICE_ENTITIES: Final = 500


class Match(IntEnum):
    EXACT = 0
    DEFAULT = 1
    ANY = 2


@handles(DescribeClientQuotasRequest, versions=(0, 1))
async def describe_client_quotas(
    services: "Services", request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    quotas = services.metadata.image.quotas
    wanted = _check_components(request.components)
    found = [entity for entity in quotas if _is_matching(wanted, entity, request.strict)]
    entries = []
    for number, entity in enumerate(sorted(found, key=sorting_key), 1):
        entries.append(_describe_entity(entity, quotas[entity]))
        if number % SLICE_ENTITIES == 0:
            await asyncio.sleep(0)
    return DescribeClientQuotasResponse(entries=entries)


def _describe_entity(entity: QuotaEntity, limits: Quotas) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[ValueData(key=key, value=limit) for key, limit in sorted(limits.items())],
    )


def _check_components(components: list[ComponentData]) -> Mapping[str, ComponentData]:
    wanted: dict[str, ComponentData] = {}
    for each in components:
        if not each.entity_type:
            raise InvalidRequestError("a part of the filter names no type")
        if each.entity_type not in (USER, CLIENT_ID, IP):
            raise UnsupportedVersionError(f"there are no entities of the type {each.entity_type[:80]!r}")
        if each.entity_type in wanted:
            raise InvalidRequestError(f"the filter speaks of the type {each.entity_type} twice")
        if each.match_type not in set(Match):
            raise InvalidRequestError(f"a filter cannot match in the way {each.match_type}")
        if (each.match_type == Match.EXACT) is (each.match is None):
            raise InvalidRequestError("a name is given for an exact match, and for no other")
        wanted[each.entity_type] = each
    if IP in wanted and len(wanted) > 1:
        raise InvalidRequestError("an address has no user and no client id")
    return wanted


def _is_matching(wanted: Mapping[str, ComponentData], entity: QuotaEntity, strict: bool) -> bool:
    parts = dict(entity)
    if strict and len(parts) != len(wanted):
        return False
    for kind, component in wanted.items():
        if kind not in parts:
            return False
        if component.match_type != Match.ANY and parts[kind] != component.match:
            return False
    return True
