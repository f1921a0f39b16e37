"""A rolling restart: one broker after the other, the next when nothing of the one before is missing.

    order      by id; the active controller last, or the cluster would elect one for each broker
    a broker   has it restarted, and notices that it went by the end of a connection to it: what a command
               only began is not taken for done
    back       it has registered anew, in another epoch, and is not fenced; every replica on it is in sync,
               nothing else lacks replicas that did not before, the quorum has what its leader had when it
               came back; then it leads again what it is to lead, by preferred elections

Whether it is back it is asked itself.  Others may not have heard yet that it was gone: of one that was killed
they say for a moment that it takes part and is in sync, as it did and was before.

What is not back in time ends it: the brokers behind it are not touched.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from distributedlog.cli.cluster.restarting.means import Means, RestartFailedError
from distributedlog.cli.cluster.restarting.own_view import Registration, ask_registration, ask_topics, is_new
from distributedlog.client.admin.admin import Admin
from distributedlog.client.admin.cluster import QuorumView
from distributedlog.client.connection import Connection, connect
from distributedlog.client.errors import code_of
from distributedlog.client.view import BrokerView, TopicView
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition

LOOK_SECONDS: Final = 0.25
CONNECT_MS: Final = 5_000

Tell = Callable[[str], None]


async def find_order(admin: Admin, wanted: Collection[int]) -> list[BrokerView]:
    """Returns the brokers in the order in which they are restarted."""
    view = await admin.describe_cluster()
    last = view.controller_id
    with contextlib.suppress(DlogError):
        last = (await admin.describe_quorum()).leader_id
    chosen = [each for each in view.brokers.values() if not wanted or each.node_id in wanted]
    return sorted(chosen, key=lambda each: (each.node_id == last, each.node_id))


def find_lacking(topics: Collection[TopicView]) -> set[TopicPartition]:
    """Returns the partitions that have no leader, or replicas that are not in sync."""
    return {
        TopicPartition(topic.name, each.index)
        for topic in topics
        for each in topic.partitions
        if each.is_under_replicated or not each.has_leader
    }


def find_alone(topics: Collection[TopicView], brokers: Collection[int]) -> set[TopicPartition]:
    """Returns the partitions that have no other replica than one on these brokers."""
    return {
        TopicPartition(topic.name, each.index)
        for topic in topics
        for each in topic.partitions
        if len(each.replicas) == 1 and each.replicas[0] in brokers
    }


def find_led_elsewhere(topics: Collection[TopicView], broker_id: int) -> list[TopicPartition]:
    """Returns the partitions that this broker is to lead and does not."""
    return [
        TopicPartition(topic.name, each.index)
        for topic in topics
        for each in topic.partitions
        if each.replicas and each.replicas[0] == broker_id != each.leader_id
    ]


class RollingRestart:
    """`lacking` are partitions that lacked replicas before it began, which is accepted."""

    def __init__(
        self, admin: Admin, means: Means, seconds_max: float, lacking: Collection[TopicPartition], tell: Tell
    ) -> None:
        self._admin = admin
        self._means = means
        self._seconds_max = seconds_max
        self._lacking = lacking
        self._tell = tell

    async def run(self, brokers: list[BrokerView]) -> None:
        """Restarts them in this order; raises RestartFailedError at the first that does not come back."""
        for number, broker in enumerate(brokers, start=1):
            begun = time.monotonic()
            self._tell(f"broker {broker.node_id} ({number} of {len(brokers)}): restarts")
            try:
                await self._restart(broker)
            except RestartFailedError as error:
                raise RestartFailedError(f"broker {broker.node_id}: {error}") from error
            self._tell(f"broker {broker.node_id}: is back after {time.monotonic() - begun:.1f} s")

    async def _restart(self, broker: BrokerView) -> None:
        connection = await self._connect(broker)
        try:
            before = await self._ask_before(connection, broker.node_id)
            await self._means.restart(broker)
            await self._within(connection.wait_closed(), "it was not stopped")
        finally:
            connection.close()
        await self._until(lambda: self._answers(broker), "it does not answer")
        await self._until(
            lambda: self._takes_part(broker, before), "it has not registered anew, or is fenced"
        )
        self._tell(f"broker {broker.node_id}: takes part again, catches up")
        await self._until(lambda: self._is_in_sync(broker), "partitions lack replicas in sync")
        await self._check_quorum()
        await self._until(lambda: self._leads(broker.node_id), "it does not lead what it is to lead")

    async def _connect(self, broker: BrokerView) -> Connection:
        try:
            return await connect(broker.address.host, broker.address.port, timeout_ms=CONNECT_MS)
        except DlogError as error:
            raise RestartFailedError(f"it did not answer before it was restarted: {error}") from error

    # --- what is waited for --------------------------------------------------------------------

    async def _answers(self, broker: BrokerView) -> bool:
        (await connect(broker.address.host, broker.address.port, timeout_ms=CONNECT_MS)).close()
        return True

    async def _ask_before(self, connection: Connection, broker_id: int) -> Registration | None:
        try:
            return await ask_registration(connection, broker_id)
        except DlogError as error:
            raise RestartFailedError(f"it did not answer before it was restarted: {error}") from error

    async def _takes_part(self, broker: BrokerView, before: Registration | None) -> bool:
        connection = await connect(broker.address.host, broker.address.port, timeout_ms=CONNECT_MS)
        try:
            return is_new(await ask_registration(connection, broker.node_id), before)
        finally:
            connection.close()

    async def _is_in_sync(self, broker: BrokerView) -> bool:
        connection = await connect(broker.address.host, broker.address.port, timeout_ms=CONNECT_MS)
        try:
            its_own = await ask_topics(connection)
        finally:
            connection.close()
        topics = await self._admin.list_topics(with_internal=True)
        return find_lacking(its_own) | find_lacking(topics) <= set(self._lacking)

    async def _leads(self, broker_id: int) -> bool:
        topics = await self._admin.list_topics(with_internal=True)
        elsewhere = [each for each in find_led_elsewhere(topics, broker_id) if each not in self._lacking]
        if not elsewhere:
            return True
        outcomes = await self._admin.elect_leaders(elsewhere)
        return all(
            error is None or code_of(error) is ErrorCode.ELECTION_NOT_NEEDED for error in outcomes.values()
        )

    async def _check_quorum(self) -> None:
        """Waits until every voter has what the leader has now; a cluster that does not tell has none."""
        target = await self._quorum()
        if target is None:
            return
        end = max((each.log_end_offset for each in target.voters), default=0)

        async def has_all() -> bool:
            quorum = await self._quorum()
            return quorum is not None and all(each.log_end_offset >= end for each in quorum.voters)

        await self._until(has_all, "the quorum of controllers is behind")

    async def _quorum(self) -> QuorumView | None:
        try:
            return await self._admin.describe_quorum()
        except DlogError as error:
            if code_of(error) is ErrorCode.UNSUPPORTED_VERSION:
                return None
            raise

    async def _until(self, holds: Callable[[], Awaitable[bool]], otherwise: str) -> None:
        """Asks again and again: a cluster has no way to tell us."""

        async def ask() -> None:
            while True:
                with contextlib.suppress(DlogError):  # brokers come and go meanwhile
                    if await holds():
                        return
                await asyncio.sleep(LOOK_SECONDS)

        await self._within(ask(), otherwise)

    async def _within(self, waiting: Awaitable[None], otherwise: str) -> None:
        try:
            async with asyncio.timeout(self._seconds_max):
                await waiting
        except TimeoutError:
            raise RestartFailedError(f"{otherwise} after {self._seconds_max:g} s") from None
