"""The coordinators are not there before a group needs them, and nobody can tell."""

from collections.abc import Callable

from distributedlog.broker.coordination.coordinators import GroupCoordinators
from distributedlog.broker.coordination.late_coordinators import LateCoordinators
from distributedlog.groups.requests import FetchOffsetsReply, FetchOffsetsRequest
from distributedlog.model.error_codes import ErrorCode
from tests.unit.broker.group_stage import DEADLINE_MS, GROUP, OFFSETS_NUMBER, GroupStage, Told
from tests.unit.broker.partition_stage import Stage


class LateStage:
    """A broker whose coordinators are made late; `made` counts how often."""

    def __init__(self, stage: Stage, new: Callable[[], GroupCoordinators]) -> None:
        self.made = 0
        self.stage = stage

        def make() -> GroupCoordinators:
            self.made += 1
            return new()

        self.late = LateCoordinators(make, stage.partitions.signals)

    def fetch(self) -> Told:
        told = Told()
        deadline_ms = self.stage.clock.monotonic_ms() + DEADLINE_MS
        self.late.submit(GROUP, FetchOffsetsRequest(GROUP, None), deadline_ms, told)
        return told


def without_groups() -> LateStage:
    """No group was ever there, and the topic neither."""
    groups = GroupStage()
    groups.metadata.remove(OFFSETS_NUMBER)
    groups.stage.restart()
    late = LateStage(groups.stage, groups.new_coordinators)
    groups.stage.apply()
    return late


def test_groups_of_an_earlier_life_are_read_back_before_anybody_asks() -> None:
    groups = GroupStage()
    groups.settle()
    told = groups.commit(41)
    groups.settle()
    assert told.code is ErrorCode.NONE
    groups.stage.restart()
    late = LateStage(groups.stage, groups.new_coordinators)
    assert late.made == 0
    groups.stage.apply()
    assert late.made == 1
    assert late.late.is_loading
    groups.settle()
    reply = late.fetch().reply
    assert isinstance(reply, FetchOffsetsReply)
    assert [position.offset for position in reply.offsets] == [41]
    assert late.made == 1


def test_a_broker_that_leads_no_groups_makes_its_coordinators_when_one_is_asked_for() -> None:
    late = without_groups()
    late.late.topics_removed(["t"])
    assert late.made == 0
    assert late.fetch().code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert list(late.late.all_active()) == []
    assert not late.late.is_loading
    assert late.made == 1


def test_a_scrape_shows_the_groups_there_are_also_if_there_are_none() -> None:
    late = without_groups()
    families = {family.name: family.samples for family in late.late.families()}
    assert families["dlog_groups"] == []
    assert families["dlog_coordinators_loading"][0].value == 0
    assert late.made == 1


def test_coordinators_that_were_never_made_are_closed_without_harm() -> None:
    late = without_groups()
    late.late.close()
    assert late.made == 0
    late.late.load()
    late.late.close()
    assert late.made == 1
