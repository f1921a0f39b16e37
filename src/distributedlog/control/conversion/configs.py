"""Settings of topics and brokers, and levels of features."""

from distributedlog.control._generated import controller_pb2 as pb
from distributedlog.control.conversion.checks import Budget, text
from distributedlog.control.conversion.topics import outcome, outcome_from, setting_from, settings
from distributedlog.controller.configs import ConfigEdit
from distributedlog.controller.image import ConfigResource
from distributedlog.controller.requests import (
    AlterConfigsRequest,
    ConfigsReply,
    FeaturesReply,
    IncrementalAlterConfigsRequest,
    ItemOutcome,
    UpdateFeaturesRequest,
)
from distributedlog.model.errors import MalformedMessageError


def _resource(resource: ConfigResource) -> pb.ConfigResource:
    return pb.ConfigResource(kind=resource.kind, name=resource.name)


def _resource_from(message: pb.ConfigResource) -> ConfigResource:
    return ConfigResource(message.kind, text(message.name))


def alter_configs(request: AlterConfigsRequest) -> pb.AlterConfigsRequest:
    return pb.AlterConfigsRequest(
        resources=[
            pb.ResourceSettings(resource=_resource(resource), settings=settings(given.items()))
            for resource, given in request.resources
        ],
        validate_only=request.validate_only,
    )


def alter_configs_from(message: pb.AlterConfigsRequest, budget: Budget) -> AlterConfigsRequest:
    def given(item: pb.ResourceSettings) -> tuple[ConfigResource, dict[str, str | None]]:
        pairs = budget.each(item.settings, setting_from)
        by_name = dict(pairs)
        if len(by_name) != len(pairs):
            raise MalformedMessageError("a setting is given twice")
        return _resource_from(item.resource), by_name

    return AlterConfigsRequest(budget.each(message.resources, given), message.validate_only)


def incremental_alter_configs(request: IncrementalAlterConfigsRequest) -> pb.IncrementalAlterConfigsRequest:
    return pb.IncrementalAlterConfigsRequest(
        resources=[
            pb.ResourceEdits(
                resource=_resource(resource),
                edits=[pb.ConfigEdit(name=name, op=op, value=value) for name, op, value in edits],
            )
            for resource, edits in request.resources
        ],
        validate_only=request.validate_only,
    )


def incremental_alter_configs_from(
    message: pb.IncrementalAlterConfigsRequest, budget: Budget
) -> IncrementalAlterConfigsRequest:
    def edits(item: pb.ResourceEdits) -> tuple[ConfigResource, tuple[ConfigEdit, ...]]:
        return _resource_from(item.resource), budget.each(item.edits, _edit_from)

    return IncrementalAlterConfigsRequest(budget.each(message.resources, edits), message.validate_only)


def _edit_from(message: pb.ConfigEdit) -> ConfigEdit:
    value = text(message.value) if message.HasField("value") else None
    return ConfigEdit(text(message.name), message.op, value)


def configs_reply(reply: ConfigsReply) -> pb.ConfigsReply:
    return pb.ConfigsReply(
        resources=[
            pb.ResourceOutcome(resource=_resource(resource), outcome=outcome(item))
            for resource, item in reply.resources
        ]
    )


def configs_reply_from(message: pb.ConfigsReply, budget: Budget) -> ConfigsReply:
    return ConfigsReply(budget.each(message.resources, _resource_outcome_from))


def _resource_outcome_from(message: pb.ResourceOutcome) -> tuple[ConfigResource, ItemOutcome]:
    return _resource_from(message.resource), outcome_from(message.outcome)


def update_features(request: UpdateFeaturesRequest) -> pb.UpdateFeaturesRequest:
    return pb.UpdateFeaturesRequest(
        levels=[pb.FeatureLevel(name=name, level=level) for name, level in request.levels],
        validate_only=request.validate_only,
    )


def update_features_from(message: pb.UpdateFeaturesRequest, budget: Budget) -> UpdateFeaturesRequest:
    levels = budget.each(message.levels, lambda item: (text(item.name), item.level))
    return UpdateFeaturesRequest(levels, message.validate_only)


def features_reply(reply: FeaturesReply) -> pb.FeaturesReply:
    return pb.FeaturesReply(
        features=[pb.FeatureOutcome(name=name, outcome=outcome(item)) for name, item in reply.features]
    )


def features_reply_from(message: pb.FeaturesReply, budget: Budget) -> FeaturesReply:
    return FeaturesReply(
        budget.each(message.features, lambda item: (text(item.name), outcome_from(item.outcome)))
    )
