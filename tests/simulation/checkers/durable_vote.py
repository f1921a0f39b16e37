"""Durable vote: a vote is asked for or given only once it is where a crash cannot take it."""

from distributedlog.raft import Message
from distributedlog.raft.messages import VoteReply, VoteRequest
from tests.simulation.checkers import Checker


class DurableVote(Checker):
    name = "durable vote"

    def on_send(self, node_id: int, incarnation: int, message: Message) -> None:
        if isinstance(message, VoteRequest) and not message.pre_vote:
            self._check(node_id, message.term, node_id)
        elif isinstance(message, VoteReply) and not message.pre_vote and message.granted:
            self._check(node_id, message.term, message.to)

    def _check(self, node_id: int, term: int, candidate: int) -> None:
        durable = self.view.durable_vote(node_id)
        if durable != (term, candidate):
            self.fail(f"node {node_id} votes for {candidate} in term {term}; its disk says {durable}")
