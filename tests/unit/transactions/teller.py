"""Carries out the commands of a transcript on a transaction coordinator, and tells what came of each.

    init NAME [v2]                   InitProducerId of a producer that starts; `v2`: by transaction.version 2
    init NAME again                  InitProducerId of one that asks for its own next epoch
    add NAME PARTITION...            AddPartitionsToTxn
    verify NAME PARTITION...         the leader of a partition asks whether it is part of the transaction
    commit NAME, abort NAME          EndTxn, as the producer that NAME knows itself to be
    late commit|abort NAME           the same, as the producer that it was before
    written                          every marker that was sent is written
    wait MS                          time passes
    failover                         another coordinator takes over
    log                              the records

All clients have one transactional id.  The transaction's state is told when it is another, and markers are
when they are sent.
"""

from collections.abc import Callable

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.statemachine import Producer
from distributedlog.transactions.records import TransactionRecord
from distributedlog.transactions.requests import (
    BeingAborted,
    EndRequest,
    ProducerReply,
    Reply,
    SendMarkers,
    VerifyReply,
)
from distributedlog.transactions.transaction import VERSION_CLASSIC, VERSION_EPOCH_PER_TRANSACTION
from tests.unit.transactions.stage import ID, Stage, decoded

NOBODY = Producer(-1, -1)


class Client:
    def __init__(self, version: int) -> None:
        self.version = version
        self.producer = self.before = NOBODY


class Teller:
    def __init__(self) -> None:
        self._stage = Stage()
        self._clients: dict[str, Client] = {}
        self._state = ""
        self._sent: list[SendMarkers] = []
        self._commands: dict[str, Callable[[list[str]], list[str]]] = {
            "init": self._init,
            "add": self._add,
            "verify": self._verify,
            "commit": lambda arguments: self._end(arguments, is_commit=True),
            "abort": lambda arguments: self._end(arguments, is_commit=False),
            "late": self._end_late,
            "written": self._write_markers,
            "wait": self._wait,
            "failover": self._fail_over,
            "log": self._log,
        }

    def perform(self, line: str) -> list[str]:
        """What it brought about."""
        command, *arguments = line.split()
        return [*self._commands[command](arguments), *self._news()]

    def _news(self) -> list[str]:
        told = []
        found = self._stage.machine.transactions.get(ID)
        state = "not there" if found is None else found.state.label
        if state != self._state:
            self._state = state
            told.append(f"the transaction is {state}")
        new = [each for each in self._stage.sent if each not in self._sent]
        self._sent = list(self._stage.sent)
        for each in new:
            kind = "COMMIT" if each.is_commit else "ABORT"
            names = " ".join(sorted(str(partition) for partition in each.partitions))
            told.append(
                f"{kind} to {names} of {_name(each.producer)}, version {each.version}, "
                f"by coordinator {each.coordinator_epoch}"
            )
        return told

    # --- commands ------------------------------------------------------------------------------

    def _init(self, arguments: list[str]) -> list[str]:
        name, *options = arguments
        if "again" in options:
            client = self._clients[name]
            return [self._told(name, self._stage.init(client.producer))]
        version = VERSION_EPOCH_PER_TRANSACTION if "v2" in options else VERSION_CLASSIC
        self._clients[name] = Client(version)
        return [self._told(name, self._stage.init())]

    def _add(self, arguments: list[str]) -> list[str]:
        name, *partitions = arguments
        client = self._clients[name]
        return [self._told(name, self._stage.add(client.producer, *partitions, version=client.version))]

    def _verify(self, arguments: list[str]) -> list[str]:
        name, *partitions = arguments
        return [self._told(name, self._stage.verify(self._clients[name].producer, *partitions))]

    def _end(self, arguments: list[str], *, is_commit: bool) -> list[str]:
        (name,) = arguments
        client = self._clients[name]
        return [self._told(name, self._stage.end(client.producer, is_commit, client.version))]

    def _end_late(self, arguments: list[str]) -> list[str]:
        kind, name = arguments
        client = self._clients[name]
        reply = self._stage.ask(EndRequest(ID, client.before, kind == "commit", client.version))
        return [f"{name}, late: {_outcome(reply)}"]

    def _write_markers(self, _: list[str]) -> list[str]:
        self._stage.write_markers()
        return []

    def _wait(self, arguments: list[str]) -> list[str]:
        (duration_ms,) = arguments
        self._stage.advance(int(duration_ms))
        return []

    def _fail_over(self, _: list[str]) -> list[str]:
        self._sent = []
        self._stage.take_over()
        return []

    def _log(self, _: list[str]) -> list[str]:
        told = []
        for offset, entry in enumerate(self._stage.log.entries):
            for record in decoded(entry):
                assert isinstance(record, TransactionRecord)
                assert record.value is not None
                found = record.value
                names = " ".join(sorted(str(partition) for partition in found.partitions))
                told.append(f"{offset}  {found.state.label}, {_name(found.producer)} {names}".rstrip())
        return told

    # --- outcomes ------------------------------------------------------------------------------

    def _told(self, name: str, reply: Reply | DlogError) -> str:
        if isinstance(reply, ProducerReply):
            client = self._clients[name]
            client.before, client.producer = client.producer, reply.producer
        return f"{name}: {_outcome(reply)}"


def _outcome(reply: Reply | DlogError) -> str:
    match reply:
        case DlogError():
            return reply.code.name
        case ProducerReply(producer):
            return f"is {_name(producer)}"
        case BeingAborted():
            return ErrorCode.CONCURRENT_TRANSACTIONS.name
        case VerifyReply(errors):
            return " ".join(f"{partition} {code.name}" for partition, code in sorted(errors))
        case _:
            return ErrorCode.NONE.name


def _name(producer: Producer) -> str:
    return f"{producer.producer_id} in epoch {producer.producer_epoch}"
