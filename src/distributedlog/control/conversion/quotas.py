"""Quotas of clients."""

from distributedlog.control._generated import controller_pb2 as pb
from distributedlog.control.conversion.checks import Budget, text
from distributedlog.control.conversion.topics import outcome, outcome_from
from distributedlog.controller.image import QuotaEntity
from distributedlog.controller.quotas import QuotaEdit
from distributedlog.controller.requests import AlterQuotasRequest, ItemOutcome, QuotasReply


def _entity(entity: QuotaEntity) -> list[pb.QuotaEntityPart]:
    return [pb.QuotaEntityPart(kind=kind, name=name) for kind, name in entity]


def _part_from(message: pb.QuotaEntityPart) -> tuple[str, str | None]:
    return text(message.kind), text(message.name) if message.HasField("name") else None


def _edit_from(message: pb.QuotaEdit) -> QuotaEdit:
    return QuotaEdit(text(message.key), message.limit if message.HasField("limit") else None)


def alter_quotas(request: AlterQuotasRequest) -> pb.AlterQuotasRequest:
    return pb.AlterQuotasRequest(
        entities=[
            pb.QuotaEdits(
                entity=_entity(entity), edits=[pb.QuotaEdit(key=key, limit=limit) for key, limit in edits]
            )
            for entity, edits in request.entities
        ],
        validate_only=request.validate_only,
    )


def alter_quotas_from(message: pb.AlterQuotasRequest, budget: Budget) -> AlterQuotasRequest:
    def edits(item: pb.QuotaEdits) -> tuple[QuotaEntity, tuple[QuotaEdit, ...]]:
        return budget.each(item.entity, _part_from), budget.each(item.edits, _edit_from)

    return AlterQuotasRequest(budget.each(message.entities, edits), message.validate_only)


def quotas_reply(reply: QuotasReply) -> pb.QuotasReply:
    return pb.QuotasReply(
        entities=[
            pb.QuotaOutcome(entity=_entity(entity), outcome=outcome(item)) for entity, item in reply.entities
        ]
    )


def quotas_reply_from(message: pb.QuotasReply, budget: Budget) -> QuotasReply:
    def item_from(item: pb.QuotaOutcome) -> tuple[QuotaEntity, ItemOutcome]:
        return budget.each(item.entity, _part_from), outcome_from(item.outcome)

    return QuotasReply(budget.each(message.entities, item_from))
