"""A client's journal: one JSON line for each beginning and each end of an operation, as they happen.

    {"did": "send",   "process", "place", "value", "at", "transaction"}      a send began
    {"did": "sent",   "process", "value", "outcome", "offset", "at"}         and ended
    {"did": "poll",   "process", "place", "seat", "records": [[offset, value], …], "invoked", "at",
                      "transaction"}
    {"did": "told",   "process", "place", "what", "offset", "invoked", "at"}
    {"did": "owned",  "group", "generation", "member", "place"}
    {"did": "ended",  "transaction", "outcome"}
    {"did": "met",    "process", "doing", "error", "code"}                   an error, after which it went on

A process that is killed leaves sends without an end: those are unknown.  A last line that was cut off is not
there: whoever reads a pipe passes whole lines on.
"""

import json
import sys
import time
from collections import Counter
from typing import Any, NamedTuple, TextIO

from distributedlog.model.errors import BrokerError, DlogError
from tests.reliability.history import Ended, History, Outcome, Owned, Place, Poll, Position, Seen, Send


class Met(NamedTuple):
    """An error that a client met."""

    process: str
    doing: str
    name: str
    code: int | None
    """Kafka's; None: the client has an error of its own for it."""

    def __str__(self) -> str:
        return f"{self.process} at {self.doing}: {self.name}"


class Journal:
    """Written by a client's process.  A line is flushed at once: what was told outlives the process."""

    def __init__(self, process: str, out: TextIO = sys.stdout) -> None:
        self._process = process
        self._out = out

    def _tell(self, did: str, **facts: Any) -> None:
        self._out.write(json.dumps({"did": did, "process": self._process, **facts}) + "\n")
        self._out.flush()

    def send(self, place: Place, value: str, transaction: str | None = None) -> None:
        self._tell("send", place=place, value=value, at=time.monotonic_ns(), transaction=transaction)

    def sent(self, value: str, outcome: Outcome, offset: int | None = None) -> None:
        self._tell("sent", value=value, outcome=outcome, offset=offset, at=time.monotonic_ns())

    def poll(
        self, place: Place, seat: int, records: list[Seen], invoked_ns: int, transaction: str | None = None
    ) -> None:
        self._tell(
            "poll", place=place, seat=seat, records=records, invoked=invoked_ns, at=time.monotonic_ns(),
            transaction=transaction,
        )  # fmt: skip

    def told(self, place: Place, what: str, offset: int, invoked_ns: int) -> None:
        self._tell("told", place=place, what=what, offset=offset, invoked=invoked_ns, at=time.monotonic_ns())

    def owned(self, group: str, generation: int, place: Place) -> None:
        self._tell("owned", group=group, generation=generation, member=self._process, place=place)

    def met(self, doing: str, error: str, code: int | None) -> None:
        """`code` is Kafka's, if the client was told one."""
        self._tell("met", doing=doing, error=error, code=code)

    def met_exception(self, doing: str, error: Exception) -> None:
        """Like `met`, of clients whose exceptions are named by their classes."""
        if isinstance(error, BrokerError):  # what it is that has no class of its own
            self.met(doing, error.answered.name, error.answered)
        else:
            code = error.code if isinstance(error, DlogError) else getattr(error, "errno", None)
            self.met(doing, type(error).__name__, code)

    def ended(self, transaction: str, outcome: Outcome) -> None:
        self._tell("ended", transaction=transaction, outcome=outcome)


class Gathered:
    """The journals of all processes, and the history that they make."""

    def __init__(self) -> None:
        self._history = History()
        self._open: dict[str, Send] = {}
        self.counts: Counter[str] = Counter()
        """How often each thing was done; sends by their outcome."""
        self.met: Counter[Met] = Counter()

    def add(self, line: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(line)
        getattr(self, f"_{told['did']}")(told)
        self.counts[told["outcome"] if told["did"] == "sent" else told["did"]] += 1
        return told

    def history(self) -> History:
        """Returns the history of all so far; whatever is not yet known to have ended is unknown."""
        history = self._history
        return History(
            [*history.sends, *self._open.values()],
            list(history.polls), list(history.positions), list(history.owned), list(history.ended),
        )  # fmt: skip

    def _send(self, told: dict[str, Any]) -> None:
        assert told["value"] not in self._open, "values are unique"
        self._open[told["value"]] = Send(
            told["process"], Place(*told["place"]), told["value"], told["at"], transaction=told["transaction"]
        )

    def _sent(self, told: dict[str, Any]) -> None:
        begun = self._open.pop(told["value"])
        self._history.sends.append(
            begun._replace(completed_ns=told["at"], outcome=Outcome(told["outcome"]), offset=told["offset"])
        )

    def _poll(self, told: dict[str, Any]) -> None:
        records = tuple(Seen(*record) for record in told["records"])
        self._history.polls.append(
            Poll(
                told["process"], Place(*told["place"]), told["seat"], records, told["invoked"], told["at"],
                told["transaction"],
            )
        )  # fmt: skip

    def _told(self, told: dict[str, Any]) -> None:
        self._history.positions.append(
            Position(
                told["process"], Place(*told["place"]), told["what"], told["offset"], told["invoked"],
                told["at"],
            )
        )  # fmt: skip

    def _owned(self, told: dict[str, Any]) -> None:
        self._history.owned.append(
            Owned(told["group"], told["generation"], told["member"], Place(*told["place"]))
        )

    def _met(self, told: dict[str, Any]) -> None:
        self.met[Met(told["process"], told["doing"], told["error"], told["code"])] += 1

    def _ended(self, told: dict[str, Any]) -> None:
        self._history.ended.append(Ended(told["transaction"], Outcome(told["outcome"])))
