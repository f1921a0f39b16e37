"""AlterClientQuotas: has the controller set and remove limits, entity by entity.

The brokers enforce what is in their image: from the next request on that a client sends.
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from distributedlog.broker.context import RequestContext
from distributedlog.broker.dispatch import handles
from distributedlog.broker.handlers._asking import ask
from distributedlog.controller.image import QuotaEntity
from distributedlog.controller.quotas import QuotaEdit
from distributedlog.controller.requests import AlterQuotasRequest, Outcome, QuotasReply
from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    EntryResult,
)
from distributedlog.protocol.schema import Message

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


def _entity(entry: EntryData) -> QuotaEntity:
    return tuple((each.entity_type, each.entity_name) for each in entry.entity)


def _result(entity: QuotaEntity, outcome: Outcome) -> EntryResult:
    return EntryResult(
        error_code=outcome.error,
        error_message=outcome.message,
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
    )


def _refuse(
    request: AlterClientQuotasRequest, context: RequestContext, code: ErrorCode, text: str
) -> AlterClientQuotasResponse:
    outcome = Outcome(code, text)
    return AlterClientQuotasResponse(entries=[_result(_entity(each), outcome) for each in request.entries])


@handles(AlterClientQuotasRequest, versions=(0, 1), refuse=_refuse)
def alter_client_quotas(
    services: "Services", request: AlterClientQuotasRequest, context: RequestContext
) -> Awaitable[Message]:
    return _alter(services, request, context)


async def _alter(
    services: "Services", request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    asked = AlterQuotasRequest(
        tuple(
            (
                _entity(entry),
                tuple(QuotaEdit(each.key, None if each.remove else each.value) for each in entry.ops),
            )
            for entry in request.entries
        ),
        request.validate_only,
    )
    reply = await ask(services, context, asked, QuotasReply, services.settings.request_timeout_ms)
    return AlterClientQuotasResponse(entries=[_result(entity, each) for entity, each in reply.entities])
