"""Two logs of one partition, compared by their leader epochs: where they part, and where to cut.

Never by the high watermark alone: it may lag behind what is committed, and cutting there loses records
that were acknowledged, or leaves some that the leader does not have.
"""

from distributedlog.storage.epochs import UNKNOWN_END, EpochEnd
from distributedlog.storage.log import PartitionLog


def truncation_point(log: PartitionLog, leader_end: EpochEnd) -> tuple[int, bool]:
    """Up to where to keep a follower's log, and whether all that is left then is the leader's too.

    `leader_end` is where, in the leader's log, the epoch ends that it was asked for, or the one before it.

    | the leader knows                | keep up to                                    | done               |
    |---------------------------------|-----------------------------------------------|--------------------|
    | no epoch at all up to that one  | the high watermark: what is committed it has  | yes                |
    | an epoch that we have too       | the lower one of where it ends there and here | yes                |
    | an epoch that we do not have    | where the largest of ours before it ends      | ask again for that |
    | an epoch, and we have none      | where it ends there                           | yes                |
    """
    if leader_end == UNKNOWN_END:
        return log.high_watermark, True
    own = log.epochs.end_offset_for(leader_end.epoch, log.end_offset)
    if own != UNKNOWN_END and own.epoch == leader_end.epoch:
        return min(own.end_offset, leader_end.end_offset), True
    if not log.epochs.entries:
        return min(log.end_offset, leader_end.end_offset), True
    return (log.end_offset if own == UNKNOWN_END else own.end_offset), False
