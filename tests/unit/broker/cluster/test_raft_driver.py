"""The driver's own duties: order, refusal of noise, and what happens when the disk fails or forgets.

How it behaves in a cluster under faults is the simulation's subject.
"""

import errno
from collections.abc import Callable

import pytest

from distributedlog.broker.cluster.leader_watch import SilentLeader
from distributedlog.broker.cluster.raft_driver import RaftDriver, RaftStorage
from distributedlog.data_directory.raft_storage import LogRaftStorage
from distributedlog.model.errors import (
    DiskFullError,
    LeadershipLostError,
    MalformedMessageError,
    NotLeaderError,
)
from distributedlog.ports.executor import Outcome
from distributedlog.ports.transport import Receive
from distributedlog.raft import (
    AddObserver,
    Entry,
    EntryKind,
    HardState,
    Membership,
    Message,
    Persist,
    RaftConfig,
    Role,
    codec,
)
from distributedlog.raft.messages import AppendRequest, Heartbeat, InstallRequest, VoteReply, VoteRequest
from distributedlog.storage.files import Files
from tests.simulation.clock import ManualClock, SeededRandomness
from tests.simulation.disk import SimDisk
from tests.simulation.executor import StepExecutor
from tests.simulation.raft_storage import DIRECTORY, DiskRaftStorage

CONFIG = RaftConfig()


class Words:
    """A state machine that remembers what it was told."""

    def __init__(self) -> None:
        self.words: list[bytes] = []

    def apply(self, entry: Entry) -> object:
        self.words.append(entry.payload)
        return len(self.words)

    def snapshot(self) -> bytes:
        return b" ".join(self.words)

    def restore(self, data: bytes) -> None:
        self.words = data.split()

    def check_entry(self, payload: bytes) -> None:
        if payload == b"garbage":
            raise MalformedMessageError("that is no word")

    def check_snapshot(self, data: bytes, index: int) -> None:
        self.check_entry(data)


class Bench:
    """One driver with everything it touches in reach; also its transport and its thread."""

    def __init__(
        self,
        *voters: int,
        disk: SimDisk | None = None,
        snapshot_interval_entries: int = 1000,
        config: RaftConfig = CONFIG,
        storage: RaftStorage | None = None,
    ) -> None:
        self.disk = disk or SimDisk(1)
        self.storage = DiskRaftStorage(self.disk, lambda what, value: None)
        if disk is None:
            self.storage.format()
            self.storage = DiskRaftStorage(self.disk, lambda what, value: None)
        self.clock = ManualClock()
        self.executor = StepExecutor()
        self.words = Words()
        self.sent: list[tuple[int, bytes]] = []
        self.alarms: list[tuple[int, Callable[[], None]]] = []
        self.failures: list[BaseException] = []
        self.refused: list[tuple[int, str]] = []
        self.driver = RaftDriver(
            1,
            config,
            Membership.of_voters(*voters),
            self.words,
            storage=storage or self.storage,
            transport=self,
            executor=self.executor,
            clock=self.clock,
            scheduler=self,
            randomness=SeededRandomness(1),
            snapshot_interval_entries=snapshot_interval_entries,
            failed=self.failures.append,
            contents=self.words,
            refused=lambda sender, reason: self.refused.append((sender, reason)),
        )

    def send(self, node_id: int, message: bytes) -> None:
        self.sent.append((node_id, message))

    def on_receive(self, receive: Receive) -> None:
        self.receive = receive

    def close(self) -> None:
        return None

    def call_at(self, monotonic_ms: int, callback: Callable[[], None]) -> None:
        self.alarms.append((monotonic_ms, callback))

    def post(self, callback: Callable[[], None]) -> None:
        callback()

    def ring(self) -> None:
        """Time goes on to the next alarm."""
        self.alarms.sort(key=lambda alarm: alarm[0])
        due_ms, callback = self.alarms.pop(0)
        self.clock.advance(max(0, due_ms - self.clock.monotonic_ms()))
        callback()

    def lead(self) -> None:
        """A lone voter elects itself."""
        self.ring()
        self.executor.run_all()
        assert self.driver.status.role is Role.LEADER


def test_a_proposal_is_answered_with_what_the_state_machine_made_of_it() -> None:
    bench = Bench(1)
    bench.lead()
    answers: list[Outcome[object]] = []
    bench.driver.propose(b"hello", answers.append)
    assert not answers, "not before it is synced"
    bench.executor.run_all()
    assert [answer.value() for answer in answers] == [1]
    assert bench.words.words == [b"hello"]


def test_nothing_wakes_a_lone_leader() -> None:
    bench = Bench(1)
    bench.lead()
    bench.ring()  # the alarm of the campaign, which is over
    assert bench.alarms == []


def test_a_restart_finds_everything_again_in_snapshot_and_log() -> None:
    bench = Bench(1, snapshot_interval_entries=3)
    bench.lead()
    for word in (b"a", b"b", b"c", b"d"):
        bench.driver.propose(word, lambda outcome: None)
        bench.executor.run_all()
    bench.disk.crash("drop")
    again = Bench(1, disk=bench.disk)
    assert again.words.words == [b"a", b"b"], "the snapshot; the rest is not known to be committed yet"
    again.lead()
    assert again.words.words == [b"a", b"b", b"c", b"d"]
    assert again.driver.status.term == bench.driver.status.term + 1


def test_a_read_waits_until_the_state_machine_is_there() -> None:
    bench = Bench(1)
    bench.lead()
    seen: list[list[bytes]] = []
    bench.driver.propose(b"x", lambda outcome: None)
    bench.executor.run_all()
    bench.driver.read(lambda outcome: seen.append(list(bench.words.words)))
    assert seen == [[b"x"]]


def test_a_change_of_members_is_answered_when_it_is_made() -> None:
    bench = Bench(1)
    bench.lead()
    answers: list[Outcome[object]] = []
    bench.driver.change_membership(AddObserver(2), answers.append)
    bench.executor.run_all()
    assert [answer.error for answer in answers] == [None]
    assert 2 in bench.driver.status.membership.observers


def test_noise_and_messages_under_a_false_name_are_dropped() -> None:
    bench = Bench(1, 2, 3)
    bench.receive(2, b"noise")
    bench.receive(2, codec.encode(Heartbeat(3, 1, 9, 0, 1)))
    assert bench.driver.status.term == 0
    assert bench.refused == [(2, "malformed"), (2, "malformed")]
    bench.receive(3, codec.encode(Heartbeat(3, 1, 9, 0, 1)))
    assert bench.driver.status.term == 9


@pytest.mark.parametrize(
    ("sender", "message", "reason"),
    [
        (99, Heartbeat(99, 1, 9, 0, 1), "not a member"),
        (99, Heartbeat(99, 1, 2**63 - 1, 0, 1), "not a member"),
        (2, Heartbeat(2, 1, 2**63 - 1, 0, 1), "out of range"),
        (2, Heartbeat(2, 1, 2**31, 0, 1), "out of range"),
        (2, AppendRequest(2, 1, 9, 0, 0, 1, (Entry(1, 9, EntryKind.COMMAND, b"garbage"),)), "unreadable"),
        (2, InstallRequest(2, 1, 9, 5, 9, Membership.of_voters(2), 7, 0, b"garbage"), "unreadable"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_refused_is_told_and_leaves_nothing_on_the_disk(
    sender: int, message: Message, reason: str
) -> None:
    bench = Bench(1, 2, 3)
    operations = bench.disk.operations
    bench.receive(sender, codec.encode(message))
    bench.executor.run_all()
    assert bench.refused == [(sender, reason)]
    assert (bench.disk.operations, bench.sent, bench.failures) == (operations, [], [])
    bench.disk.crash("drop")
    again = Bench(1, 2, 3, disk=bench.disk)
    assert again.driver.status.term == 0


def test_garbage_is_refused_to_whoever_proposes_it() -> None:
    bench = Bench(1)
    bench.lead()
    with pytest.raises(MalformedMessageError):
        bench.driver.propose(b"garbage", lambda outcome: None)
    bench.driver.propose(b"word", lambda outcome: None)
    bench.executor.run_all()
    assert bench.words.words == [b"word"]


def test_a_leader_that_refuses_is_stood_against_sooner_unless_it_was_heard_meanwhile() -> None:
    bench = Bench(1, 2, 3)
    timeout_ms = CONFIG.election_timeout_ms
    bench.receive(2, codec.encode(Heartbeat(2, 1, 1, 0, 0)))
    assert bench.driver.is_following
    assert bench.driver.find_silent_leader(400) is None
    bench.clock.advance(400)
    silent = bench.driver.find_silent_leader(400)
    assert silent == SilentLeader(2, bench.clock.monotonic_ms() - 400)
    bench.receive(2, codec.encode(Heartbeat(2, 1, 1, 0, 0)))
    bench.driver.leader_refuses(silent)
    deadline_ms = bench.driver.node.next_deadline_ms()
    heard_ms = bench.clock.monotonic_ms()
    assert deadline_ms is not None
    assert deadline_ms > heard_ms + timeout_ms + timeout_ms // 8
    bench.clock.advance(400)
    silent = bench.driver.find_silent_leader(400)
    assert silent is not None
    bench.driver.leader_refuses(silent)
    deadline_ms = bench.driver.node.next_deadline_ms()
    assert deadline_ms is not None
    assert heard_ms + timeout_ms <= deadline_ms <= heard_ms + timeout_ms + timeout_ms // 8
    while bench.driver.status.role is Role.FOLLOWER:
        bench.ring()
    assert bench.clock.monotonic_ms() == deadline_ms


def test_who_does_not_vote_looks_for_no_silent_leader() -> None:
    """It was removed, say: it follows the leader that told it so, and is never told anything again."""
    bench = Bench(1, 2, 3)
    left = Entry(1, 1, EntryKind.MEMBERSHIP, codec.encode_membership(Membership.of_voters(2, 3)))
    bench.receive(2, codec.encode(AppendRequest(2, 1, 1, 0, 0, 1, (left,))))
    bench.executor.run_all()
    assert (bench.driver.node.core.leader_id, bench.driver.node.may_vote) == (2, False)
    bench.clock.advance(1_000_000)
    assert bench.driver.find_silent_leader(400) is None


def test_a_vote_is_sent_after_the_sync_and_not_before() -> None:
    bench = Bench(1, 2, 3)
    bench.receive(2, codec.encode(VoteRequest(2, 1, 1, 0, 0, 0, False, False)))
    assert bench.sent == []
    bench.executor.run_all()
    assert bench.sent == [(2, codec.encode(VoteReply(1, 2, 1, False, True)))]


def test_a_failed_sync_ends_the_driver_and_whoever_waits_is_told_that_nobody_knows() -> None:
    bench = Bench(1)
    bench.lead()
    answers: list[Outcome[object]] = []
    bench.driver.propose(b"x", answers.append)
    bench.disk.inject("sync")
    bench.executor.run_all()
    assert [type(answer.error) for answer in answers] == [LeadershipLostError]
    assert [type(failure) for failure in bench.failures] == [OSError]
    bench.disk.heal()
    operations = bench.disk.operations
    bench.receive(2, codec.encode(Heartbeat(2, 1, 9, 0, 1)))
    bench.executor.run_all()
    assert bench.disk.operations == operations, "a failed disk is never written again"


@pytest.mark.parametrize("where", ["*/raft-state*", "*/log/*.log", "*/log/leader-epoch-checkpoint*"])
def test_a_full_disk_is_waited_for_and_nothing_is_lost_or_written_twice(where: str) -> None:
    disk = SimDisk(1)
    LogRaftStorage(Files(disk), DIRECTORY, ManualClock()).format()
    bench = Bench(1, disk=disk, storage=LogRaftStorage(Files(disk), DIRECTORY, ManualClock()))
    full = disk.inject("write", where, errno.ENOSPC, count=1000)
    for _ in range(4):
        bench.ring()
        bench.executor.run_all()
    assert full.hits > 1, "it was tried again"
    assert bench.failures == []
    disk.heal()
    while bench.alarms:
        bench.ring()
        bench.executor.run_all()
    answers: list[Outcome[object]] = []
    bench.driver.propose(b"a", answers.append)
    bench.executor.run_all()
    assert [answer.value() for answer in answers] == [1]
    disk.crash("drop")
    again = LogRaftStorage(Files(disk), DIRECTORY, ManualClock()).load()
    assert not again.lost
    assert [entry.payload for entry in again.recovered.entries] == [b"", b"a"]


def test_a_log_that_could_not_be_cut_for_want_of_room_ends_the_driver() -> None:
    persist = Persist(None, None, False, 2, (Entry(2, 1, EntryKind.COMMAND, b"x"),), 1)
    bench = Bench(1)
    bench.driver._persisted(persist, Outcome(error=DiskFullError("there is no room")))
    assert [type(failure) for failure in bench.failures] == [DiskFullError]


def test_a_state_too_large_for_a_snapshot_keeps_its_log_and_goes_on() -> None:
    bench = Bench(1, snapshot_interval_entries=3, config=RaftConfig(snapshot_bytes_max=64))
    bench.lead()
    words = [bytes([letter]) * 40 for letter in b"abcdefgh"]
    for word in words:
        bench.driver.propose(word, lambda outcome: None)
        bench.executor.run_all()
    assert bench.failures == []
    assert bench.words.words == words
    bench.disk.crash("drop")
    again = Bench(1, disk=bench.disk)
    again.lead()
    assert again.words.words == words


def test_a_stopped_driver_refuses_instead_of_never_answering() -> None:
    bench = Bench(1)
    bench.lead()
    bench.driver.stop()
    requests: list[Callable[[], object]] = [
        lambda: bench.driver.propose(b"x", lambda outcome: None),
        lambda: bench.driver.change_membership(AddObserver(2), lambda outcome: None),
        lambda: bench.driver.read(lambda outcome: None),
        lambda: bench.driver.transfer_leadership(2),
    ]
    for request in requests:
        with pytest.raises(NotLeaderError, match="stopped"):
            request()


def test_an_entry_that_cannot_be_applied_ends_the_driver_and_is_not_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(1)
    bench.lead()
    apply = bench.words.apply

    def refuse_poison(entry: Entry) -> object:
        if entry.payload == b"poison":
            raise ZeroDivisionError
        return apply(entry)

    monkeypatch.setattr(bench.words, "apply", refuse_poison)
    answers: list[Outcome[object]] = []
    for payload in (b"sweet", b"poison", b"sour"):
        bench.driver.propose(payload, answers.append)
    with pytest.raises(ZeroDivisionError):
        bench.executor.run_all()
    bench.executor.run_all()
    assert bench.words.words == [b"sweet"]
    assert [type(answer.error) for answer in answers] == [
        type(None),
        LeadershipLostError,
        LeadershipLostError,
    ]
    assert [type(failure) for failure in bench.failures] == [ZeroDivisionError]


def test_a_leader_that_is_overruled_tells_its_callers() -> None:
    bench = Bench(1, 2, 3)
    bench.ring()
    bench.receive(2, codec.encode(VoteReply(2, 1, 1, True, True)))
    bench.executor.run_all()
    bench.receive(2, codec.encode(VoteReply(2, 1, 1, False, True)))
    bench.executor.run_all()
    answers: list[object] = []
    bench.driver.propose(b"x", lambda outcome: answers.append(type(outcome.error)))
    bench.driver.read(lambda outcome: answers.append(type(outcome.error)))
    bench.receive(3, codec.encode(Heartbeat(3, 1, 2, 0, 1)))
    assert answers == [LeadershipLostError, LeadershipLostError]
    with pytest.raises(NotLeaderError):
        bench.driver.propose(b"y", lambda outcome: None)


def test_a_storage_that_lost_something_gets_a_new_incarnation_for_good() -> None:
    bench = Bench(1)
    bench.lead()
    bench.disk.crash("drop")
    for name in bench.disk.list_directory(DIRECTORY):
        bench.disk.remove(f"{DIRECTORY}/{name}")
    again = Bench(1, disk=bench.disk)
    incarnation = again.driver.node.core.incarnation
    assert incarnation > 0
    assert not again.driver.node.may_vote
    assert again.alarms == [], "it never campaigns"
    bench.disk.crash("drop")
    loaded = DiskRaftStorage(bench.disk, lambda what, value: None).load()
    assert not loaded.lost
    assert loaded.recovered.hard_state == HardState(incarnation=incarnation)
