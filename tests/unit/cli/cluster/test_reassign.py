"""What `alter_all` makes of a cluster's outcomes; moves of real brokers are in tests/system/growing."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from distributedlog.cli.cluster.reassign import alter_all
from distributedlog.cli.main import main
from distributedlog.client.admin.admin import Admin
from distributedlog.model.errors import DlogError, InvalidRequestError, NoReassignmentError
from distributedlog.model.ids import TopicPartition

MOVING, ENDED = TopicPartition("t", 0), TopicPartition("t", 1)


class Answering:
    def __init__(self, outcomes: Mapping[TopicPartition, DlogError | None]) -> None:
        self.outcomes = outcomes

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, tuple[int, ...] | None]
    ) -> dict[TopicPartition, DlogError | None]:
        return {name: self.outcomes[name] for name in targets}


def cancel(*, may_have_ended: bool) -> set[TopicPartition]:
    admin = Answering({MOVING: None, ENDED: NoReassignmentError("it is not being moved")})
    targets = dict.fromkeys((MOVING, ENDED))
    return asyncio.run(alter_all(cast(Admin, admin), targets, "cancelled", may_have_ended=may_have_ended))


def test_a_move_that_ended_while_all_are_cancelled_is_not_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever began it may have cancelled it as well, by a request that was still on its way."""
    assert cancel(may_have_ended=True) == set()
    told = capsys.readouterr()
    assert told.out == "1 moves cancelled, 0 refused\n"
    assert "1 moves had ended by themselves" in told.err


def test_a_move_that_is_named_and_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cancel(may_have_ended=False) == {ENDED}
    assert capsys.readouterr().out == "1 moves cancelled, 1 refused\n"


def test_a_plan_that_is_no_text_is_refused_before_anything_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan.json").write_bytes(b"\xff\xfe")
    assert main(["cluster", "reassign", "--plan", str(tmp_path / "plan.json")]) == 2
    assert "the plan is no text" in capsys.readouterr().err


def test_whatever_else_is_refused_stays_so() -> None:
    admin = Answering({MOVING: InvalidRequestError("no such broker")})
    refused = asyncio.run(alter_all(cast(Admin, admin), {MOVING: None}, "cancelled", may_have_ended=True))
    assert refused == {MOVING}
