"""`dlog cluster config` on a cluster of which a broker is down that is not missed yet."""

from typing import Any

from distributedlog.client.config_admin import ConfigSource
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from distributedlog.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from tests.unit.cli.conftest import Dlog
from tests.unit.client.stage import NODE_ID, ScriptedBroker, free_port

SETTING = "log.retention.ms"


def settings(request: DescribeConfigsRequest, _version: int) -> DescribeConfigsResponse:
    """For all brokers none is set; of one all are told."""
    (asked,) = request.resources
    known = DescribeConfigsResourceResult(
        name=SETTING,
        value="5",
        read_only=False,
        config_source=ConfigSource.DEFAULT,
        is_sensitive=False,
        synonyms=[],
    )
    found = DescribeConfigsResult(
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=[known] if asked.resource_name else [],
    )
    return DescribeConfigsResponse(results=[found])


def test_whether_there_is_such_a_setting_is_asked_of_a_broker_that_answers(dlog: Dlog) -> None:
    broker = ScriptedBroker(versions={ApiKey.DESCRIBE_CONFIGS: (1, 4)})

    def metadata(request: Any, version: int) -> MetadataResponse:
        told = broker.metadata(request, version)
        gone = MetadataResponseBroker(node_id=NODE_ID - 1, host="127.0.0.1", port=free_port())
        told.brokers = [gone, *told.brokers]
        return told

    broker.answers = {ApiKey.METADATA: metadata, ApiKey.DESCRIBE_CONFIGS: settings}
    with broker.running():
        options = ("-b", broker.bootstrap, "--timeout", "5")
        shown = dlog("cluster", "config", "get", SETTING, *options)
        assert (shown.code, "nothing is set for all brokers" in shown.err) == (0, True), shown.err
        refused = dlog("cluster", "config", "get", "log.retention.m", *options)
        assert (refused.code, f"did you mean {SETTING}?" in refused.err) == (2, True), refused.err
