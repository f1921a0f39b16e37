"""AlterClientQuotas: has the controller set and remove limits, entity by entity.

The brokers enforce what is in their image: from the next request on that a client sends.
"""

from typing import TYPE_CHECKING

from distributedlog.broker.handlers._forwarding import forward
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.controller.image import QuotaEntity
from distributedlog.controller.quotas import QuotaEdit
from distributedlog.controller.requests import AlterQuotasRequest, ItemOutcome, QuotasReply
from distributedlog.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    EntryResult,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


def _make_entity(entry: EntryData) -> QuotaEntity:
    return tuple((each.entity_type, each.entity_name) for each in entry.entity)


def _make_result(entity: QuotaEntity, outcome: ItemOutcome) -> EntryResult:
    return EntryResult(
        error_code=outcome.error,
        error_message=outcome.message,
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
    )


@handles(AlterClientQuotasRequest, versions=(0, 1))
async def alter_client_quotas(
    services: "Services", request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    asked = AlterQuotasRequest(
        tuple(
            (
                _make_entity(entry),
                tuple(QuotaEdit(each.key, None if each.remove else each.value) for each in entry.ops),
            )
            for entry in request.entries
        ),
        request.validate_only,
    )
    reply = await forward(services, context, asked, QuotasReply, services.settings.request_timeout_ms)
    return AlterClientQuotasResponse(entries=[_make_result(entity, each) for entity, each in reply.entities])
