"""What a run promises its clients: the safe settings, and others with which records may be lost.

    mode      what is set                                             what must be found
    safe      acks=all, idempotent, 3 replicas, 2 in sync             nothing
    acks-1    acks=1: the leader answers before anybody else has it   a loss: the leader outran the others
    unclean   unclean.leader.election.enable, 2 replicas, 1 in sync   a loss: one outside the ISR was elected
    unsynced  flush.on.commit=false: nobody syncs what is committed   a loss: the power was cut everywhere

All but the first show that the checker can see: a run of theirs in which it finds no loss has failed.
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
    loses: bool = False

    def is_as_expected(self, findings: Sequence[Finding]) -> bool:
        return bool(LOSSES & {finding.name for finding in findings}) if self.loses else not findings


SAFE = Mode("safe", {"min.insync.replicas": "2"})
ACKS_1 = Mode("acks-1", {"min.insync.replicas": "1"}, acks="1", nemeses=("outrun",), loses=True)
UNCLEAN = Mode(
    "unclean",
    {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"},
    replicas=2,
    nemeses=("leave-behind",),
    loses=True,
)
UNSYNCED = Mode(
    "unsynced",
    {"min.insync.replicas": "2", "flush.on.commit": "false"},
    nemeses=("power-cut-all",),
    loses=True,
)
MODES: Mapping[str, Mode] = {mode.name: mode for mode in (SAFE, ACKS_1, UNCLEAN, UNSYNCED)}
