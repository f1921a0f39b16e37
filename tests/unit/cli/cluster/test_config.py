"""`dlog cluster config` on a cluster of which a broker is down that is not missed yet."""

from typing import Any

from distributedlog.client.admin.configs import ConfigSource
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from distributedlog.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from distributedlog.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from tests.ports import free_port
from tests.unit.cli.conftest import Dlog
from tests.unit.client.stage import NODE_ID, ScriptedBroker

SETTING = "log.retention.ms"


def settings(request: DescribeConfigsRequest, _version: int) -> DescribeConfigsResponse:
    """Describes settings: for all brokers none is set; of one all are described."""
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


def test_levels_of_loggers_are_told_and_altered_by_the_broker_itself(dlog: Dlog) -> None:
    name = "distributedlog.broker"
    asked: list[tuple[int, str]] = []
    altered: list[tuple[str, int, str | None]] = []

    def describe(request: DescribeConfigsRequest, _version: int) -> DescribeConfigsResponse:
        (resource,) = request.resources
        asked.append((resource.resource_type, resource.resource_name))
        level = DescribeConfigsResourceResult(
            name=name,
            value="INFO",
            read_only=False,
            config_source=ConfigSource.BROKER_LOGGER,
            is_sensitive=False,
            synonyms=[],
        )
        found = DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name, configs=[level]
        )
        return DescribeConfigsResponse(results=[found])

    def alter(request: IncrementalAlterConfigsRequest, _version: int) -> IncrementalAlterConfigsResponse:
        (resource,) = request.resources
        asked.append((resource.resource_type, resource.resource_name))
        altered.extend((each.name, each.config_operation, each.value) for each in resource.configs)
        done = AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        return IncrementalAlterConfigsResponse(responses=[done])

    versions = {ApiKey.DESCRIBE_CONFIGS: (1, 4), ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1)}
    broker = ScriptedBroker(versions=versions)
    broker.answers = {ApiKey.DESCRIBE_CONFIGS: describe, ApiKey.INCREMENTAL_ALTER_CONFIGS: alter}
    with broker.running():
        options = ("-b", broker.bootstrap, "--timeout", "5", "--broker", str(NODE_ID), "--loggers")
        shown = dlog("cluster", "config", "get", *options)
        assert shown.code == 0, shown.err
        assert shown.out.splitlines()[-1].split() == [name, "INFO", "logger"]
        changed = dlog("cluster", "config", "set", f"{name}=DEBUG", *options)
        assert changed.out.strip() == f"{name} set to DEBUG for the loggers of broker {NODE_ID}", changed.err
        taken_back = dlog("cluster", "config", "unset", name, *options)
        assert taken_back.out.strip() == f"{name} unset for the loggers of broker {NODE_ID}", taken_back.err
        unknown = dlog("cluster", "config", "set", "distributedlog.brokr=DEBUG", *options)
        assert (unknown.code, f"did you mean {name}?" in unknown.err) == (2, True), unknown.err
    assert set(asked) == {(8, str(NODE_ID))}
    assert altered == [(name, 0, "DEBUG"), (name, 1, None)]


def test_loggers_are_those_of_one_broker(dlog: Dlog) -> None:
    for options in ((), ("--group", "g"), ("--broker", "1", "--group", "g")):
        refused = dlog("cluster", "config", "get", "--loggers", "-b", "127.0.0.1:1", *options)
        assert (refused.code, "--broker N" in refused.err) == (2, True), refused.err
