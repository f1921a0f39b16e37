"""Balancing again and again, in a process beside the cluster (decision 42).

    state    event                                    what is done                     then
    resting  the time is over, nothing is wrong       measures, plans                  moving, or resting
    resting  the time is over, there is an obstacle   says which, looks again soon     resting
    moving   a batch has arrived, nothing is wrong    begins the next one, throttled   moving
    moving   replicas lack, or a broker is fenced     cancels what has not arrived     resting
    moving   somebody else moves partitions           lets its batch arrive            resting
    moving   all have arrived                         elects preferred leaders         resting
    any      Ctrl-C, SIGTERM                          cancels what has not arrived     (ends)
    (ends)   a second signal, or no answer            says what is left under way      (ends, exit code 1)

Cancelling restores what was, and removes the throttle: nothing is left behind.  A batch is known from before
its throttle is set until that has been removed, so it is undone wherever a round ends: by a fault, by a
cluster that did not answer (then again before the next round), by a signal.  The round is what a signal ends,
not the undoing.  Moves are made in small batches, so that little is lost by it.  A round moves nothing before
a broker is outside by half as much again as the tolerance: rates go up and down, and what was just balanced
would be moved to and fro.

What happens is told as it happens, one line each.
"""

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from distributedlog.cli.cluster.balancing.loads import ClusterLoad, total_excess
from distributedlog.cli.cluster.balancing.measuring import measure
from distributedlog.cli.cluster.balancing.moving import elect, find_unpreferred
from distributedlog.cli.cluster.balancing.planner import BalancePlan, plan_balance
from distributedlog.cli.cluster.balancing.showing import furthest
from distributedlog.cli.cluster.reassign import find_present_replicas
from distributedlog.cli.cluster.reassignment_plan import Plan
from distributedlog.cli.cluster.throttles import add_plan, end_throttles, throttle
from distributedlog.cli.output import warn
from distributedlog.client.admin.admin import Admin
from distributedlog.client.view import TopicView
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition

BATCH_PARTITIONS: Final = 20
HYSTERESIS: Final = 1.5
LOOK_SECONDS: Final = 0.5
RETRY_SECONDS_MAX: Final = 10.0
"""How long an obstacle, or a cluster that does not answer, is left alone."""
NAMES_MAX: Final = 3
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
EXIT_LEFT: Final = 1

Tell = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Pace:
    every_seconds: float
    measure_seconds: float
    throttle_rate: int
    tolerance: float
    moves_max: int | None
    excluded: tuple[int, ...]


class StandDownError(Exception):
    """The message says what is in the way."""


def find_fault(
    topics: Collection[TopicView], fenced: Collection[int], ours: Collection[TopicPartition] = ()
) -> str | None:
    """Returns what is wrong with a cluster, beside replicas that our own moves are still bringing."""
    if fenced:
        return f"brokers are fenced: {', '.join(map(str, sorted(fenced)))}"
    lacking = [
        f"{topic.name}-{each.index}"
        for topic in topics
        for each in topic.partitions
        if (each.is_under_replicated or not each.has_leader)
        and TopicPartition(topic.name, each.index) not in ours
    ]
    if not lacking:
        return None
    more = f" and {len(lacking) - NAMES_MAX} more" if len(lacking) > NAMES_MAX else ""
    return f"replicas are not in sync: {', '.join(sorted(lacking)[:NAMES_MAX])}{more}"


def find_strangers(moving: Collection[TopicPartition], ours: Collection[TopicPartition] = ()) -> str | None:
    """Returns which moves of somebody else are under way."""
    others = len(set(moving) - set(ours))
    return f"somebody else moves {others} partitions" if others else None


def is_worth_it(load: ClusterLoad, tolerance: float) -> bool:
    return total_excess(list(load.by_broker().values()), tolerance * HYSTERESIS) > 0.0


async def run_unless(event: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Returns whether the work came to its end before the event; at the event it is cancelled, and again as
    long as it goes on: an error that is handled in the way of a cancellation may replace it."""
    task = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        while not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=LOOK_SECONDS)
    finally:
        waiting.cancel()
        task.cancel()
    if task.cancelled():
        return False
    task.result()
    return True


class SteadyBalance:
    """`tell` is called with the name of an event and its fields."""

    def __init__(self, admin: Admin, pace: Pace, tell: Tell) -> None:
        self._admin = admin
        self._pace = pace
        self._tell = tell
        self._stopping = asyncio.Event()
        self._giving_up = asyncio.Event()
        self._batch: Plan = {}
        """What is under way, or throttled."""
        self._beginning: asyncio.Task[dict[TopicPartition, DlogError | None]] | None = None

    async def run(self) -> int:
        """Balances until a signal comes; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._note_signal)
        try:
            self._tell("started", every_seconds=self._pace.every_seconds, throttle=self._pace.throttle_rate)
            await run_unless(self._stopping, self._rounds())
        finally:
            code = await self._end()
        return code

    def _note_signal(self) -> None:
        (self._giving_up if self._stopping.is_set() else self._stopping).set()

    async def _end(self) -> int:
        """Undoes what is under way, unless that fails or a second signal comes."""
        self._stopping.set()
        if self._batch:
            self._tell("stopping", partitions=len(self._batch))
        reason = "it was told to end at once"
        try:
            is_undone = await run_unless(self._giving_up, self._undo())
        except DlogError as error:
            is_undone, reason = False, str(error)
        if is_undone:
            self._tell("stopped")
            return 0
        self._tell("left", partitions=len(self._batch), reason=reason)
        warn("moves may go on, throttled: `dlog cluster reassign` shows them, with --cancel it ends them")
        return EXIT_LEFT

    async def _rounds(self) -> None:
        while True:
            begun = time.monotonic()
            pause = self._pace.every_seconds
            try:
                await self._undo()
                await self._round()
            except StandDownError as obstacle:
                self._tell("stands_down", reason=str(obstacle))
                pause = min(pause, RETRY_SECONDS_MAX)
            except DlogError as error:
                self._tell("failed", reason=str(error))
                pause = min(pause, RETRY_SECONDS_MAX)
            with contextlib.suppress(DlogError):  # then it is tried again before the next round
                await self._undo()
            await asyncio.sleep(max(LOOK_SECONDS, pause - (time.monotonic() - begun)))

    async def _round(self) -> None:
        await self._check()
        await self._elect(await find_unpreferred(self._admin))
        load = await measure(self._admin, self._pace.measure_seconds, self._pace.excluded)
        if not is_worth_it(load, self._pace.tolerance):
            self._tell("balanced", deviation=round(furthest(load), 4))
            return
        plan = await self._plan(load)
        self._tell(
            "planned",
            moves=plan.move_count,
            bytes=round(plan.move_bytes),
            leaderships=len(plan.leaderships),
            deviation=round(furthest(load), 4),
            deviation_after=round(furthest(plan.after), 4),
        )
        await self._make(plan)

    async def _plan(self, load: ClusterLoad) -> BalancePlan:
        """Plans on another thread, which ends with us: planning for a large cluster takes minutes."""
        is_over = threading.Event()
        try:
            return await asyncio.to_thread(
                plan_balance, load, self._pace.tolerance, self._pace.moves_max, is_over.is_set
            )
        finally:
            is_over.set()

    async def _make(self, plan: BalancePlan) -> None:
        items = [*plan.leaderships.items(), *plan.moves.items()]
        for at in range(0, len(items), BATCH_PARTITIONS):
            await self._check()
            batch = dict(items[at : at + BATCH_PARTITIONS])
            await self._move(batch)
            self._tell("moved", partitions=len(batch), left=max(0, len(items) - at - BATCH_PARTITIONS))
        await self._elect([*plan.targets, *await find_unpreferred(self._admin)])

    async def _elect(self, partitions: list[TopicPartition]) -> None:
        if partitions:
            await elect(self._admin, partitions)
            self._tell("elected", partitions=len(partitions))

    async def _check(self, ours: Collection[TopicPartition] = ()) -> None:
        """Raises StandDownError if this is no time to begin moves."""
        obstacle = await self._fault(ours) or find_strangers(await self._admin.list_reassignments(), ours)
        if obstacle is not None:
            raise StandDownError(obstacle)

    async def _fault(self, ours: Collection[TopicPartition]) -> str | None:
        fenced = await self._admin.list_fenced_brokers()
        return find_fault(await self._admin.list_topics(with_internal=True), fenced, ours)

    async def _move(self, batch: Plan) -> None:
        """Returns when a batch has arrived and is not throttled any more; `_undo` does what is left to do if
        it ends otherwise."""
        before = await find_present_replicas(self._admin, batch)
        self._batch = batch
        self._beginning = asyncio.ensure_future(self._begin(before, batch))
        outcomes = await asyncio.shield(self._beginning)
        for name, error in outcomes.items():
            if error is not None:
                self._tell("refused", partition=str(name), reason=str(error))
        while set(await self._admin.list_reassignments()) & set(batch):
            fault = await self._fault(batch)
            if fault is not None:
                raise StandDownError(fault)
            await asyncio.sleep(LOOK_SECONDS)
        await self._undo()

    async def _begin(self, before: Plan, batch: Plan) -> dict[TopicPartition, DlogError | None]:
        await throttle(self._admin, add_plan({}, before, batch), self._pace.throttle_rate)
        return await self._admin.alter_reassignments(dict(batch))

    async def _undo(self) -> None:
        """Cancels what has not arrived of a batch, and ends its throttle."""
        if not self._batch:
            return
        if self._beginning is not None:  # a request that is on its way could otherwise arrive after ours
            with contextlib.suppress(DlogError):
                await asyncio.shield(self._beginning)
            self._beginning = None
        left = set(await self._admin.list_reassignments()) & set(self._batch)
        if left:
            await self._admin.alter_reassignments(dict.fromkeys(left))
        await end_throttles(self._admin, {name.topic for name in self._batch})
        self._batch = {}
        if left:
            self._tell("cancelled", partitions=len(left))
