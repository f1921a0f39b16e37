"""Settings changed and described through the handlers, in few words."""

from distributedlog.controller.configs import ConfigEdit
from distributedlog.controller.image import ConfigResource
from distributedlog.controller.requests import ConfigsReply, IncrementalAlterConfigsRequest
from distributedlog.model.config_ops import ConfigOp
from distributedlog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tests.unit.broker.handlers.admin_stage import Broker, versions_of

TOPIC, BROKER, GROUP = 2, 4, 32
EVERY = versions_of(DescribeConfigsRequest)


def describe(
    broker: Broker,
    kind: int,
    name: str,
    *keys: str,
    version: int = EVERY[-1],
    synonyms: bool = False,
    documentation: bool = False,
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=synonyms, include_documentation=documentation
    )
    (result,) = broker.ask(request, version, DescribeConfigsResponse).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def one(broker: Broker, kind: int, name: str, key: str, **flags: bool) -> DescribeConfigsResourceResult:
    (told,) = describe(broker, kind, name, key, **flags).configs
    return told


def store(broker: Broker, kind: int, name: str, **settings: str) -> None:
    """Stores settings as another broker may have had them stored, past this one's checks."""
    edits = tuple(ConfigEdit(key.replace("_", "."), ConfigOp.SET, value) for key, value in settings.items())
    asked = IncrementalAlterConfigsRequest(((ConfigResource(kind, name), edits),))
    ((_, outcome),) = broker.stage.ask(asked, ConfigsReply).resources
    assert outcome.error == 0, outcome.message
    broker.controller.catch_up()
