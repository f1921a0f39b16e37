"""A broker tells with its heartbeats where the logs end that nobody leads."""

from distributedlog.broker.cluster.lifecycle import LifecycleState as S
from distributedlog.controller.sessions.log_ends import LOG_ENDS_PER_HEARTBEAT_MAX, ReplicaLogEnd
from distributedlog.model.ids import Uuid
from tests.unit.broker.cluster.test_lifecycle import Bench


def test_log_ends_are_told_at_once_and_with_every_heartbeat_as_long_as_they_are_so() -> None:
    bench = Bench()
    bench.reach(S.RUNNING)
    bench.wait_for_heartbeat()
    bench.reply()
    end = ReplicaLogEnd(Uuid(bytes([1] * 16)), 0, 3, 2, 70)
    before_ms = bench.timers.clock.monotonic_ms()
    bench.lifecycle.tell_log_ends((end,))
    assert bench.wait_for_heartbeat().log_ends == (end,)
    assert bench.timers.clock.monotonic_ms() == before_ms
    bench.reply()
    assert bench.wait_for_heartbeat().log_ends == (end,)
    bench.reply()
    bench.lifecycle.tell_log_ends(())
    assert bench.wait_for_heartbeat().log_ends == ()


def test_more_log_ends_than_a_heartbeat_holds_are_told_in_turns() -> None:
    bench = Bench()
    count = LOG_ENDS_PER_HEARTBEAT_MAX + 1
    ends = tuple(ReplicaLogEnd(Uuid(n.to_bytes(16, "big")), 0, 3, 2, 70) for n in range(count))
    bench.lifecycle.tell_log_ends(ends)
    bench.reach(S.RUNNING)
    seen: set[ReplicaLogEnd] = set()
    for _ in range(2):
        told = bench.wait_for_heartbeat().log_ends
        assert len(told) == LOG_ENDS_PER_HEARTBEAT_MAX
        seen.update(told)
        bench.reply()
    assert seen == set(ends)
