"""A leader over its throttle leaves out what a follower is not in sync with; whoever is in sync gets all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distributedlog.broker.net.pending import PendingResponse
from distributedlog.broker.quotas.replication_quotas import BURST_MS, QUANTUM_MS, ReplicationQuota
from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.fetch import FetchResponse
from tests.unit.broker.handlers.data_requests import only, values
from tests.unit.broker.handlers.data_stage import TOPIC, TOPIC_NUMBER, DataBroker, data_broker
from tests.unit.broker.handlers.test_fetch_follower import OPENING, VERSION, ask
from tests.unit.broker.handlers.test_sasl_handshake import prove
from tests.unit.broker.partition_stage import ME, OTHER
from tests.unit.storage.support import batch_of, value_of

BATCHES = 4
BATCH_BYTES = len(batch_of([value_of(0)]))


@contextmanager
def moving(root: Path, *, isr: tuple[int, ...] = (ME,)) -> Iterator[DataBroker]:
    """The other broker has a replica, and lacks four committed batches; the limit is one in a second."""
    with data_broker(root) as broker:
        broker.fill(*range(BATCHES))
        broker.register(OTHER, 9_002)
        broker.metadata.change(TOPIC_NUMBER, replicas=[ME, OTHER], isr=list(isr))
        broker.follow()
        assert prove(broker).error_code == ErrorCode.NONE
        quota_of(broker).set_limit(BATCH_BYTES * 1_000 // BURST_MS)
        quota_of(broker).set_throttled(TOPIC, frozenset({0}))
        yield broker


def quota_of(broker: DataBroker) -> ReplicationQuota:
    return broker.services.replication_quotas.leader


def test_a_follower_out_of_sync_is_sent_what_the_limit_allows_and_then_nothing(tmp_path: Path) -> None:
    with moving(tmp_path) as broker:
        data = only(broker.ask(ask(0), VERSION, FetchResponse))
        assert values(data) == [value_of(0)], "a burst is one batch here"
        assert quota_of(broker).total_bytes == BATCH_BYTES
        response = broker.ask(ask(1), VERSION, FetchResponse)
        assert (response.error_code, response.responses) == (ErrorCode.NONE, [])
        view = broker.partition.view
        assert view is not None
        assert view.followers[OTHER].log_end_offset == 1, "its fetch is noted all the same"
        broker.clock.advance(BURST_MS)
        assert values(only(broker.ask(ask(1), VERSION, FetchResponse))) == [value_of(1)]


def test_a_throttled_fetch_waits_only_until_something_may_be_sent(tmp_path: Path) -> None:
    with moving(tmp_path) as broker:
        session = broker.ask(ask(0, session=(0, OPENING)), VERSION, FetchResponse).session_id
        waiting = broker.begin(ask(1, session=(session, 1), max_wait_ms=30_000), VERSION)
        assert isinstance(waiting, PendingResponse)
        broker.fill(BATCHES)  # of what is left out nobody hears before
        assert not waiting.is_decided
        broker.stage.scheduler.advance(QUANTUM_MS + 10)
        assert values(only(broker.finish(waiting, VERSION, FetchResponse))) == [value_of(1)]


def test_a_member_of_the_isr_is_sent_all_and_costs_nothing(tmp_path: Path) -> None:
    with moving(tmp_path, isr=(ME, OTHER)) as broker:
        quota_of(broker).record(1_000 * BATCH_BYTES, broker.clock.monotonic_ms())
        data = only(broker.ask(ask(0), VERSION, FetchResponse))
        assert values(data) == [value_of(each) for each in range(BATCHES)]
        assert quota_of(broker).total_bytes == 1_000 * BATCH_BYTES


def test_who_is_about_to_join_the_isr_is_not_throttled(tmp_path: Path) -> None:
    """It counts for the high watermark as soon as it is proposed: throttled, it would hold it back."""
    with moving(tmp_path) as broker:
        quota_of(broker).record(1_000 * BATCH_BYTES, broker.clock.monotonic_ms())
        assert broker.ask(ask(1), VERSION, FetchResponse).responses == []
        only(broker.ask(ask(BATCHES), VERSION, FetchResponse))
        view = broker.partition.view
        assert view is not None
        proposal = view.propose(BATCHES, broker.clock.monotonic_ms(), 1_000)
        assert proposal is not None
        assert OTHER in proposal.isr
        broker.produce(batch_of([value_of(BATCHES)]))
        assert values(only(broker.ask(ask(BATCHES), VERSION, FetchResponse))) == [value_of(BATCHES)]


def test_partitions_of_other_topics_and_other_brokers_are_not_throttled(tmp_path: Path) -> None:
    with moving(tmp_path) as broker:
        quota_of(broker).set_throttled(TOPIC, frozenset({1}))
        quota_of(broker).record(1_000 * BATCH_BYTES, broker.clock.monotonic_ms())
        data = only(broker.ask(ask(0), VERSION, FetchResponse))
        assert values(data) == [value_of(each) for each in range(BATCHES)]
