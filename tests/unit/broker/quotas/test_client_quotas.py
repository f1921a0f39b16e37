"""Which quota counts, how much was used, and how long a client must wait: without a clock or a connection."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.broker.quotas import client_quotas as quotas
from distributedlog.broker.quotas.client_quotas import (
    BURST_MS,
    THROTTLE_MS_MAX,
    Bucket,
    ClientQuotas,
    QuotaLimit,
    find_limit,
)
from distributedlog.broker.quotas.request_charges import MUTATIONS_MAX, RequestCharges, mutations
from distributedlog.controller.image import QuotaEntity
from distributedlog.controller.quotas import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    NAME_LENGTH_MAX,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
)
from distributedlog.controller.requests import AS_CONFIGURED
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from distributedlog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from distributedlog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from distributedlog.protocol.messages.fetch import FetchRequest, ReplicaState
from distributedlog.protocol.messages.heartbeat import HeartbeatRequest
from distributedlog.protocol.messages.produce import ProduceRequest
from tests.unit.controller.stage import Stage, config

ANN = "User:ann"
NOW_MS = 1_000_000
PRODUCE = ProduceRequest(acks=1, timeout_ms=1, topic_data=[])
HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
NO_CLUSTER = Stage().image


def fetch(replica_id: int = -1, *, in_state: bool = False) -> FetchRequest:
    state = ReplicaState(replica_id=replica_id) if in_state else None
    return FetchRequest(
        replica_id=-1 if in_state else replica_id, replica_state=state, max_wait_ms=0, min_bytes=0, topics=[]
    )


# --- which one counts ----------------------------------------------------------------------------

IN_ORDER: tuple[tuple[QuotaEntity, QuotaEntity], ...] = (
    (((CLIENT_ID, "app"), (USER, "ann")), ((CLIENT_ID, "app"), (USER, "ann"))),
    (((CLIENT_ID, None), (USER, "ann")), ((CLIENT_ID, "app"), (USER, "ann"))),
    (((USER, "ann"),), ((USER, "ann"),)),
    (((CLIENT_ID, "app"), (USER, None)), ((CLIENT_ID, "app"), (USER, "ann"))),
    (((CLIENT_ID, None), (USER, None)), ((CLIENT_ID, "app"), (USER, "ann"))),
    (((USER, None),), ((USER, "ann"),)),
    (((CLIENT_ID, "app"),), ((CLIENT_ID, "app"),)),
    (((CLIENT_ID, None),), ((CLIENT_ID, "app"),)),
)
"""Entities as they come before each other, and who shares the allowance."""


@pytest.mark.parametrize("first", range(len(IN_ORDER)))
def test_the_first_that_there_is_counts(first: int) -> None:
    limits = {entity: {PRODUCER_BYTE_RATE: float(n)} for n, (entity, _) in enumerate(IN_ORDER) if n >= first}
    limits[((CLIENT_ID, "other"), (USER, "ann"))] = {PRODUCER_BYTE_RATE: 99.0}
    assert find_limit(limits, "ann", "app", PRODUCER_BYTE_RATE) == QuotaLimit(
        float(first), IN_ORDER[first][1]
    )


def test_each_key_is_looked_for_by_itself() -> None:
    limits: dict[QuotaEntity, dict[str, float]] = {
        ((USER, "ann"),): {PRODUCER_BYTE_RATE: 1.0},
        ((CLIENT_ID, None),): {REQUEST_PERCENTAGE: 5.0},
    }
    account = following(limits).account(ANN, "app")
    assert account.produced is not None
    assert account.requests is not None
    assert (account.fetched, account.mutations) == (None, None)


def following(limits: dict[QuotaEntity, dict[str, float]]) -> ClientQuotas:
    found = ClientQuotas()
    found.follow(limits)
    return found


def test_clients_share_what_is_their_users_and_nothing_else() -> None:
    of_user = following({((USER, None),): {PRODUCER_BYTE_RATE: 1.0}})
    assert of_user.account(ANN, "a").produced is of_user.account(ANN, "b").produced
    assert of_user.account(ANN, "a").produced is not of_user.account("User:bob", "a").produced
    of_client = following({((CLIENT_ID, None),): {PRODUCER_BYTE_RATE: 1.0}})
    assert of_client.account(ANN, "a").produced is not of_client.account(ANN, "b").produced
    assert of_client.account(ANN, "a").produced is of_client.account("User:bob", "a").produced


def test_another_limit_counts_on_from_what_was_used() -> None:
    found = following({((USER, "ann"),): {PRODUCER_BYTE_RATE: 1_000.0}})
    meter = found.account(ANN, "a").produced
    assert meter is not None
    assert meter.charge(10_000, NOW_MS) == 0
    generation = found.generation
    found.follow({((USER, "ann"),): {PRODUCER_BYTE_RATE: 500.0}})
    assert found.generation > generation
    meter = found.account(ANN, "a").produced
    assert meter is not None
    assert meter.wait_ms(NOW_MS) == 10_000
    found.follow({})
    assert not found.is_on
    assert found.account(ANN, "a").produced is None


def test_client_ids_without_end_do_not_take_memory_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "METERS_MAX", 10)
    found = following({((CLIENT_ID, None),): {PRODUCER_BYTE_RATE: 1.0}})
    for number in range(100):
        found.account(ANN, f"client-{number}")
    meters = {family.name: family.samples[0].value for family in found.families() if family.samples}
    assert meters["dlog_quota_meters"] == 10


def test_nor_do_ids_of_any_length() -> None:
    found = following({((CLIENT_ID, None),): {PRODUCER_BYTE_RATE: 1.0}})
    longest = "x" * NAME_LENGTH_MAX
    assert found.account(ANN, longest).produced is not found.account(ANN, longest + "1").produced
    assert found.account(ANN, longest + "11").produced is found.account(ANN, longest + "12" * 9_999).produced
    assert found.account(ANN, longest + "11").client_id == longest + "11", "what the connection is asked by"


# --- how much was used ---------------------------------------------------------------------------

uses = st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 50_000_000)), min_size=1, max_size=40)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 2_000_000), uses, st.booleans())
def test_who_waits_as_told_gets_the_limit_a_burst_and_one_request(
    limit: int, wanted: list[tuple[int, int]], is_eager: bool
) -> None:
    bucket, began_ms, now_ms, total = Bucket(), NOW_MS, NOW_MS, 0
    for pause_ms, amount in wanted:
        now_ms += 0 if is_eager else pause_ms
        assert total <= limit * (now_ms - began_ms + BURST_MS + len(wanted)) / 1000
        bucket.add(amount, limit, now_ms)
        total += amount
        wait_ms = bucket.excess_ms(limit, now_ms)
        if wait_ms == THROTTLE_MS_MAX:
            return
        now_ms += max(0, wait_ms) + 1


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 1_000_000), st.integers(1, 10_000))
def test_who_uses_less_than_the_limit_never_waits(limit: int, pause_ms: int) -> None:
    bucket = Bucket()
    for number in range(50):
        bucket.add(limit * pause_ms // 1000, limit, NOW_MS + number * pause_ms)
        assert bucket.excess_ms(limit, NOW_MS + number * pause_ms) <= 0


def test_a_burst_of_ten_seconds_is_free_and_a_byte_more_is_not() -> None:
    bucket = Bucket()
    bucket.add(10_000, 1_000, NOW_MS)
    assert bucket.excess_ms(1_000, NOW_MS) <= 0
    bucket.add(100, 1_000, NOW_MS)
    assert bucket.excess_ms(1_000, NOW_MS) == 100
    assert bucket.excess_ms(1_000, NOW_MS + 60) == 40


def test_what_a_large_request_owes_is_not_forgotten() -> None:
    bucket = Bucket()
    bucket.add(30_000, 1_000, NOW_MS)
    assert bucket.excess_ms(1_000, NOW_MS) == 20_000
    bucket.add(30_000, 1_000, NOW_MS + 20_000)
    assert bucket.excess_ms(1_000, NOW_MS + 20_000) == 30_000


def test_no_wait_is_longer_than_an_hour() -> None:
    bucket = Bucket()
    bucket.add(2**62, 1.0, NOW_MS)
    assert bucket.excess_ms(1.0, NOW_MS) == THROTTLE_MS_MAX


# --- who is charged for what ---------------------------------------------------------------------


def toll_of(key: str, limit: float) -> tuple[RequestCharges, ClientQuotas]:
    found = following({((USER, "ann"),): {key: limit}})
    return RequestCharges(found, ANN), found


def test_producers_pay_for_their_requests() -> None:
    charges, found = toll_of(PRODUCER_BYTE_RATE, 1_000.0)
    charge = charges.charge_request(PRODUCE, "a", NO_CLUSTER, size=11_000, seconds=9.0, now_ms=NOW_MS)
    assert charge == 1_000
    assert charges.charge_request(HEARTBEAT, "a", NO_CLUSTER, size=11_000, seconds=9.0, now_ms=NOW_MS) == 0
    assert (found.throttled[PRODUCER_BYTE_RATE].times, found.throttled[PRODUCER_BYTE_RATE].total_ms) == (
        1,
        1_000,
    )


def test_consumers_pay_for_their_answers() -> None:
    charges, _ = toll_of(CONSUMER_BYTE_RATE, 1_000.0)
    assert charges.charge_request(fetch(), "a", NO_CLUSTER, size=11_000, seconds=0.0, now_ms=NOW_MS) == 0
    assert charges.charge_response(ApiKey.HEARTBEAT, "a", 11_000, NOW_MS) == 0
    assert charges.charge_response(ApiKey.FETCH, "a", 11_000, NOW_MS) == 1_000


@pytest.mark.parametrize("in_state", [False, True])
def test_who_says_that_it_is_a_follower_is_charged_as_everybody_is(in_state: bool) -> None:
    cluster = Stage()
    cluster.start(1, 2)
    charges, _ = toll_of(CONSUMER_BYTE_RATE, 1.0)
    charges.charge_request(
        fetch(2, in_state=in_state), "a", cluster.image, size=1, seconds=9.0, now_ms=NOW_MS
    )
    assert charges.charge_response(ApiKey.FETCH, "a", 1_000, NOW_MS) > 0


def test_whoever_keeps_the_thread_busy_waits_but_never_long() -> None:
    charges, _ = toll_of(REQUEST_PERCENTAGE, 10.0)
    assert charges.charge_request(HEARTBEAT, "a", NO_CLUSTER, size=1, seconds=1.0, now_ms=NOW_MS) == 0
    assert charges.charge_request(HEARTBEAT, "a", NO_CLUSTER, size=1, seconds=0.05, now_ms=NOW_MS) == 500
    assert charges.charge_request(HEARTBEAT, "a", NO_CLUSTER, size=1, seconds=9.0, now_ms=NOW_MS) == 1_000


def creation(*counts: int, validate_only: bool = False) -> CreateTopicsRequest:
    topics = [
        CreatableTopic(
            name=f"t{number}", num_partitions=count, replication_factor=1, assignments=[], configs=[]
        )
        for number, count in enumerate(counts)
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=1, validate_only=validate_only)


def test_partitions_are_counted_where_they_are_made_and_removed() -> None:
    cluster = Stage(config(num_partitions=3))
    cluster.start(1)
    cluster.create("three", (1,), (1,), (1,))
    image = cluster.image
    assert mutations(creation(4, AS_CONFIGURED), image) == 7
    assert mutations(creation(4, validate_only=True), image) == 0
    assert mutations(creation(2**31 - 1, 2**31 - 1), image) == MUTATIONS_MAX, (
        "it is refused, and not for years"
    )
    more = [CreatePartitionsTopic(name=name, count=5, assignments=None) for name in ("three", "nobody's")]
    assert mutations(CreatePartitionsRequest(topics=more, timeout_ms=1, validate_only=False), image) == 7
    gone = [
        DeleteTopicState(name="three", topic_id=image.topic_ids["three"]),
        DeleteTopicState(name=None, topic_id=image.topic_ids["three"]),
    ]
    assert mutations(DeleteTopicsRequest(topics=gone, topic_names=["three"], timeout_ms=1), image) == 6
    assert mutations(HEARTBEAT, image) == 0


def test_a_topic_without_a_count_costs_as_many_partitions_as_it_gets() -> None:
    charges, _ = toll_of(CONTROLLER_MUTATION_RATE, 1.0)
    image = Stage(config(num_partitions=12)).image
    wait_ms = charges.charge_request(creation(AS_CONFIGURED), "a", image, size=1, seconds=0.0, now_ms=NOW_MS)
    assert wait_ms == 2_000


def test_new_clients_are_refused_while_they_made_too_much_and_old_ones_wait() -> None:
    charges, _ = toll_of(CONTROLLER_MUTATION_RATE, 1.0)
    assert charges.throttle_before_ms(ApiKey.CREATE_TOPICS, 7, "a", NOW_MS) == 0
    wait_ms = charges.charge_request(creation(12), "a", NO_CLUSTER, size=1, seconds=0.0, now_ms=NOW_MS)
    assert wait_ms == 2_000
    assert charges.throttle_before_ms(ApiKey.CREATE_TOPICS, 6, "a", NOW_MS) == 2_000
    assert charges.throttle_before_ms(ApiKey.CREATE_TOPICS, 5, "a", NOW_MS) == 0
    assert charges.throttle_before_ms(ApiKey.PRODUCE, 9, "a", NOW_MS) == 0
