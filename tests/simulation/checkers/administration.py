"""Linearizable administration: every topic name is a register that holds a topic or none, every setting one
that holds a value.

The order of changes is known, it is the committed log's, so the search that makes linearizability hard is not
needed.  Each request has a place in that order:

    a change that was made     the offset of its entry, found by a value that nobody else writes
    a read                     the offset of the image it was given
    a refusal, a check         the first offset, from what was known before it was asked up to what was
                               committed when it was answered, at which the answer was true

What is left to check is that such a place exists, and that requests which followed each other in real time
stand in that order.  A change whose outcome is unknown may stand anywhere after it was asked for, once, or
nowhere; one that was refused stands nowhere.
"""

import heapq
from bisect import bisect_left, bisect_right

from distributedlog.controller.records import ConfigChanged, TopicCreated, TopicRemoved
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import Uuid
from tests.simulation.checkers.control import Administration, ControlChecker, ControlView, Step

MARK_OF_TOPIC = "retention.ms"
SETTING_PREFIX = "simulated."


def is_mark(setting: str) -> bool:
    """Whether every value that is ever written to the setting is written by one request only."""
    return setting == MARK_OF_TOPIC or setting.startswith(SETTING_PREFIX)


class LinearizableAdministration(ControlChecker):
    name = "linearizable administration"

    def __init__(self, view: ControlView) -> None:
        super().__init__(view)
        self._marks: dict[str, Step] = {}
        """Where each value was written."""
        self._existence: dict[str, tuple[list[int], list[bool]]] = {}
        """From which offsets on a name was there, or not."""
        self._removed: dict[Uuid, tuple[str, Step]] = {}
        self._removed_by: dict[Uuid, Administration] = {}

    def on_commit(self, step: Step) -> None:
        fresh: set[str] = set()
        for record, _ in step.records:
            if isinstance(record, ConfigChanged) and record.value is not None and is_mark(record.name):
                if record.value in self._marks and record.value not in fresh:
                    self.fail(f"{record.name}={record.value} was written twice, last at {step.offset}")
                self._marks[record.value] = step
                fresh.add(record.value)
            elif isinstance(record, TopicCreated):
                self._set_existence(record.name, step.offset, True)
            elif isinstance(record, TopicRemoved):
                name = step.before.topics[record.topic_id].name
                self._removed[record.topic_id] = (name, step)
                self._set_existence(name, step.offset, False)

    def _set_existence(self, name: str, offset: int, exists: bool) -> None:
        offsets, states = self._existence.setdefault(name, ([], []))
        offsets.append(offset)
        states.append(exists)

    # --- the end -------------------------------------------------------------------------------

    def finish(self, operations: list[Administration]) -> None:
        completed: list[tuple[int, int]] = []
        reached = -1
        for operation in sorted(operations, key=lambda each: each.invoked_us):
            while completed and completed[0][0] < operation.invoked_us:
                reached = max(reached, heapq.heappop(completed)[1])
            place = self._place(operation, reached)
            if place is not None and operation.completed_us is not None:
                heapq.heappush(completed, (operation.completed_us, place))
        self._check_removals(operations)

    def _place(self, operation: Administration, reached: int) -> int | None:
        if operation.outcome == "refused":
            self._check_nothing_done(operation)
            if operation.error is ErrorCode.TOPIC_ALREADY_EXISTS:
                return self._place_of_state(operation, reached, True)
            if operation.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return self._place_of_state(operation, reached, False)
            return None
        if operation.outcome != "ok":
            self._check_unknown(operation, reached)
            return None
        if operation.kind == "check":
            return self._place_of_state(operation, reached, False)
        if operation.kind == "read":
            return self._place_of_read(operation, reached)
        if operation.kind == "delete":
            return max(self._place_of_removal(operation, each, reached) for each in operation.topic_ids)
        if operation.marks:
            return self._place_of_change(operation, reached)
        return None

    def _place_of_change(self, operation: Administration, reached: int) -> int:
        steps = [self._marks.get(mark) for mark in operation.marks]
        step = steps[0]
        if step is None or any(each is not step for each in steps):
            self.fail(f"{operation} was acknowledged and stands nowhere in the log")
        self._check_time(operation, step, reached)
        return step.offset

    def _place_of_removal(self, operation: Administration, topic_id: Uuid, reached: int) -> int:
        if topic_id not in self._removed:
            self.fail(f"{operation} was acknowledged, and {topic_id} was never removed")
        if self._removed_by.setdefault(topic_id, operation) is not operation:
            self.fail(f"{operation}: {topic_id} was removed by {self._removed_by[topic_id]} already")
        step = self._removed[topic_id][1]
        self._check_time(operation, step, reached)
        return step.offset

    def _place_of_read(self, operation: Administration, reached: int) -> int:
        assert operation.seen is not None
        assert operation.completed_us is not None
        step = self.view.step_at(operation.seen.offset)
        if step is None or step.after != operation.seen or step.time_us > operation.completed_us:
            self.fail(f"a read was given the offset {operation.seen.offset}, and not what is committed there")
        if step.offset < reached:
            self.fail(f"a stale read of {step.offset}: {reached} had been seen before it was asked")
        return step.offset

    def _check_unknown(self, operation: Administration, reached: int) -> None:
        step = self._marks.get(operation.marks[0]) if operation.marks else None
        if step is not None and step.offset <= reached:
            self.fail(f"{operation} stands at {step.offset}, but {reached} had been seen before it was asked")

    def _place_of_state(self, operation: Administration, reached: int, exists: bool) -> int:
        """The first offset in the request's time at which any of its names was there, or was not."""
        assert operation.completed_us is not None
        steps = self.view.steps
        known = bisect_right(steps, operation.completed_us, key=lambda step: step.time_us)
        last = steps[known - 1].offset if known else -1
        places = [self._first(name, reached, last, exists) for name in operation.names]
        found = [place for place in places if place is not None]
        if not found:
            self.fail(
                f"{operation} was answered {operation.error.name}, which was not so from {reached} to {last}"
            )
        return min(found)

    def _first(self, name: str, low: int, high: int, exists: bool) -> int | None:
        offsets, states = self._existence.get(name, ([], []))
        now = bisect_right(offsets, low)
        if (states[now - 1] if now else False) is exists:
            return low
        if now < len(offsets) and offsets[now] <= high:
            return offsets[now]
        return None

    def _check_time(self, operation: Administration, step: Step, reached: int) -> None:
        assert operation.completed_us is not None
        if step.time_us > operation.completed_us:
            self.fail(f"{operation} was acknowledged before its entry {step.offset} was committed")
        if step.offset <= reached:
            self.fail(f"{operation} stands at {step.offset}, but {reached} had been seen before it was asked")

    def _check_nothing_done(self, operation: Administration) -> None:
        for mark in operation.marks:
            if mark in self._marks:
                self.fail(f"{operation} was refused, and yet stands at {self._marks[mark].offset}")

    def _check_removals(self, operations: list[Administration]) -> None:
        """A topic that no acknowledged request removed was removed by one whose outcome is unknown; each of
        these may have removed one of each of its names."""
        for name in self._existence:
            asked = sorted(
                each.invoked_us
                for each in operations
                if each.kind == "delete" and name in each.names and each.outcome == "unknown"
            )
            unclaimed = sorted(
                step.time_us
                for topic_id, (removed, step) in self._removed.items()
                if removed == name and topic_id not in self._removed_by
            )
            for count, time_us in enumerate(unclaimed, 1):
                if bisect_left(asked, time_us) < count:
                    self.fail(f"{name} was removed at {time_us / 1e6:.6f} s, and nobody had asked for it")
