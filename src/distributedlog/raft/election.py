"""Elections: who leads next.

A voter that hears no leader for a random time first asks what would happen (*pre-vote*): it begins no
term, so a node that was cut off and comes back disturbs nobody.  Only with a majority's consent does it
begin a term, vote for itself, and ask for votes.  A voter says yes if the candidate's log is at least as
far as its own, if it has not voted otherwise in that term, and if it hears no leader (unless that leader
asked for the election, to hand over).

Two that ask at the same moment each vote for themselves, and nobody wins: they ask again after a random time,
which is short at first and grows to that of a follower.

Where the leader's machine says that nobody listens there any more (`on_leader_refused`), chance is not needed
to keep two from asking at once: after the shortest silence that an election takes, the voters ask in turn.

Term and vote are durable before a vote is asked for or given: both are promises.  A node's own vote
is a promise to itself, so it counts when it is durable and not before.
"""

from distributedlog.raft.admission import TERM_MAX
from distributedlog.raft.core import Core
from distributedlog.raft.messages import TimeoutNow, VoteReply, VoteRequest
from distributedlog.raft.roles import Role, RoleEvent

TURNS = 8
"""The parts of an election timeout, one of which each voter has to be elected in when the leader is known to
be gone."""


def on_election_timeout(core: Core) -> None:
    """Asks whether an election could be won."""
    core.leader_id = None
    if core.term >= TERM_MAX:
        core.reset_election_timer()  # there is no later term to campaign in
        return
    core.change_role(RoleEvent.ELECTION_TIMEOUT)
    core.attempts += 1
    core.reset_retry_timer()
    core.votes = {core.node_id: True}
    if _has_won(core):
        _campaign(core, RoleEvent.MAJORITY_GRANTED, transfer=False)
        return
    for request in _requests(core, core.term + 1, pre_vote=True, transfer=False):
        core.send(request)


def on_leader_refused(core: Core, leader_id: int, now_ms: int) -> None:
    """Nobody listens where the leader did: stands for election when its turn comes, unless it would have done
    so sooner.  Never before an election timeout of silence: until then the others would refuse it."""
    if core.role is not Role.FOLLOWER or core.leader_id != leader_id or not core.is_voter:
        return
    others = sorted(each for each in core.membership.voters if each != leader_id)
    turn_ms = core.config.election_timeout_ms // TURNS
    first_ms = core.leader_heard_ms + core.config.election_timeout_ms + others.index(core.node_id) * turn_ms
    turn = max(now_ms, first_ms) + core.draw(turn_ms // 2, turn_ms)
    core.election_deadline_ms = min(core.election_deadline_ms, turn)


def on_timeout_now(core: Core, message: TimeoutNow) -> None:
    """The leader hands over: campaigns at once."""
    may_campaign = core.is_voter and core.term < TERM_MAX
    if may_campaign and core.leader_id == message.sender and core.role is Role.FOLLOWER:
        _campaign(core, RoleEvent.TIMEOUT_NOW, transfer=True)


def _campaign(core: Core, event: RoleEvent, *, transfer: bool) -> None:
    core.change_role(event)
    core.leader_id = None
    core.begin_term(core.term + 1, vote=core.node_id)
    core.reset_retry_timer()
    core.votes = {}
    core.promise(VoteReply(core.node_id, core.node_id, core.term, False, True))
    for request in _requests(core, core.term, pre_vote=False, transfer=transfer):
        core.promise(request)


def _requests(core: Core, term: int, *, pre_vote: bool, transfer: bool) -> list[VoteRequest]:
    log = core.log
    return [
        VoteRequest(
            core.node_id, node_id, term, incarnation, log.last_index, log.last_term, pre_vote, transfer
        )
        for node_id, incarnation in core.membership.voters.items()
        if node_id != core.node_id
    ]


def would_disturb(core: Core, request: VoteRequest) -> bool:
    return core.hears_leader and not request.transfer


def on_vote_request(core: Core, request: VoteRequest) -> None:
    log = core.log
    up_to_date = (request.last_term, request.last_index) >= (log.last_term, log.last_index)
    is_meant = request.voter_incarnation == core.incarnation
    if request.pre_vote:
        granted = is_meant and up_to_date and request.term > core.term and not would_disturb(core, request)
        term = request.term if granted else core.term
        core.send(VoteReply(core.node_id, request.sender, term, True, granted))
        return
    granted = is_meant and up_to_date and core.vote in (None, request.sender)
    granted = granted and not would_disturb(core, request)
    if granted and core.vote is None:
        core.vote = request.sender
        core.hard_state_dirty = True
        core.follow(RoleEvent.VOTED, None)
    core.promise(VoteReply(core.node_id, request.sender, core.term, False, granted))


def on_vote_reply(core: Core, reply: VoteReply) -> None:
    if core.role is not (Role.PRE_CANDIDATE if reply.pre_vote else Role.CANDIDATE):
        return
    if reply.pre_vote and reply.granted and reply.term != core.term + 1:
        return  # consent to an earlier question
    core.votes[reply.sender] = reply.granted
    if _has_won(core):
        if core.role is Role.PRE_CANDIDATE:
            _campaign(core, RoleEvent.MAJORITY_GRANTED, transfer=False)
        else:
            core.change_role(RoleEvent.MAJORITY_GRANTED)
    elif _has_lost(core):
        core.follow(RoleEvent.ELECTION_LOST, None)


def _has_won(core: Core) -> bool:
    return _count_votes(core, granted=True) >= core.membership.majority


def _has_lost(core: Core) -> bool:
    """Returns whether those who have not refused are too few."""
    return len(core.membership.voters) - _count_votes(core, granted=False) < core.membership.majority


def _count_votes(core: Core, *, granted: bool) -> int:
    return sum(core.votes.get(node_id) is granted for node_id in core.membership.voters)


def majority_is_lost(core: Core) -> bool:
    """Returns whether a leader has not heard a majority for an election timeout (check-quorum)."""
    heard_ms = core.majority_of(core.now_ms + 1, lambda follower: follower.heard_ms + 1) - 1
    return core.now_ms - heard_ms >= core.config.election_timeout_ms
