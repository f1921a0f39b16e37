"""Every state with every event stands in one table, and epochs are never given twice."""

from distributedlog.transactions.sinks.query import (
    REFUSALS,
    SINK_STATES,
    TRANSITIONS,
    Event,
    Lease,
    lease_again,
    lease_new,
    release,
)
from distributedlog.transactions.transaction import EPOCH_GIVEN_MAX


def test_each_pair_stands_in_one_table() -> None:
    assert not TRANSITIONS.keys() & REFUSALS.keys()
    assert TRANSITIONS.keys() | REFUSALS.keys() == {
        (state, event) for state in (None, *SINK_STATES) for event in Event
    }


def test_no_epoch_of_a_lease_or_its_markers_is_used_twice() -> None:
    lease, used = lease_new("a", 1), []
    for _ in range(3):
        used += [lease.epoch, lease.marker_epoch]
        free = release(lease, 2)
        assert free is not None
        assert not free.is_open
        lease = lease_again(free, "b", 3)
    assert used == sorted(set(used))


def test_an_id_leaves_the_pool_before_its_epochs_run_out() -> None:
    epoch = EPOCH_GIVEN_MAX - 4
    kept = release(Lease(epoch=epoch, attempt_id="a"), 1)
    assert kept is not None
    last = lease_again(kept, "b", 1)
    assert last.marker_epoch <= EPOCH_GIVEN_MAX
    assert release(Lease(epoch=EPOCH_GIVEN_MAX - 1, attempt_id="a"), 1) is None
