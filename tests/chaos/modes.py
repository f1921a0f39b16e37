"""What a run promises its clients: the safe settings, others with which records may be lost, and clients
that break the rules.

    mode      what is set                                             what must be found
    safe      acks=all, idempotent, 3 replicas, 2 in sync             nothing
    acks-1    acks=1: the leader answers before anybody else has it   a loss: the leader outran the others
    unclean   unclean.leader.election.enable, 2 replicas, 1 in sync   a loss: one outside the ISR was elected
    unsynced  flush.on.commit=false: nobody syncs what is committed   a loss: the power was cut everywhere
    careless  transactional clients read what is not committed,       aborted read, own uncommitted read,
              and leave their last transaction open                   hanging LSO, not transformed: each

All but the first show that the checker can see: a run of theirs in which it does not find that has failed.
Transactional clients are there in the first and the last.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.reliability.checker import Finding

LOSSES = frozenset({"lost write", "unseen"})


@dataclass(frozen=True, slots=True)
class Mode:
    name: str
    topic_config: Mapping[str, str]
    replicas: int = 3
    acks: str = "all"
    nemeses: Sequence[str] = field(default=())
    """The faults that show it; none: all that may happen."""
    must_find: Sequence[frozenset[str]] = ()
    """Sets of findings, of each of which one must be there; none: nothing may be found."""
    is_careless: bool = False

    @property
    def has_transactions(self) -> bool:
        return self.is_careless or not self.must_find

    def is_as_expected(self, findings: Sequence[Finding]) -> bool:
        found = {finding.name for finding in findings}
        return all(found & wanted for wanted in self.must_find) if self.must_find else not found


SAFE = Mode("safe", {"min.insync.replicas": "2"})
ACKS_1 = Mode("acks-1", {"min.insync.replicas": "1"}, acks="1", nemeses=("outrun",), must_find=(LOSSES,))
UNCLEAN = Mode(
    "unclean",
    {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"},
    replicas=2,
    nemeses=("leave-behind",),
    must_find=(LOSSES,),
)
UNSYNCED = Mode(
    "unsynced",
    {"min.insync.replicas": "2", "flush.on.commit": "false"},
    nemeses=("power-cut-all",),
    must_find=(LOSSES,),
)
CARELESS = Mode(
    "careless",
    {"min.insync.replicas": "2"},
    nemeses=("kill-transactions",),
    must_find=tuple(
        frozenset({each})
        for each in ("aborted read", "own uncommitted read", "hanging LSO", "not transformed")
    ),
    is_careless=True,
)
MODES: Mapping[str, Mode] = {mode.name: mode for mode in (SAFE, ACKS_1, UNCLEAN, UNSYNCED, CARELESS)}
