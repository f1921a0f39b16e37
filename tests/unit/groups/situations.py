"""A group in each state, and everything that can be asked of it there or happen to it.

In every state but `absent` the members `a`, who leads, and `b` are or were in it; `generation` is the one
that they are in, or come from.  Nothing has been answered that the event itself does not bring about.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from distributedlog.groups.requests import (
    DeleteGroupRequest,
    DeleteOffsetsReply,
    DeleteOffsetsRequest,
    DescribeReply,
    DescribeRequest,
    SupportedProtocol,
)
from distributedlog.groups.turn import Timer
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition
from tests.unit.groups.exploration import _due, deadlines
from tests.unit.groups.stage import GROUP, Stage, Waiting, subscription

OTHER_TOPICS: Final = (SupportedProtocol("range", subscription("u")),)
STRANGE: Final = (SupportedProtocol("strange", b""),)


class Case(NamedTuple):
    stage: Stage
    a: str
    b: str
    generation: int


def absent() -> Case:
    return Case(Stage(), "a", "b", 1)


def stable() -> Case:
    stage = Stage()
    a, b = stage.stable(None, None)
    return Case(stage, a, b, 2)


def empty() -> Case:
    case = stable()
    case.stage.leave(case.a, case.b)
    return case._replace(generation=3)


def preparing() -> Case:
    """A third has come, and waits for both."""
    case = stable()
    case.stage.join()
    return case


def completing() -> Case:
    """Both have joined, and the leader has not assigned."""
    case = stable()
    case.stage.join(case.a)
    case.stage.join(case.b)
    return case._replace(generation=3)


STATES: Final[dict[str, Callable[[], Case]]] = {
    "absent": absent,
    "Empty": empty,
    "PreparingRebalance": preparing,
    "CompletingRebalance": completing,
    "Stable": stable,
}


# --- what may happen ---------------------------------------------------------------------------


def _waited(waiting: Waiting) -> str:
    return waiting.code.name if waiting.is_answered else "waits"


def _parts(case: Case) -> dict[str, bytes]:
    return {case.a: b"a", case.b: b"b"}


def _over(timer: Timer) -> Callable[[Case], str]:
    def over(case: Case) -> str:
        found = [key for key in deadlines(case.stage) if key.timer is timer]
        if not found:
            return "never set"
        for key in found:
            if timer is not Timer.SESSION or key.member_id == case.b:
                _due(case.stage, key)
                return "done"
        return "never set"

    return over


def _describe(case: Case) -> str:
    reply = case.stage.ask(DescribeRequest(GROUP))
    assert isinstance(reply, DescribeReply)
    return reply.state


def _forget(case: Case) -> str:
    """Its position in the topic that the members read."""
    try:
        reply = case.stage.ask(DeleteOffsetsRequest(GROUP, (TopicPartition("t", 0),)))
    except DlogError as error:
        return error.code.name
    assert isinstance(reply, DeleteOffsetsReply)
    return reply.errors[0].name


def _failover(case: Case) -> str:
    case.stage.failover()
    return "done"


def _committed(case: Case) -> str:
    return "a position" if case.stage.committed() else "none"


EVENTS: Final[dict[str, Callable[[Case], str]]] = {
    "one comes": lambda case: _waited(case.stage.join()),
    "one asks for an id": lambda case: _waited(case.stage.join(must_know_id=True)),
    "one comes with a strange protocol": lambda case: _waited(case.stage.join(protocols=STRANGE)),
    "one comes with an id of its own": lambda case: _waited(case.stage.join("x")),
    "a joins again": lambda case: _waited(case.stage.join(case.a)),
    "b joins again": lambda case: _waited(case.stage.join(case.b)),
    "b joins with other topics": lambda case: _waited(case.stage.join(case.b, protocols=OTHER_TOPICS)),
    "a syncs": lambda case: _waited(case.stage.sync(case.a, case.generation, _parts(case))),
    "b syncs": lambda case: _waited(case.stage.sync(case.b, case.generation)),
    "b syncs in an old generation": lambda case: _waited(case.stage.sync(case.b, case.generation - 1)),
    "a stranger syncs": lambda case: _waited(case.stage.sync("x", case.generation)),
    "b beats": lambda case: case.stage.heartbeat(case.b, case.generation).name,
    "b beats in an old generation": lambda case: case.stage.heartbeat(case.b, case.generation - 1).name,
    "a stranger beats": lambda case: case.stage.heartbeat("x", case.generation).name,
    "b leaves": lambda case: case.stage.leave(case.b)[0].name,
    "a stranger leaves": lambda case: case.stage.leave("x")[0].name,
    "b commits": lambda case: case.stage.commit(5, case.b, case.generation).name,
    "b commits in an old generation": lambda case: case.stage.commit(5, case.b, case.generation - 1).name,
    "a stranger commits": lambda case: case.stage.commit(5, "x", case.generation).name,
    "one without a group commits": lambda case: case.stage.commit(5).name,
    "its positions are read": _committed,
    "its position is deleted": _forget,
    "it is described": _describe,
    "it is deleted": lambda case: case.stage.code_of(DeleteGroupRequest(GROUP)).name,
    "b's session is over": _over(Timer.SESSION),
    "the time to join is over": _over(Timer.JOIN),
    "the time to sync is over": _over(Timer.SYNC),
    "another coordinates": _failover,
}


def outcome(state: str, event: str) -> str:
    """What is answered, and the state then."""
    case = STATES[state]()
    group = case.stage.machine.groups.get(GROUP)
    assert (group.state if group is not None else "absent") == state
    answered = EVENTS[event](case)
    after = case.stage.machine.groups.get(GROUP)
    now = "absent" if after is None else after.state.value
    return answered if now == state else f"{answered} > {now}"
