"""A leader's view of its replicas: what is committed, and who is in sync.  Pure.

    position   of the leader: its flushed end, or its end where the topic does not wait for the disk;
               of a follower: the offset it fetches from, since it fetches from what it has stored

    high watermark = min(position) over the ISR and over whoever was proposed to join it

It never goes back, and advances only while the ISR has `min.insync.replicas` members (or all replicas, if
the topic has fewer): else the last replica standing would commit what nobody else has.

A follower is *caught up* at the time of a fetch from the leader's end, and at the time of its previous fetch
when it fetches from where the leader's end was then.  It is out of sync if it has not been caught up for
`replica.lag.time.max.ms` and still is not.  It may join once it fetches from the high watermark and from
this leader's first offset, or from behind them.

Changes are proposed as data; the controller decides.  While a proposal is open whoever it would add counts
for the high watermark already, because the controller may have accepted it, and whoever it would remove
counts still, because it may not have.

    propose ──► proposal ──► replicas_are (accepted, or overtaken) │ withdraw (refused)

Soft state: a new leader knows no follower's position, so nothing is committed before the ISR has fetched.
"""

from typing import NamedTuple

UNKNOWN_POSITION = -1
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
        "position",
    )

    def __init__(self, broker_id: int, caught_up_ms: int | None) -> None:
        self.broker_id = broker_id
        self.broker_epoch = UNKNOWN_EPOCH
        self.position = UNKNOWN_POSITION
        self.fetched_ms = 0
        self.leader_end_at_fetch = UNKNOWN_POSITION
        self.caught_up_ms = caught_up_ms
        """None: never yet, as far as this leader knows."""

    def fetched(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        if offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif self.leader_end_at_fetch != UNKNOWN_POSITION and offset >= self.leader_end_at_fetch:
            self.caught_up_ms = max(self.caught_up_ms or 0, self.fetched_ms)
        self.position = offset
        self.fetched_ms = now_ms
        self.leader_end_at_fetch = leader_end_offset

    def lags(self, leader_end_offset: int, now_ms: int, lag_ms_max: int) -> bool:
        if self.position == leader_end_offset:
            return False
        return self.caught_up_ms is None or now_ms - self.caught_up_ms > lag_ms_max


class LeaderView:
    """Of one leader epoch.  A new epoch begins with a new view."""

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
    ) -> None:
        self.leader_id = leader_id
        self.high_watermark = high_watermark
        self.epoch_start_offset = epoch_start_offset
        """Where the log ended when this leader began."""
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.followers: dict[int, Follower] = {}
        self.proposal: IsrProposal | None = None
        self.is_short = False
        """Fewer are in sync than acks=all wants."""
        self._min_insync_replicas = min_insync_replicas
        self._counted: tuple[Follower, ...] = ()
        self.replicas_are(replicas, isr, now_ms)

    # --- what the controller says --------------------------------------------------------------

    def replicas_are(self, replicas: tuple[int, ...], isr: tuple[int, ...], now_ms: int) -> None:
        """The replicas and the ISR as the controller has them; an open proposal is settled by it."""
        known = self.followers
        self.followers = {
            broker_id: known.get(broker_id) or Follower(broker_id, now_ms if broker_id in isr else None)
            for broker_id in replicas
            if broker_id != self.leader_id
        }
        self.replicas, self.isr, self.proposal = replicas, isr, None
        self._settle()

    def set_min_insync_replicas(self, count: int) -> None:
        self._min_insync_replicas = count
        self._settle()

    def _settle(self) -> None:
        members = set(self.isr)
        if self.proposal is not None:
            members.update(self.proposal.isr)
        self._counted = tuple(self.followers[each] for each in members if each in self.followers)
        self.is_short = len(self.isr) < min(self._min_insync_replicas, len(self.replicas))

    # --- what is committed ---------------------------------------------------------------------

    def fetched(
        self,
        broker_id: int,
        offset: int,
        *,
        leader_end_offset: int,
        now_ms: int,
        broker_epoch: int = UNKNOWN_EPOCH,
    ) -> bool:
        """A follower fetches from `offset`: it has stored all before.  False if it is no replica, or if the
        fetch is of an earlier life of that broker."""
        follower = self.followers.get(broker_id)
        if follower is None or UNKNOWN_EPOCH < broker_epoch < follower.broker_epoch:
            return False
        follower.broker_epoch = max(follower.broker_epoch, broker_epoch)
        follower.fetched(offset, leader_end_offset, now_ms)
        return True

    def advance(self, own_position: int) -> bool:
        """Whether the high watermark rose, now that the leader's own position is this."""
        if self.is_short:
            return False
        mark = own_position
        for follower in self._counted:
            if follower.position < mark:
                mark = follower.position
        if mark <= self.high_watermark:
            return False
        self.high_watermark = mark
        return True

    # --- who is in sync ------------------------------------------------------------------------

    def propose(self, leader_end_offset: int, now_ms: int, lag_ms_max: int) -> IsrProposal | None:
        """The ISR as it should be, if that is another one and no proposal is open; now this one is."""
        if self.proposal is not None:
            return None
        members = tuple(
            (broker_id, self._epoch_of(broker_id))
            for broker_id in self.replicas
            if self._belongs(broker_id, leader_end_offset, now_ms, lag_ms_max)
        )
        proposal = IsrProposal(members)
        if set(proposal.isr) == set(self.isr):
            return None
        self.proposal = proposal
        self._settle()
        return proposal

    def withdraw(self) -> None:
        """The open proposal was refused: the ISR is what it was."""
        self.proposal = None
        self._settle()

    def _epoch_of(self, broker_id: int) -> int:
        follower = self.followers.get(broker_id)
        return UNKNOWN_EPOCH if follower is None else follower.broker_epoch

    def _belongs(self, broker_id: int, leader_end_offset: int, now_ms: int, lag_ms_max: int) -> bool:
        follower = self.followers.get(broker_id)
        if follower is None:
            return True  # the leader itself
        if broker_id in self.isr:
            return not follower.lags(leader_end_offset, now_ms, lag_ms_max)
        return follower.position >= max(self.high_watermark, self.epoch_start_offset)
