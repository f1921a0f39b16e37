"""One vote: a node gives at most one vote in a term, whatever it forgot in between."""

from distributedlog.raft import Message
from distributedlog.raft.messages import VoteReply, VoteRequest
from tests.simulation.checkers import Checker, View


class OneVote(Checker):
    name = "one vote"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._votes: dict[tuple[int, int, int], int] = {}

    def on_send(self, node_id: int, incarnation: int, message: Message) -> None:
        if isinstance(message, VoteRequest) and not message.pre_vote:
            self._voted(node_id, incarnation, message.term, node_id)
        elif isinstance(message, VoteReply) and not message.pre_vote and message.granted:
            self._voted(node_id, incarnation, message.term, message.to)

    def _voted(self, node_id: int, incarnation: int, term: int, candidate: int) -> None:
        voted = self._votes.setdefault((node_id, incarnation, term), candidate)
        if voted != candidate:
            self.fail(f"node {node_id} voted for {voted} and for {candidate} in term {term}")
