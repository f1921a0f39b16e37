"""FindCoordinator and groups of the classic protocol."""

from typing import Any

from distributedlog.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
)
from distributedlog.protocol.messages.delete_groups import DeleteGroupsRequest
from distributedlog.protocol.messages.describe_groups import DescribeGroupsRequest
from distributedlog.protocol.messages.find_coordinator import FindCoordinatorRequest
from distributedlog.protocol.messages.heartbeat import HeartbeatRequest
from distributedlog.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from distributedlog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from distributedlog.protocol.messages.list_groups import ListGroupsRequest
from distributedlog.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from distributedlog.protocol.versioned import encode_versioned
from tests.compat.differential.asking import Conversation
from tests.compat.differential.registry import probe
from tests.compat.differential.trees import Tree

MEMBER_ID_REQUIRED = 79
JOIN_VERSION, SYNC_VERSION, DESCRIBE_VERSION = 9, 5, 6


# --- FindCoordinator ---------------------------------------------------------------------------


@probe(FindCoordinatorRequest, until=3)
def coordinator(of: Conversation, version: int) -> None:
    of.ask("group", FindCoordinatorRequest(key=of.name("g")), version)
    of.ask("empty group", FindCoordinatorRequest(key=""), version)
    if version:
        of.ask("transactional id", FindCoordinatorRequest(key=of.name("t"), key_type=1), version)
        of.ask("type 7", FindCoordinatorRequest(key=of.name("g"), key_type=7), version)
        of.ask("share", FindCoordinatorRequest(key=of.name("g"), key_type=2), version)


@probe(FindCoordinatorRequest, since=4)
def coordinators(of: Conversation, version: int) -> None:
    def ask(label: str, kind: int, *keys: str) -> None:
        of.ask(label, FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys)), version)

    ask("group", 0, of.name("g"))
    ask("two groups", 0, of.name("g"), of.name("h"))
    ask("one twice", 0, of.name("g"), of.name("g"))
    ask("empty group", 0, "")
    ask("none", 0)
    ask("transactional id", 1, of.name("t"))
    ask("type 7", 7, of.name("g"))
    ask("share", 2, of.name("g"))


# --- members -----------------------------------------------------------------------------------


def _subscription(topic: str = "t") -> bytes:
    return encode_versioned(ConsumerProtocolSubscription(topics=[topic]), 1)


def _assignment(*partitions: int) -> bytes:
    given = [TopicPartitions(topic="t", partitions=list(partitions))]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=given), 1)


def join(group: str, member_id: str = "", **more: Any) -> JoinGroupRequest:
    protocols = [
        JoinGroupRequestProtocol(name=name, metadata=_subscription())
        for name in more.pop("names", ("range", "roundrobin"))
    ]
    fields = {
        "group_id": group,
        "member_id": member_id,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "protocol_type": "consumer",
        "protocols": protocols,
    }
    return JoinGroupRequest(**{**fields, **more})


def _sync(
    group: str, generation: int, member_id: str, given: dict[str, bytes] | None = None, **more: Any
) -> SyncGroupRequest:
    assignments = [
        SyncGroupRequestAssignment(member_id=member, assignment=assignment)
        for member, assignment in (given or {}).items()
    ]
    fields = {
        "group_id": group,
        "generation_id": generation,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": assignments,
    }
    return SyncGroupRequest(**{**fields, **more})


def new_member(of: Conversation, group: str, **more: Any) -> str:
    """The id of a new member that is alone in its group, which is stable."""
    first = of.call(join(group, **more), JOIN_VERSION, JoinGroupResponse)
    member = first.member_id
    if first.error_code == MEMBER_ID_REQUIRED:
        first = of.call(join(group, member, **more), JOIN_VERSION, JoinGroupResponse)
    assert first.error_code == 0, f"it could not join: {first.error_code}"
    given = {member: _assignment(0)}
    synced = of.call(_sync(group, first.generation_id, member, given), SYNC_VERSION, SyncGroupResponse)
    assert synced.error_code == 0, f"it could not sync: {synced.error_code}"
    return str(member)


@probe(JoinGroupRequest)
def joining(of: Conversation, version: int) -> None:
    group = of.name("g")

    def ask(label: str, member_id: str = "", in_group: str = group, **more: Any) -> Any:
        return of.ask(label, join(in_group, member_id, **more), version)

    first = ask("first")
    member = first.member_id
    if first.error_code == MEMBER_ID_REQUIRED:
        ask("with the id it was given", member)
    ask("once more", member)
    ask("an id that nobody has", "stranger")
    ask("no group", in_group="")
    ask("session timeout too small", session_timeout_ms=1)
    ask("session timeout too large", session_timeout_ms=2**31 - 1)
    ask("session timeout negative", session_timeout_ms=-1)
    ask("no protocols", protocols=[])
    ask("no protocol type", protocol_type="")
    ask("another protocol type", protocol_type="connect")
    ask("no protocol in common", names=("sticky",))
    ask("new group, no protocols", in_group=of.name("h"), protocols=[])
    ask("new group, no protocol type", in_group=of.name("h"), protocol_type="")
    ask("new group, an id that nobody has", "stranger", in_group=of.name("h"))
    if version == 0:
        ask("new group, a protocol twice", in_group=of.name("i"), names=("range", "range"))


@probe(JoinGroupRequest, since=5)
def static_members(of: Conversation, version: int) -> None:
    group = of.name("g")

    def ask(label: str, member_id: str = "", instance: str | None = "i", **more: Any) -> Any:
        return of.ask(label, join(group, member_id, group_instance_id=instance, **more), version)

    first = ask("first")
    given = {first.member_id: _assignment(0)}
    of.ask("assigns", _sync(group, 1, first.member_id, given, group_instance_id="i"), SYNC_VERSION)
    ask("again, without its id")
    ask("the former one", first.member_id)
    ask("its id, another instance", first.member_id, "j")
    ask("an instance with a stranger's id", "stranger", "k")
    of.ask("described", DescribeGroupsRequest(groups=[group]), DESCRIBE_VERSION)


@probe(SyncGroupRequest)
def syncing(of: Conversation, version: int) -> None:
    group = of.name("g")
    member = new_member(of, group)

    def ask(label: str, generation: int = 1, who: str = member, in_group: str = group, **more: Any) -> None:
        of.ask(label, _sync(in_group, generation, who, **more), version)

    ask("again")
    ask("another generation", 9)
    ask("generation -1", -1)
    ask("a stranger", 1, "stranger")
    ask("no id", 1, "")
    ask("no such group", 1, member, of.name("none"))
    ask("empty group", 1, member, "")
    if version >= 3:
        ask("another instance", group_instance_id="i")
    if version >= 5:
        ask("another protocol type", protocol_type="connect")
        ask("another protocol", protocol_name="roundrobin")
        ask("no protocol", protocol_type=None, protocol_name=None)


@probe(HeartbeatRequest)
def heartbeats(of: Conversation, version: int) -> None:
    group = of.name("g")
    member = new_member(of, group)

    def ask(label: str, generation: int = 1, who: str = member, in_group: str = group, **more: Any) -> None:
        request = HeartbeatRequest(group_id=in_group, generation_id=generation, member_id=who, **more)
        of.ask(label, request, version)

    ask("well")
    ask("another generation", 9)
    ask("generation -1", -1)
    ask("a stranger", 1, "stranger")
    ask("no id", 1, "")
    ask("no such group", 1, member, of.name("none"))
    ask("empty group", 1, member, "")
    if version >= 3:
        ask("another instance", group_instance_id="i")


@probe(LeaveGroupRequest, until=2)
def leaving(of: Conversation, version: int) -> None:
    group = of.name("g")
    member = new_member(of, group)
    of.ask("a stranger", LeaveGroupRequest(group_id=group, member_id="stranger"), version)
    of.ask("no such group", LeaveGroupRequest(group_id=of.name("none"), member_id=member), version)
    of.ask("empty group", LeaveGroupRequest(group_id="", member_id=member), version)
    of.ask("itself", LeaveGroupRequest(group_id=group, member_id=member), version)
    of.ask("again", LeaveGroupRequest(group_id=group, member_id=member), version)
    of.ask("empty then", DescribeGroupsRequest(groups=[group]), DESCRIBE_VERSION)


@probe(LeaveGroupRequest, since=3)
def leaving_together(of: Conversation, version: int) -> None:
    group = of.name("g")
    member = new_member(of, group)

    def ask(label: str, *who: tuple[str, str | None], in_group: str = group) -> None:
        members = [MemberIdentity(member_id=name, group_instance_id=instance) for name, instance in who]
        of.ask(label, LeaveGroupRequest(group_id=in_group, members=members), version)

    ask("a stranger", ("stranger", None))
    ask("an instance that is not there", ("", "i"))
    ask("its id with an instance", (member, "i"))
    ask("nobody")
    ask("no id", ("", None))
    ask("no such group", (member, None), in_group=of.name("none"))
    ask("empty group", (member, None), in_group="")
    ask("itself and a stranger", (member, None), ("stranger", None))
    ask("again", (member, None))
    static = of.name("s")
    new_member(of, static, group_instance_id="i")
    ask("an instance with another id", ("stranger", "i"), in_group=static)
    ask("an instance", ("", "i"), in_group=static)


# --- describing, listing, deleting -------------------------------------------------------------


@probe(DescribeGroupsRequest)
def groups_described(of: Conversation, version: int) -> None:
    group = of.name("g")

    def ask(label: str, *names: str, **more: Any) -> None:
        of.ask(label, DescribeGroupsRequest(groups=list(names), **more), version)

    ask("not there", group)
    member = new_member(of, group)
    ask("stable", group)
    ask("two", group, of.name("none"))
    ask("one twice", group, group)
    ask("empty name", "")
    ask("none")
    if version >= 3:
        ask("operations", group, include_authorized_operations=True)
        ask("operations of one that is not there", of.name("none"), include_authorized_operations=True)
    joined = of.call(join(group, member), JOIN_VERSION, JoinGroupResponse)
    assert joined.error_code == 0
    ask("completing", group)
    of.ask("leaves", LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member)]), 4)
    ask("empty", group)


def only_mine(of: Conversation) -> Any:
    def keep(answer: Tree) -> Tree:
        groups = dict(answer["groups"] or {})
        return {
            **answer,
            "groups": {
                name: each
                for name, each in groups.items()
                if name.startswith(of.prefix) and "-scout" not in name
            },
        }

    return keep


@probe(ListGroupsRequest)
def groups_listed(of: Conversation, version: int) -> None:
    group = of.name("g")
    member = new_member(of, group)

    def ask(label: str, **more: Any) -> None:
        of.ask(label, ListGroupsRequest(**more), version, keep=only_mine(of))

    ask("all")
    if version >= 4:
        for state in ("Stable", "stable", "Empty", "NoSuch", ""):
            ask(f"state '{state}'", states_filter=[state])
        ask("two states", states_filter=["Empty", "Stable"])
    if version >= 5:
        for kind in ("classic", "Classic", "consumer", "share", "nosuch", ""):
            ask(f"type '{kind}'", types_filter=[kind])
    of.ask("leaves", LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member)]), 4)
    ask("all then")


@probe(DeleteGroupsRequest)
def groups_deleted(of: Conversation, version: int) -> None:
    group = of.name("g")
    member = new_member(of, group)

    def ask(label: str, *names: str) -> None:
        of.ask(label, DeleteGroupsRequest(groups_names=list(names)), version)

    ask("not empty", group)
    ask("not there", of.name("none"))
    ask("empty name", "")
    ask("none")
    of.ask("leaves", LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member)]), 4)
    ask("empty, and one that is not there", group, of.name("none"))
    ask("again", group)
    of.ask("gone", DescribeGroupsRequest(groups=[group]), DESCRIBE_VERSION)
    second = of.name("h")
    member = new_member(of, second)
    of.ask("leaves too", LeaveGroupRequest(group_id=second, members=[MemberIdentity(member_id=member)]), 4)
    ask("one twice", second, second)
