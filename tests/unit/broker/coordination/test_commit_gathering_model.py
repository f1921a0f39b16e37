"""Commits, reads, time, new epochs and kills in any order, with many commits close together.

Offsets rise with every commit, so where a group stands must never go back.  Checked all along: everybody is
told once; a reader is told of all that was acknowledged before it asked; what was acknowledged is there in
the end, whatever happened, and what is there was asked for.
"""

import os
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.broker.coordination.commit_gathering import CROWD_MS
from distributedlog.groups.requests import CommitReply, FetchOffsetsReply
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import TopicPartition
from tests.unit.broker.group_stage import OFFSETS_NUMBER, GroupStage, Told
from tests.unit.broker.partition_stage import ME

GROUPS = ("g", "h")
PARTITIONS = 2
Place = tuple[str, int]

commits = st.tuples(st.just("commits"), st.sampled_from(GROUPS), st.integers(1, 6))
reads = st.tuples(st.just("read"), st.sampled_from(GROUPS), st.just(0))
turns = st.tuples(st.sampled_from(["turn", "sync", "new epoch", "kill"]), st.just(""), st.just(0))
waits = st.tuples(st.just("wait"), st.just(""), st.sampled_from([1, 2, 60, 2 * CROWD_MS]))
steps = st.lists(commits | reads | turns | waits, min_size=5, max_size=40)


class Commit(NamedTuple):
    place: Place
    offset: int
    told: Told


class Read(NamedTuple):
    group: str
    acknowledged: dict[Place, int]
    told: Told


class Story:
    def __init__(self) -> None:
        self.stage = GroupStage()
        self.stage.settle()
        self.commits: list[Commit] = []
        self.reads: list[Read] = []
        self.lost: set[int] = set()
        """The offsets of commits whose process was killed before it answered them."""

    def acknowledged(self) -> dict[Place, int]:
        """The last offset of each place, of those that were answered without an error."""
        return {
            each.place: each.offset
            for each in self.commits
            if each.told.is_told and each.told.code is ErrorCode.NONE
        }

    def commit(self, group: str, offset: int) -> None:
        partition = offset % PARTITIONS
        told = self.stage.commit(offset, group, partition=partition)
        self.commits.append(Commit((group, partition), offset, told))

    def step(self, kind: str, group: str, number: int) -> None:
        match kind:
            case "commits":
                for _ in range(number):
                    self.commit(group, len(self.commits) + 1)
            case "read":
                self.reads.append(Read(group, self.acknowledged(), self.stage.fetch(group)))
            case "turn":
                self.stage.stage.scheduler.run_posted()
            case "sync":
                self.stage.settle()
            case "wait":
                self.stage.stage.scheduler.advance(number)
            case "new epoch":
                self.stage.metadata.change(OFFSETS_NUMBER, leader=ME)
                self.stage.stage.apply()
            case "kill":
                self.lost |= {each.offset for each in self.commits if not each.told.is_told}
                self.reads = [each for each in self.reads if each.told.is_told]
                self.stage.restart()
        self.check_reads()

    def check_reads(self) -> None:
        for group, acknowledged, told in self.reads:
            if not told.is_told or told.code is not ErrorCode.NONE:
                continue
            found = stands(told)
            for (of, partition), offset in acknowledged.items():
                assert of != group or found.get(partition, -1) >= offset
        self.reads = [each for each in self.reads if not each.told.is_told]

    def end(self) -> None:
        self.stage.settle()
        assert all(each.told.is_told or each.offset in self.lost for each in self.commits)
        acknowledged = self.acknowledged()
        for told in (each.told for each in self.commits if each.told.is_told):
            assert told.code is not ErrorCode.NONE or told.reply == CommitReply((ErrorCode.NONE,))
        self.stage.restart()
        self.stage.settle()
        for group in GROUPS:
            found = stands(self.stage.fetch(group))
            for partition in range(PARTITIONS):
                place = (group, partition)
                asked = {each.offset for each in self.commits if each.place == place}
                assert found.get(partition, -1) >= acknowledged.get(place, -1)
                assert found.get(partition) in asked | {None}


def stands(told: Told) -> dict[int, int]:
    reply = told.reply
    assert isinstance(reply, FetchOffsetsReply)
    assert all(isinstance(each.partition, TopicPartition) for each in reply.offsets)
    return {each.partition.partition: each.offset for each in reply.offsets}


@settings(max_examples=1_000 if os.environ.get("DLOG_SOAK") else 100, deadline=None)
@given(steps)
def test_what_was_acknowledged_is_never_taken_back_however_commits_are_put_together(
    taken: list[tuple[str, str, int]],
) -> None:
    story = Story()
    for each in taken:
        story.step(*each)
    story.end()
