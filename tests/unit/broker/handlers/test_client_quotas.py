"""AlterClientQuotas and DescribeClientQuotas in every version, on a real controller."""

import pytest

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import RequestTimedOutError
from distributedlog.protocol.messages import alter_client_quotas as alter
from distributedlog.protocol.messages import describe_client_quotas as describe
from distributedlog.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from distributedlog.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from tests.unit.broker.handlers.admin_stage import Broker, versions_of

EVERY = versions_of(AlterClientQuotasRequest)
Parts = dict[str, str | None]
EXACT, DEFAULT, ANY = 0, 1, 2


def set_quota(
    broker: Broker,
    parts: Parts,
    limits: dict[str, float | None],
    *,
    version: int = EVERY[-1],
    validate_only: bool = False,
) -> ErrorCode:
    entry = alter.EntryData(
        entity=[alter.EntityData(entity_type=kind, entity_name=name) for kind, name in parts.items()],
        ops=[alter.OpData(key=key, value=limit or 0, remove=limit is None) for key, limit in limits.items()],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)
    response = broker.ask(request, version, AlterClientQuotasResponse)
    (told,) = response.entries
    assert {each.entity_type: each.entity_name for each in told.entity} == parts
    return ErrorCode(told.error_code)


def ask(
    broker: Broker, *components: tuple[str, int, str | None], strict: bool = False, version: int = EVERY[-1]
) -> DescribeClientQuotasResponse:
    request = DescribeClientQuotasRequest(
        components=[
            describe.ComponentData(entity_type=kind, match_type=how, match=name)
            for kind, how, name in components
        ],
        strict=strict,
    )
    return broker.ask(request, version, DescribeClientQuotasResponse)


def told(response: DescribeClientQuotasResponse) -> list[tuple[Parts, dict[str, float]]]:
    assert response.error_code == ErrorCode.NONE
    assert response.entries is not None
    return [
        (
            {each.entity_type: each.entity_name for each in entry.entity},
            {each.key: each.value for each in entry.values},
        )
        for entry in response.entries
    ]


@pytest.mark.parametrize("version", EVERY)
def test_every_version_sets_tells_and_removes(version: int) -> None:
    broker = Broker()
    parts: Parts = {"user": "ann", "client-id": None}
    limits: dict[str, float | None] = {"producer_byte_rate": 1024.0, "request_percentage": 0.5}
    assert set_quota(broker, parts, limits, version=version) is ErrorCode.NONE
    assert told(ask(broker, version=version)) == [(parts, limits)]
    assert set_quota(broker, parts, {"request_percentage": None}, version=version) is ErrorCode.NONE
    assert told(ask(broker, version=version)) == [(parts, {"producer_byte_rate": 1024.0})]


@pytest.mark.parametrize("version", EVERY)
def test_what_cannot_be_is_refused_for_its_entity(version: int) -> None:
    broker = Broker()
    refused = ErrorCode.INVALID_REQUEST
    assert set_quota(broker, {"user": "ann"}, {"speed": 1.0}, version=version) is refused
    assert set_quota(broker, {"ip": "::1"}, {"producer_byte_rate": 1.0}, version=version) is refused
    assert set_quota(broker, {}, {"producer_byte_rate": 1.0}, version=version) is refused
    assert told(ask(broker)) == []


@pytest.mark.parametrize("version", EVERY)
def test_a_request_that_fails_as_a_whole_fails_for_each_entity(version: int) -> None:
    broker = Broker()
    broker.controller.failure = RequestTimedOutError("late")
    code = set_quota(broker, {"user": "ann"}, {"producer_byte_rate": 1.0}, version=version)
    assert code is ErrorCode.REQUEST_TIMED_OUT


def test_to_validate_only_sets_nothing() -> None:
    broker = Broker()
    limits: dict[str, float | None] = {"producer_byte_rate": 1.0}
    assert set_quota(broker, {"user": "ann"}, limits, validate_only=True) is ErrorCode.NONE
    assert told(ask(broker)) == []


ANN: Parts = {"user": "ann"}
ANN_ANY_CLIENT: Parts = {"client-id": None, "user": "ann"}
ANYBODY: Parts = {"user": None}
LOADER: Parts = {"client-id": "loader"}


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ((), False, [ANN_ANY_CLIENT, LOADER, ANYBODY, ANN]),
        ((), True, []),
        ((("user", ANY, None),), False, [ANN_ANY_CLIENT, ANYBODY, ANN]),
        ((("user", ANY, None),), True, [ANYBODY, ANN]),
        ((("user", EXACT, "ann"),), False, [ANN_ANY_CLIENT, ANN]),
        ((("user", EXACT, "ann"),), True, [ANN]),
        ((("user", DEFAULT, None),), False, [ANYBODY]),
        ((("client-id", DEFAULT, None),), False, [ANN_ANY_CLIENT]),
        ((("user", EXACT, "ann"), ("client-id", DEFAULT, None)), True, [ANN_ANY_CLIENT]),
        ((("ip", ANY, None),), False, []),
    ],
)
def test_a_filter_takes_those_that_meet_all_of_it(
    components: tuple[tuple[str, int, str | None], ...], strict: bool, expected: list[Parts]
) -> None:
    broker = Broker()
    for parts in (ANN, ANN_ANY_CLIENT, ANYBODY, LOADER):
        assert set_quota(broker, parts, {"consumer_byte_rate": 1.0}) is ErrorCode.NONE
    assert [parts for parts, _ in told(ask(broker, *components, strict=strict))] == expected


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ((("group", ANY, None),), ErrorCode.UNSUPPORTED_VERSION),
        ((("user", ANY, None), ("user", ANY, None)), ErrorCode.INVALID_REQUEST),
        ((("user", 9, None),), ErrorCode.INVALID_REQUEST),
        ((("", ANY, None),), ErrorCode.INVALID_REQUEST),
        ((("ip", ANY, None), ("user", EXACT, "ann")), ErrorCode.INVALID_REQUEST),
        ((("user", EXACT, None),), ErrorCode.INVALID_REQUEST),
        ((("user", DEFAULT, "ann"),), ErrorCode.INVALID_REQUEST),
    ],
)
@pytest.mark.parametrize("version", EVERY)
def test_a_filter_that_makes_no_sense_is_refused(
    components: tuple[tuple[str, int, str | None], ...], code: ErrorCode, version: int
) -> None:
    response = ask(Broker(), *components, version=version)
    assert (response.error_code, response.entries) == (code, None)
    assert response.error_message
