"""A member of a group, alone in it, that commits rising offsets and asks for them.

    join ──► commit, ask, commit …  ──► join again        at times, and whenever nobody knows what became of
                                                          something: the commits of the generation before are
                                                          void from then on, also those still on their way

Now and then it commits a low offset in the name of an earlier generation, as one that was delayed would.
What the group is told of its offset never goes back.
"""

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import BrokerUnreachableError, DlogError
from distributedlog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from distributedlog.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from distributedlog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from distributedlog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from distributedlog.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from distributedlog.protocol.schema import Message
from tests.reliability.history import Place
from tests.simulation.brokers.wire_client import WireClient

if TYPE_CHECKING:
    from tests.simulation.brokers.clients import Clients

M = TypeVar("M", bound=Message)

COMMIT_VERSION, FETCH_VERSION = 8, 7
KIND, ASSIGNOR = "consumer", "range"
SESSION_MS = 10_000


class Membership(NamedTuple):
    member_id: str
    generation: int


class Committer:
    def __init__(self, clients: "Clients", client: WireClient, place: Place) -> None:
        self._clients = clients
        self._client = client
        self._place = place
        self._group = f"group-{client.name}"
        self._coordinator: tuple[str, int] | None = None
        self._membership: Membership | None = None
        self._member_id = ""
        self._next = 1

    async def run(self) -> None:
        while not self._clients.is_over:
            try:
                await self._do_something()
            except DlogError:
                self._forget()
            await self._clients.pause(250)

    async def _do_something(self) -> None:
        chance = self._client.chance
        if self._coordinator is None:
            await self._find_coordinator()
        elif self._membership is None:
            await self._join()
        elif chance.random() < 0.1:
            self._membership = None
        elif chance.random() < 0.35:
            await self._ask()
        else:
            membership = self._membership
            await self._commit(membership)
            if chance.random() < 0.2:
                await self._commit_late(membership)

    def _forget(self) -> None:
        """Begins anew: nobody knows what became of the last request."""
        self._coordinator = self._membership = None

    async def _call(self, request: Message, response: type[M], version: int | None = None) -> M:
        if self._coordinator is None:
            raise BrokerUnreachableError(f"{self._group} has no coordinator")
        return await self._client.ask_at(self._coordinator, request, response, version)

    # --- the group -----------------------------------------------------------------------------

    async def _find_coordinator(self) -> None:
        request = FindCoordinatorRequest(coordinator_keys=[self._group])
        found = (await self._client.ask_any(request, FindCoordinatorResponse)).coordinators[0]
        if found.error_code == ErrorCode.NONE:
            self._coordinator = found.host, found.port

    async def _join(self) -> None:
        joined = await self._call(
            JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=SESSION_MS,
                member_id=self._member_id,
                protocol_type=KIND,
                protocols=[JoinGroupRequestProtocol(name=ASSIGNOR, metadata=b"")],
            ),
            JoinGroupResponse,
        )
        self._member_id = joined.member_id
        if joined.error_code != ErrorCode.NONE:
            self._heed(joined.error_code)
            return
        synced = await self._call(
            SyncGroupRequest(
                group_id=self._group,
                generation_id=joined.generation_id,
                member_id=self._member_id,
                protocol_type=KIND,
                protocol_name=ASSIGNOR,
                assignments=[SyncGroupRequestAssignment(member_id=self._member_id, assignment=b"")],
            ),
            SyncGroupResponse,
        )
        self._heed(synced.error_code)
        if synced.error_code == ErrorCode.NONE:
            self._membership = Membership(self._member_id, joined.generation_id)

    def _heed(self, code: int) -> None:
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        if code not in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self._forget()

    # --- its offset ----------------------------------------------------------------------------

    async def _commit(self, membership: Membership) -> None:
        offset, self._next, began_us = self._next, self._next + 1, self._clients.cluster.now_us
        code = await self._send_commit(membership, offset)
        self._heed(code)
        if code == ErrorCode.NONE:
            self._clients.operations += 1
            self._told(offset, began_us, is_commit=True)

    async def _commit_late(self, membership: Membership) -> None:
        await self._send_commit(membership._replace(generation=membership.generation - 1), 0)

    async def _send_commit(self, membership: Membership, offset: int) -> int:
        partition = OffsetCommitRequestPartition(
            partition_index=self._place.partition, committed_offset=offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=membership.generation,
            member_id=membership.member_id,
            topics=[OffsetCommitRequestTopic(name=self._place.topic, partitions=[partition])],
        )
        found = await self._call(request, OffsetCommitResponse, COMMIT_VERSION)
        return found.topics[0].partitions[0].error_code

    async def _ask(self) -> None:
        began_us = self._clients.cluster.now_us
        topic = OffsetFetchRequestTopic(name=self._place.topic, partition_indexes=[self._place.partition])
        request = OffsetFetchRequest(group_id=self._group, topics=[topic])
        found = await self._call(request, OffsetFetchResponse, FETCH_VERSION)
        told = found.topics[0].partitions[0] if found.topics else None
        code = found.error_code or (0 if told is None else told.error_code)
        self._heed(code)
        if told is not None and code == ErrorCode.NONE:
            self._told(told.committed_offset, began_us, is_commit=False)

    def _told(self, offset: int, began_us: int, *, is_commit: bool) -> None:
        cluster = self._clients.cluster
        cluster.trace.add(cluster.now_us, "commits" if is_commit else "is told", self._client.name, offset)
        cluster.history.told_committed(self._client.name, self._place, self._group, offset, began_us)
