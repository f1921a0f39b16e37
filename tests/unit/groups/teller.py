"""Carries out the commands of a transcript on a coordinator, and tells what came of each.

    coordinator [DELAY]              a coordinator with an empty log; its initial delay in ms
    join NAME [OPTION...]            JoinGroup: id (asks for one first), instance=I, topics=T,U, offers=X,Y
    sync NAME [WHO=PART...]          SyncGroup; a leader says who gets what
    beat NAME, leave NAME            Heartbeat, LeaveGroup
    commit NAME OFFSET               OffsetCommit in the generation that the member knows; `-`: by no member
    stale NAME OFFSET                the same in the generation before
    fetch                            OffsetFetch
    delete                           DeleteGroups
    wait MS                          time passes
    hold, release                    entries of the log do not commit; they do again
    failover [LOST]                  another coordinator takes over, without the last LOST entries of the log
    show, log                        the group; the records

Whoever waits is told of when he is answered.  The group's state is told when it is another.
"""

from collections.abc import Callable

from distributedlog.groups.config import GroupConfig
from distributedlog.groups.records import OffsetRecord
from distributedlog.groups.requests import DeleteGroupRequest, Leaver, SupportedProtocol, SyncReply
from distributedlog.model.error_codes import ErrorCode
from tests.unit.groups.stage import GROUP, Stage, Waiting, decoded, subscription


class Client:
    def __init__(self, name: str) -> None:
        self.name = name
        self.member_id = ""
        self.instance: str | None = None
        self.generation = -1
        self.topics: tuple[str, ...] = ("t",)
        self.protocols: tuple[str, ...] = ("range",)
        self.waiting: Waiting | None = None


class Teller:
    def __init__(self) -> None:
        self._stage = Stage()
        self._clients: dict[str, Client] = {}
        self._state = ""
        self._commands: dict[str, Callable[[list[str]], list[str]]] = {
            "coordinator": self._coordinator,
            "join": self._join,
            "sync": self._sync,
            "beat": self._apply_heartbeat,
            "leave": self._leave,
            "commit": self._commit,
            "stale": self._stale,
            "fetch": self._fetch,
            "delete": self._delete,
            "wait": self._wait,
            "hold": self._hold,
            "release": self._release,
            "failover": self._failover,
            "show": self._show,
            "log": self._log,
        }

    def perform(self, line: str) -> list[str]:
        """What it brought about."""
        command, *arguments = line.split()
        told = self._commands[command](arguments)
        return [*told, *self._answers(), *self._news()]

    # --- what is told --------------------------------------------------------------------------

    def _answers(self) -> list[str]:
        """Returns the answers of those who waited, in the order in which they came."""
        told = []
        for client in self._clients.values():
            waiting = client.waiting
            if waiting is not None and waiting.is_answered:
                client.waiting = None
                told.append(f"{client.name}: {self._heard(client, waiting)}")
        return told

    def _heard(self, client: Client, waiting: Waiting) -> str:
        if waiting.code is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = waiting.joined.member_id
            return f"is to be {client.member_id}"
        if waiting.code is not ErrorCode.NONE:
            if waiting.code is ErrorCode.UNKNOWN_MEMBER_ID:
                client.member_id, client.generation = "", -1
            return waiting.code.name
        if isinstance(waiting.reply, SyncReply):
            return f"owns {waiting.reply.assignment.decode() or 'nothing'}"
        joined = waiting.joined
        client.member_id, client.generation = joined.member_id, joined.generation
        text = f"is {joined.member_id} in generation {joined.generation}, {joined.protocol}"
        if joined.members:
            text += "; leads " + " ".join(each.member_id for each in joined.members)
        return text + (", and keeps the assignments" if joined.skip_assignment else "")

    def _news(self) -> list[str]:
        group = self._stage.machine.groups.get(GROUP)
        state = "not there" if group is None else group.state.value
        if state == self._state:
            return []
        self._state = state
        return [f"the group is {state}"]

    # --- members -------------------------------------------------------------------------------

    def _client(self, name: str) -> Client:
        return self._clients.setdefault(name, Client(name))

    def _join(self, arguments: list[str]) -> list[str]:
        name, *options = arguments
        client = self._client(name)
        for option in options:
            key, _, value = option.partition("=")
            if key == "instance":
                client.instance = value
            elif key == "topics":
                client.topics = tuple(value.split(","))
            elif key == "offers":
                client.protocols = tuple(value.split(","))
        client.waiting = self._stage.join(
            client.member_id,
            instance=client.instance,
            must_know_id="id" in options,
            protocols=tuple(
                SupportedProtocol(each, subscription(*client.topics)) for each in client.protocols
            ),
        )
        return []

    def _sync(self, arguments: list[str]) -> list[str]:
        name, *parts = arguments
        client = self._client(name)
        given = {}
        for part in parts:
            who, _, what = part.partition("=")
            given[self._client(who).member_id] = what.encode()
        client.waiting = self._stage.sync(
            client.member_id, client.generation, given, instance=client.instance
        )
        return []

    def _apply_heartbeat(self, arguments: list[str]) -> list[str]:
        client = self._client(arguments[0])
        code = self._stage.heartbeat(client.member_id, client.generation, client.instance)
        return [f"{client.name}: {code.name}"]

    def _leave(self, arguments: list[str]) -> list[str]:
        client = self._clients.pop(arguments[0])
        (code,) = self._stage.leave(Leaver(client.member_id, client.instance))
        return [f"{client.name}: {code.name}"]

    # --- positions -----------------------------------------------------------------------------

    def _commit(self, arguments: list[str]) -> list[str]:
        return self._committed(*arguments, behind=0)

    def _stale(self, arguments: list[str]) -> list[str]:
        return self._committed(*arguments, behind=1)

    def _committed(self, name: str, offset: str, *, behind: int) -> list[str]:
        if name == "-":
            return [f"-: {self._stage.commit(int(offset)).name}"]
        client = self._client(name)
        code = self._stage.commit(
            int(offset), client.member_id, client.generation - behind, instance=client.instance
        )
        return [f"{name}: {code.name}"]

    def _fetch(self, _: list[str]) -> list[str]:
        found = self._stage.committed()
        return [f"{partition} {offset}" for partition, offset in found.items()] or ["no position"]

    # --- the coordinator -----------------------------------------------------------------------

    def _coordinator(self, arguments: list[str]) -> list[str]:
        delay_ms = int(arguments[0]) if arguments else 0
        self._stage = Stage(GroupConfig(initial_rebalance_delay_ms=delay_ms))
        return []

    def _delete(self, _: list[str]) -> list[str]:
        return [self._stage.code_of(DeleteGroupRequest(GROUP)).name]

    def _wait(self, arguments: list[str]) -> list[str]:
        self._stage.advance(int(arguments[0]))
        return []

    def _hold(self, _: list[str]) -> list[str]:
        self._stage.commits = False
        return []

    def _release(self, _: list[str]) -> list[str]:
        self._stage.commits = True
        self._stage.settle()
        return []

    def _failover(self, arguments: list[str]) -> list[str]:
        lost = int(arguments[0]) if arguments else 0
        told = []
        for client in self._clients.values():
            if client.waiting is not None:
                client.waiting = None
                told.append(f"{client.name}: NOT_COORDINATOR")
        self._stage.commits = True
        self._stage.failover(keep=len(self._stage.log.entries) - lost)
        return told

    def _show(self, _: list[str]) -> list[str]:
        group = self._stage.machine.groups.get(GROUP)
        if group is None:
            return ["no group"]
        told = [f"{group.state.value}, generation {group.generation}, {group.protocol or 'no protocol'}"]
        for member in group.members.values():
            marks = [
                *(["leads"] if member.member_id == group.leader_id else []),
                *([f"instance {member.instance_id}"] if member.instance_id else []),
                *(["waits to join"] if member.join_waiter is not None else []),
                *(["waits to sync"] if member.sync_waiter is not None else []),
                *([f"owns {member.assignment.decode()}"] if member.assignment else []),
            ]
            told.append(" ".join([member.member_id, ", ".join(marks)]).rstrip())
        return told + [f"{each} is given out" for each in sorted(group.pending)]

    def _log(self, _: list[str]) -> list[str]:
        return [
            f"{offset}  {_spelled(record)}"
            for offset, entry in enumerate(self._stage.log.entries)
            for record in decoded(entry)
        ]


def _spelled(record: object) -> str:
    if isinstance(record, OffsetRecord):
        value = "forgotten" if record.value is None else str(record.value.offset)
        return f"position {record.partition} {value}"
    value = record.value  # type: ignore[attr-defined]
    if value is None:
        return "the group is gone"
    members = " ".join(f"{each.member_id}={each.assignment.decode() or '-'}" for each in value.members)
    return f"generation {value.generation} {members or 'without members'}"
