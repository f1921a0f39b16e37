from contextlib import suppress

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from distributedlog.controller.bundles import (
    BUNDLE_BYTES_MAX,
    BUNDLE_RECORDS_MAX,
    check_fits,
    decode_bundle,
    encode_bundle,
)
from distributedlog.controller.features import LEVEL_CONTROLLERS, LEVEL_MAX, LEVEL_QUOTAS, LEVELS, versioned
from distributedlog.controller.records import (
    RECORDS,
    RESERVED_IDS,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChange,
    ClientQuotaChanged,
    ClusterCreated,
    ConfigChanged,
    ControllerElected,
    ControllerForgotten,
    ControllerRegistered,
    FeatureLevelSet,
    NoOp,
    PartitionChanged,
    PartitionCreated,
    ProducerIdsTaken,
    QuotaEntityPart,
    RegisterBroker,
    TopicCreated,
    TopicRemoved,
    UnregisterBroker,
    Versioned,
)
from distributedlog.model.errors import (
    MalformedMessageError,
    PolicyViolationError,
    UnsupportedVersionError,
)
from distributedlog.model.ids import Uuid

ID = Uuid(bytes(range(16)))
ONE_OF_EACH = [
    RegisterBroker(
        broker_id=1,
        incarnation_id=ID,
        broker_epoch=7,
        end_points=[BrokerEndpoint(name="CLIENT", host="h", port=9092, security_protocol=0)],
        features=[BrokerFeature(name="f", min_supported_version=1, max_supported_version=2)],
        rack="r",
        log_dirs=[ID],
        host="machine",
    ),
    UnregisterBroker(broker_id=1, broker_epoch=7),
    TopicCreated(name="t", topic_id=ID),
    PartitionCreated(
        partition_id=3,
        topic_id=ID,
        replicas=[1, 2],
        isr=[1],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        eligible_leader_replicas=[2],
        last_known_elr=[1],
    ),
    ConfigChanged(resource_type=2, resource_name="t", name="retention.ms", value=None),
    PartitionChanged(partition_id=3, topic_id=ID, isr=[2], leader=2, eligible_leader_replicas=[]),
    TopicRemoved(topic_id=ID),
    FeatureLevelSet(name="f", feature_level=2),
    ClientQuotaChanged(
        entity=[
            QuotaEntityPart(entity_type="client-id", entity_name=None),
            QuotaEntityPart(entity_type="user", entity_name="ann"),
        ],
        key="producer_byte_rate",
        value=1024.0,
        remove=False,
    ),
    ProducerIdsTaken(broker_id=1, broker_epoch=7, next_producer_id=1000),
    BrokerRegistrationChange(broker_id=1, broker_epoch=7, fenced=1),
    NoOp(),
    ClusterCreated(cluster_id="c"),
    ControllerElected(controller_id=1, epoch=4),
    ControllerRegistered(controller_id=2, directory_id=ID, incarnation=7, host="h", port=9093),
    ControllerForgotten(controller_id=2),
]
BUNDLE = encode_bundle(versioned(ONE_OF_EACH, LEVEL_MAX))


def test_every_record_comes_back_as_it_was() -> None:
    assert {type(record) for record in ONE_OF_EACH} == set(RECORDS.values())
    assert decode_bundle(BUNDLE) == versioned(ONE_OF_EACH, LEVEL_MAX)


def test_a_record_looks_as_it_always_did() -> None:
    change = PartitionChanged(partition_id=3, topic_id=ID, isr=[2], leader=2, eligible_leader_replicas=[])
    assert encode_bundle(versioned([change], 2)).hex() == (
        "01" "01" "05" "02" "25"
        "00000003" "000102030405060708090a0b0c0d0e0f"
        "03" "00" "05" "02" "00000002" "01" "04" "00000002" "06" "01" "01"
    )  # fmt: skip


def test_ids_are_kafkas_and_leave_room_for_users() -> None:
    assert not RESERVED_IDS & RECORDS.keys()
    assert (RECORDS[0], RECORDS[5], RECORDS[14], RECORDS[17]) == (
        RegisterBroker,
        PartitionChanged,
        ClientQuotaChanged,
        BrokerRegistrationChange,
    )


def test_every_level_writes_every_record_it_has_in_a_version_that_exists() -> None:
    for level, versions in LEVELS.items():
        since = {
            ClientQuotaChanged: LEVEL_QUOTAS,
            ControllerRegistered: LEVEL_CONTROLLERS,
            ControllerForgotten: LEVEL_CONTROLLERS,
        }
        assert set(versions) == {record for record in RECORDS.values() if level >= since.get(record, 0)}
        assert all(
            record.versions[0] <= version <= record.versions[1] for record, version in versions.items()
        )


def test_a_bundle_that_is_cut_anywhere_is_refused() -> None:
    for end in range(len(BUNDLE)):
        with pytest.raises(MalformedMessageError):
            decode_bundle(BUNDLE[:end])


def test_bytes_behind_a_bundle_are_refused() -> None:
    with pytest.raises(MalformedMessageError, match="follow"):
        decode_bundle(BUNDLE + b"\0")


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(BUNDLE) - 1), st.integers(0, 255))
def test_a_wrong_byte_is_read_or_refused_and_never_anything_else(at: int, byte: int) -> None:
    with suppress(MalformedMessageError, UnsupportedVersionError):
        read = decode_bundle(BUNDLE[:at] + bytes([byte]) + BUNDLE[at + 1 :])
        assert len(read) == len(ONE_OF_EACH)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=64))
def test_noise_is_refused(noise: bytes) -> None:
    with suppress(MalformedMessageError, UnsupportedVersionError):
        assert decode_bundle(b"\x01" + noise)


def test_a_count_that_the_bytes_cannot_hold_is_refused_before_it_is_believed() -> None:
    with pytest.raises(MalformedMessageError, match="cannot hold"):
        decode_bundle(b"\x01\xff\x7f" + bytes(30))
    with pytest.raises(MalformedMessageError, match="over"):
        decode_bundle(bytes(BUNDLE_BYTES_MAX + 1))


def test_what_is_newer_than_we_are_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedVersionError, match="frame version 2"):
        decode_bundle(b"\x02" + BUNDLE[1:])
    with pytest.raises(UnsupportedVersionError, match="NoOp in version 1"):
        decode_bundle(b"\x01\x01\x14\x01\x01\x00")
    with pytest.raises(UnsupportedVersionError, match="id 104"):
        decode_bundle(b"\x01\x01\x68\x00\x01\x00")


def test_more_than_an_entry_holds_is_not_written() -> None:
    with pytest.raises(MalformedMessageError):
        encode_bundle([])
    with pytest.raises(MalformedMessageError):
        encode_bundle([Versioned(NoOp(), 0)] * (BUNDLE_RECORDS_MAX + 1))
    huge = ConfigChanged(resource_type=2, resource_name="t", name="n", value="v" * 30_000)
    with pytest.raises(PolicyViolationError):
        check_fits([Versioned(huge, 0)] * 300)
    check_fits([Versioned(huge, 0)] * 100)
    with pytest.raises(PolicyViolationError):
        check_fits([Versioned(NoOp(), 0)] * (BUNDLE_RECORDS_MAX + 1))
