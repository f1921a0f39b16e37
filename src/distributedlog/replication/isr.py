"""A leader's view of its replicas: what is committed, and who is in sync.  Pure.

    end offset   of the leader: its flushed end, or its log end where the topic does not wait for the disk;
                 of a follower: the offset it fetches from, since it fetches from what it has stored

    high watermark = min(end offset) over the ISR and over whoever was proposed to join it

It never goes back, and advances only while the ISR has `min.insync.replicas` members (or all replicas, if
the topic has fewer): else the last replica standing would commit what nobody else has.

A follower is *caught up* at the time of a fetch from the leader's end, and at the time of its previous fetch
when it fetches from where the leader's end was then.  It is out of sync if it has not been caught up for
`replica.lag.time.max.ms` and still is not.  It may join once it fetches from the high watermark and from
this leader's first offset, or from behind them.

Changes are proposed as data; the controller decides.  While a proposal is open whoever it would add counts
for the high watermark already, because the controller may have accepted it, and whoever it would remove
counts still, because it may not have.

    propose ──► proposal ──► set_replicas (accepted, or overtaken) │ withdraw (rejected)

Soft state: a new leader knows no follower's end offset, so nothing is committed before the ISR has fetched.
"""

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1


class IsrProposal(NamedTuple):
    """An ISR that the leader would like: brokers and the epochs they fetched in, in the replicas' order."""

    members: tuple[tuple[int, int], ...]

    @property
    def isr(self) -> tuple[int, ...]:
        return tuple(broker_id for broker_id, _ in self.members)


class Follower:
    """What the leader knows of one other replica."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "caught_up_ms",
        "fetched_ms",
        "leader_end_at_fetch",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int, caught_up_ms: int | None) -> None:
        self.broker_id = broker_id
        self.broker_epoch = UNKNOWN_EPOCH
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.fetched_ms = 0
        self.leader_end_at_fetch = UNKNOWN_OFFSET
        self.caught_up_ms = caught_up_ms
        """None: never yet, as far as this leader knows."""

    def note_fetch(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        if offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif self.leader_end_at_fetch != UNKNOWN_OFFSET and offset >= self.leader_end_at_fetch:
            self.caught_up_ms = max(self.caught_up_ms or 0, self.fetched_ms)
        self.log_end_offset = offset
        self.fetched_ms = now_ms
        self.leader_end_at_fetch = leader_end_offset

    def note_idle_fetch(self, now_ms: int) -> None:
        """Notes a fetch from the same offset as the last one, while the leader's end was the same too."""
        if UNKNOWN_OFFSET != self.leader_end_at_fetch <= self.log_end_offset and now_ms > self.fetched_ms:
            self.caught_up_ms = self.fetched_ms = now_ms

    def is_lagging(self, leader_end_offset: int, now_ms: int, lag_ms_max: int) -> bool:
        if self.log_end_offset == leader_end_offset:
            return False
        return self.caught_up_ms is None or now_ms - self.caught_up_ms > lag_ms_max


class LeaderView:
    """What a leader knows of its replicas, for one leader epoch.  A new epoch begins with a new view."""

    def __init__(
        self,
        leader_id: int,
        *,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        min_insync_replicas: int,
        high_watermark: int,
        epoch_start_offset: int,
        now_ms: int,
        adding: tuple[int, ...] = (),
        elr: tuple[int, ...] = (),
    ) -> None:
        self.leader_id = leader_id
        self.high_watermark = high_watermark
        self.epoch_start_offset = epoch_start_offset
        """Where the log ended when this leader began."""
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.elr: tuple[int, ...] = ()
        """Who is not in sync and may lead all the same: it has all that is committed."""
        self.replication_factor = 0
        self.followers: dict[int, Follower] = {}
        self.proposal: IsrProposal | None = None
        self.is_under_min_isr = False
        """Fewer are in sync than acks=all wants."""
        self.is_at_min_isr = False
        """Just as many are in sync as acks=all wants, and there are replicas more."""
        self._min_insync_replicas = min_insync_replicas
        self._counted: tuple[Follower, ...] = ()
        self.set_replicas(replicas, isr, now_ms, adding, elr)

    # --- what the controller says --------------------------------------------------------------

    def set_replicas(
        self,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        now_ms: int,
        adding: tuple[int, ...] = (),
        elr: tuple[int, ...] = (),
    ) -> None:
        """Takes the replicas and the ISR as the controller has them, which settles an open proposal.  Who is
        being added by a move does not raise the number that has to be in sync."""
        known = self.followers
        self.followers = {
            broker_id: known.get(broker_id) or Follower(broker_id, now_ms if broker_id in isr else None)
            for broker_id in replicas
            if broker_id != self.leader_id
        }
        self.replicas, self.isr, self.elr, self.proposal = replicas, isr, elr, None
        self.replication_factor = len(replicas) - len(adding)
        self._count_members()

    def set_min_insync_replicas(self, count: int) -> None:
        self._min_insync_replicas = count
        self._count_members()

    def _count_members(self) -> None:
        members = set(self.isr)
        if self.proposal is not None:
            members.update(self.proposal.isr)
        self._counted = tuple(self.followers[each] for each in members if each in self.followers)
        wanted = min(self._min_insync_replicas, self.replication_factor)
        self.is_under_min_isr = len(self.isr) < wanted
        self.is_at_min_isr = len(self.isr) == wanted < self.replication_factor

    # --- what is committed ---------------------------------------------------------------------

    def note_fetch(
        self,
        broker_id: int,
        offset: int,
        *,
        leader_end_offset: int,
        now_ms: int,
        broker_epoch: int = UNKNOWN_EPOCH,
        log_start_offset: int = UNKNOWN_OFFSET,
    ) -> bool:
        """Notes a replica fetch from `offset`: the follower has stored all before.

        False if it is no replica, or if the fetch has an older broker epoch.
        """
        follower = self.followers.get(broker_id)
        if follower is None or UNKNOWN_EPOCH < broker_epoch < follower.broker_epoch:
            return False
        follower.broker_epoch = max(follower.broker_epoch, broker_epoch)
        follower.note_fetch(offset, leader_end_offset, now_ms)
        follower.log_start_offset = log_start_offset
        return True

    def is_catching_up(self, broker_id: int, offset: int) -> bool:
        """Returns whether a follower that fetches from `offset` is out of sync and cannot join yet.  Any
        other may hold back what is committed, and is never throttled."""
        if broker_id in self.isr or (self.proposal is not None and broker_id in self.proposal.isr):
            return False
        return offset < max(self.high_watermark, self.epoch_start_offset)

    def note_idle_fetch(self, broker_id: int, now_ms: int) -> None:
        """Notes that a follower which was at the leader's end at its last fetch fetched from there again, at
        `now_ms`, before that end advanced."""
        follower = self.followers.get(broker_id)
        if follower is not None:
            follower.note_idle_fetch(now_ms)

    def may_lose_to_others_than(self, heard: Collection[int]) -> bool:
        """Returns whether anybody may be elected cleanly who is not among these: whoever counts for the high
        watermark, or is eligible."""
        rivals = (*(follower.broker_id for follower in self._counted), *self.elr)
        return any(each not in heard for each in rivals)

    def find_in_sync_with(self, offset: int) -> Iterator[Follower]:
        """Finds the followers in sync that have the record at `offset`, or will have it next."""
        for broker_id in self.isr:
            follower = self.followers.get(broker_id)
            if follower is not None and follower.log_start_offset <= offset <= follower.log_end_offset:
                yield follower

    def find_low_watermark(self, own_start_offset: int) -> int:
        """Returns the lowest log start of ISR and ELR: below it no replica that may lead has anything.  An
        eligible replica that is down counts with what it had told this leader, or with nothing."""
        low = own_start_offset
        for follower in self._counted:
            low = min(low, follower.log_start_offset)
        for broker_id in self.elr:
            if broker_id in self.followers:
                low = min(low, self.followers[broker_id].log_start_offset)
        return low

    def advance(self, own_end_offset: int) -> bool:
        """Advances the high watermark by the leader's own end offset; True if it rose."""
        if self.is_under_min_isr:
            return False
        high_watermark = own_end_offset
        for follower in self._counted:
            if follower.log_end_offset < high_watermark:
                high_watermark = follower.log_end_offset
        if high_watermark <= self.high_watermark:
            return False
        self.high_watermark = high_watermark
        return True

    # --- who is in sync ------------------------------------------------------------------------

    def propose(
        self,
        leader_end_offset: int,
        now_ms: int,
        lag_ms_max: int,
        is_eligible: Callable[[int, int], bool] = lambda _id, _epoch: True,
        *,
        leader_start_offset: int = 0,
    ) -> IsrProposal | None:
        """Opens a proposal of the ISR as it should be, if that is another one and no proposal is open.

        `is_eligible` says of a broker and the epoch it fetched in whether it may join: it is registered in
        that epoch, unfenced and not shutting down.
        """
        if self.proposal is not None:
            return None
        members = tuple(
            (broker_id, self._epoch_of(broker_id))
            for broker_id in self.replicas
            if self._is_in_sync(broker_id, leader_end_offset, leader_start_offset, now_ms, lag_ms_max)
            and (broker_id in self.isr or is_eligible(broker_id, self._epoch_of(broker_id)))
        )
        proposal = IsrProposal(members)
        if set(proposal.isr) == set(self.isr):
            return None
        self.proposal = proposal
        self._count_members()
        return proposal

    def withdraw(self) -> None:
        """Drops the open proposal, which was rejected: the ISR is what it was."""
        self.proposal = None
        self._count_members()

    def _epoch_of(self, broker_id: int) -> int:
        follower = self.followers.get(broker_id)
        return UNKNOWN_EPOCH if follower is None else follower.broker_epoch

    def _is_in_sync(
        self,
        broker_id: int,
        leader_end_offset: int,
        leader_start_offset: int,
        now_ms: int,
        lag_ms_max: int,
    ) -> bool:
        """A follower that joins has stored all that is committed, and that what the leader has deleted is
        deleted: there its log may have been another, and it could lead with that."""
        follower = self.followers.get(broker_id)
        if follower is None:
            return True  # the leader itself
        if broker_id in self.isr:
            return not follower.is_lagging(leader_end_offset, now_ms, lag_ms_max)
        has_all = follower.log_end_offset >= max(self.high_watermark, self.epoch_start_offset)
        return has_all and max(0, follower.log_start_offset) >= leader_start_offset
