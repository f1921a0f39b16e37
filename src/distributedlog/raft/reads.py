"""Linearizable reads without a log entry and without trusting any clock.

A leader may answer from its state machine if it is still the leader *after* the question came.  So it
notes its commit index, sends a round of heartbeats, and once a majority has answered that round in its
term, the read may be served when the state machine has applied the noted index.  A new leader does not
know its commit index before an entry of its own term has committed: until then reads wait.

Reads that come while a round is under way wait for the next one, so that many share a round.
"""

from distributedlog.model.errors import OverloadedError
from distributedlog.raft.core import Core, PendingRead


def add_read(core: Core, request_id: int) -> bool:
    """Returns whether a new round must be sent for it."""
    if len(core.reads_waiting) + len(core.reads_confirming) >= core.config.reads_pending_max:
        raise OverloadedError(f"{core.config.reads_pending_max} reads are waiting for a majority")
    core.reads_waiting.append(request_id)
    return not core.reads_confirming and start_waiting_reads(core)


def start_waiting_reads(core: Core) -> bool:
    """Binds the waiting reads to the next round; whether one must be sent.  Alone, none is needed."""
    if not core.reads_waiting or core.commit_index < core.term_start_index:
        return False
    for request_id in core.reads_waiting:
        core.reads_confirming.append(PendingRead(request_id, core.commit_index, core.round + 1))
    core.reads_waiting.clear()
    if core.membership.majority > 1 or not core.is_voter:
        return True
    _finish(core, core.round + 1)
    return False


def confirm_reads(core: Core) -> bool:
    """A round was answered: releases what a majority confirmed; whether to send another round."""
    if not core.reads_confirming:
        return False
    _finish(core, core.majority_of(core.round, lambda follower: follower.acked_round))
    return not core.reads_confirming and start_waiting_reads(core)


def _finish(core: Core, confirmed_round: int) -> None:
    while core.reads_confirming and core.reads_confirming[0].round <= confirmed_round:
        read = core.reads_confirming.popleft()
        core.reads_done.append((read.request_id, read.read_index))
