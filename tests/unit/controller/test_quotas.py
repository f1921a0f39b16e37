"""Quotas as the controller keeps them: who may have which, and that every image has the same."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.controller import machine
from distributedlog.controller.deltas import diff
from distributedlog.controller.image import MetadataImage, QuotaEntity
from distributedlog.controller.quotas import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    KEYS,
    NAME_LENGTH_MAX,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    QuotaEdit,
)
from distributedlog.controller.requests import AlterQuotasRequest, DescribeQuorumRequest, QuotasReply
from distributedlog.controller.snapshots import decode_snapshot, encode_snapshot
from distributedlog.model.error_codes import ErrorCode
from tests.unit.controller.image_deltas import apply_delta
from tests.unit.controller.stage import Stage, config
from tests.unit.controller.test_features import raise_level

ANN: QuotaEntity = ((USER, "ann"),)
ANYBODY: QuotaEntity = ((USER, None),)
ANNS_LOADER: QuotaEntity = ((CLIENT_ID, "loader"), (USER, "ann"))


def alter(stage: Stage, entity: QuotaEntity, **limits: float | None) -> ErrorCode:
    return alter_or_validate(stage, entity, limits, validate_only=False)


def alter_or_validate(
    stage: Stage, entity: QuotaEntity, limits: dict[str, float | None], *, validate_only: bool
) -> ErrorCode:
    edits = tuple(QuotaEdit(key, limit) for key, limit in limits.items())
    ((told, outcome),) = stage.ask(
        AlterQuotasRequest(((entity, edits),), validate_only), QuotasReply
    ).entities
    assert told == entity
    return outcome.error


def quotas_of(image: MetadataImage) -> dict[QuotaEntity, dict[str, float]]:
    return {entity: dict(limits.items()) for entity, limits in image.quotas.items()}


def test_a_quota_is_set_changed_and_removed() -> None:
    stage = Stage()
    assert alter(stage, ANN, producer_byte_rate=1000.0, request_percentage=12.5) is ErrorCode.NONE
    assert alter(stage, ANYBODY, consumer_byte_rate=5.0) is ErrorCode.NONE
    assert alter(stage, ANN, producer_byte_rate=2000.0) is ErrorCode.NONE
    assert quotas_of(stage.image) == {
        ANN: {PRODUCER_BYTE_RATE: 2000.0, REQUEST_PERCENTAGE: 12.5},
        ANYBODY: {CONSUMER_BYTE_RATE: 5.0},
    }
    assert alter(stage, ANN, producer_byte_rate=None, request_percentage=None) is ErrorCode.NONE
    assert quotas_of(stage.image) == {ANYBODY: {CONSUMER_BYTE_RATE: 5.0}}


def test_what_changes_nothing_writes_nothing() -> None:
    stage = Stage()
    alter(stage, ANN, producer_byte_rate=1000.0)
    written = len(stage.log.entries)
    assert alter(stage, ANN, producer_byte_rate=1000.0, consumer_byte_rate=None) is ErrorCode.NONE
    wanted: dict[str, float | None] = {PRODUCER_BYTE_RATE: 7.0}
    assert alter_or_validate(stage, ANN, wanted, validate_only=True) is ErrorCode.NONE
    assert len(stage.log.entries) == written


def test_the_parts_of_an_entity_have_no_order() -> None:
    stage = Stage()
    alter(stage, ANNS_LOADER, producer_byte_rate=1.0)
    alter(stage, ANNS_LOADER[::-1], consumer_byte_rate=2.0)
    assert quotas_of(stage.image) == {ANNS_LOADER: {PRODUCER_BYTE_RATE: 1.0, CONSUMER_BYTE_RATE: 2.0}}


@pytest.mark.parametrize(
    "entity",
    [
        (),
        (("ip", "10.0.0.1"),),
        (("group", "g"),),
        ((USER, "ann"), (USER, "bob")),
        ((USER, ""),),
        ((CLIENT_ID, "x" * (NAME_LENGTH_MAX + 1)),),
    ],
)
def test_an_entity_that_cannot_be_is_refused(entity: QuotaEntity) -> None:
    stage = Stage()
    assert alter(stage, entity, producer_byte_rate=1.0) is ErrorCode.INVALID_REQUEST
    assert not stage.image.quotas


@pytest.mark.parametrize(
    ("key", "limit"),
    [
        ("speed", 1.0),
        ("speed", None),
        (PRODUCER_BYTE_RATE, 0.0),
        (PRODUCER_BYTE_RATE, -1.0),
        (PRODUCER_BYTE_RATE, 1.5),
        (REQUEST_PERCENTAGE, float("nan")),
        (REQUEST_PERCENTAGE, float("inf")),
        (CONSUMER_BYTE_RATE, 2.0**64),
    ],
)
def test_a_limit_that_cannot_be_refuses_all_of_its_entity(key: str, limit: float | None) -> None:
    stage = Stage()
    assert alter(stage, ANN, controller_mutation_rate=1.0, **{key: limit}) is ErrorCode.INVALID_REQUEST
    assert not stage.image.quotas


def test_each_entity_has_an_outcome_of_its_own() -> None:
    stage = Stage()
    good, bad = (QuotaEdit(PRODUCER_BYTE_RATE, 1.0),), (QuotaEdit("speed", 1.0),)
    twice: QuotaEntity = ((USER, "bob"),)
    request = AlterQuotasRequest(((ANN, good), (ANYBODY, bad), (twice, good), (twice, good)))
    outcomes = [outcome.error for _, outcome in stage.ask(request, QuotasReply).entities]
    assert outcomes == [ErrorCode.NONE] + 3 * [ErrorCode.INVALID_REQUEST]
    assert set(quotas_of(stage.image)) == {ANN}
    same_key_twice = AlterQuotasRequest(((ANN, good + good),))
    ((_, outcome),) = stage.ask(same_key_twice, QuotasReply).entities
    assert outcome.error is ErrorCode.INVALID_REQUEST


def test_there_is_room_for_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "ENTITIES_MAX", 2)
    stage = Stage()
    edits = (QuotaEdit(PRODUCER_BYTE_RATE, 1.0),)
    request = AlterQuotasRequest(tuple((((USER, name),), edits) for name in "abc"))
    outcomes = [outcome.error for _, outcome in stage.ask(request, QuotasReply).entities]
    assert outcomes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]
    assert alter(stage, ((USER, "a"),), producer_byte_rate=5.0) is ErrorCode.NONE


def test_a_cluster_below_the_level_of_quotas_has_none_until_it_is_raised() -> None:
    stage = Stage(config(bootstrap_level=2))
    assert alter(stage, ANN, producer_byte_rate=1.0) is ErrorCode.UNSUPPORTED_VERSION
    assert raise_level(stage, 3) is ErrorCode.NONE
    assert alter(stage, ANN, producer_byte_rate=1.0) is ErrorCode.NONE


def test_a_failover_keeps_them() -> None:
    stage = Stage()
    alter(stage, ANNS_LOADER, producer_byte_rate=1.0)
    before = stage.image.quotas
    stage.failover()
    assert stage.image.quotas == before
    assert stage.image == stage.replayed()


def test_the_machine_knows_nothing_of_the_quorum() -> None:
    assert Stage().refusal(DescribeQuorumRequest()) is ErrorCode.INVALID_REQUEST


names = st.none() | st.text(min_size=1, max_size=5)
entities = st.dictionaries(st.sampled_from([USER, CLIENT_ID]), names, min_size=1).map(
    lambda parts: tuple(sorted(parts.items()))
)
limits = st.none() | st.integers(1, 2**40).map(float)
changes = st.lists(st.tuples(entities, st.sampled_from(KEYS), limits), max_size=12)


@settings(max_examples=60, deadline=None)
@given(changes)
def test_snapshots_deltas_and_a_plain_dictionary_agree(
    wanted: list[tuple[QuotaEntity, str, float | None]],
) -> None:
    stage, model = Stage(), dict[QuotaEntity, dict[str, float]]()
    before = stage.image
    for entity, key, limit in wanted:
        assert alter(stage, entity, **{key: limit}) is ErrorCode.NONE
        mine = model.setdefault(entity, {})
        if limit is None:
            mine.pop(key, None)
        else:
            mine[key] = limit
        if not mine:
            del model[entity]
    image = stage.image
    assert quotas_of(image) == model
    assert decode_snapshot(encode_snapshot(image)) == image
    assert apply_delta(diff(before, image), before) == image
