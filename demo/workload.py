"""The shop's customers: orders, payments, clicks, sent by librdkafka, and a ledger of what was acknowledged.

| of a hundred events | are                                                                    |
|---------------------|------------------------------------------------------------------------|
| 95                  | as they should be, with the time of now                                |
| 2                   | late: their time is minutes ago, so most of them miss their window     |
| 3                   | not to be understood: no UTF-8, no JSON, a wrong type, a missing field |

The producer is idempotent and asks for `acks=all`.  An event is in the ledger if its delivery was reported:
then, and only then, the pipeline has to have it, once.
"""

import collections
import contextlib
import json
import random
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Producer

KINDS = ("orders", "payments", "clicks")
SHARE = (3, 2, 5)
LATE = 0.02
MALFORMED = 0.03
LATE_SECONDS = (120, 240)
WINDOW_SECONDS = 10
CLOSING_SECONDS = 120
"""How far ahead the last events are, so that all windows before them end."""
TURN_SECONDS = 0.05


@dataclass
class Ledger:
    """What was acknowledged.  Written by the producer's thread, read by others."""

    ids: dict[str, set[str]] = field(default_factory=lambda: {kind: set() for kind in KINDS})
    cents: collections.Counter[str] = field(default_factory=collections.Counter)
    on_time: collections.Counter[tuple[str, int]] = field(default_factory=collections.Counter)
    """Kind and the second its window begins → events."""
    late: collections.Counter[tuple[str, int]] = field(default_factory=collections.Counter)
    malformed: collections.Counter[str] = field(default_factory=collections.Counter)
    """Reason → events."""
    closing: int = 0
    failed: int = 0

    @property
    def valid(self) -> int:
        return sum(map(len, self.ids.values()))

    @property
    def acknowledged(self) -> int:
        return self.valid + sum(self.malformed.values())


@dataclass(frozen=True, slots=True)
class Event:
    kind: str
    value: bytes
    key: str
    identity: str = ""
    cents: int = 0
    second: int = 0
    is_late: bool = False
    is_closing: bool = False
    reason: str | None = None
    """Why it cannot be understood, if it cannot."""


def make_event(number: int, now: float, chance: random.Random) -> Event:
    kind = chance.choices(KINDS, SHARE)[0]
    customer = f"customer-{chance.randrange(500)}"
    cents = 0 if kind == "clicks" else chance.randint(199, 99_999)
    draw = chance.random()
    is_late = draw < LATE
    moment = now - chance.uniform(*LATE_SECONDS) if is_late else now
    identity = f"{kind[0]}-{number}"
    body: dict[str, object] = {"id": identity, "customer": customer, "cents": cents, "time": _iso(moment)}
    if LATE <= draw < LATE + MALFORMED:
        value, reason = _spoil(body, chance)
        return Event(kind, value, customer, reason=reason)
    return Event(kind, json.dumps(body).encode(), customer, identity, cents, int(moment), is_late)


def _spoil(body: dict[str, object], chance: random.Random) -> tuple[bytes, str]:
    """An event that makes no sense, and what the pipeline will say about it."""
    how = chance.randrange(4)
    if how == 0:
        return b"\xff\xfe" + json.dumps(body).encode(), "not UTF-8"
    if how == 1:
        return json.dumps(body).encode()[:-7], "not JSON"
    if how == 2:
        return json.dumps({**body, "cents": "a lot"}).encode(), "a field has the wrong type"
    return json.dumps({name: value for name, value in body.items() if name != "id"}).encode(), "no field id"


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")


class Workload:
    """Sends from a thread of its own until it is stopped; a context manager."""

    def __init__(self, bootstrap: str, events_per_second: int, seed: int) -> None:
        self.ledger = Ledger()
        self.sent = 0
        self._rate = events_per_second
        self._chance = random.Random(seed)
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 20,
                "message.timeout.ms": 120_000,
                "log_level": 0,
                "error_cb": lambda _: None,  # that a broker is gone for a second is what we are here to see
            }
        )
        self._thread = threading.Thread(target=self._work, name="workload", daemon=True)

    def __enter__(self) -> "Workload":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._producer.purge()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def finish(self) -> None:
        """No more events but the last ones, which end all windows; all that was sent is acknowledged."""
        self.stop()
        moment = time.time() + CLOSING_SECONDS
        for kind in KINDS:
            identity = f"{kind[0]}-closing"
            body = {"id": identity, "customer": "nobody", "cents": 0, "time": _iso(moment)}
            closing = Event(
                kind, json.dumps(body).encode(), "nobody", identity, 0, int(moment), is_closing=True
            )
            self.sent += 1
            self._send(closing)
        left = self._producer.flush(120)
        if left:
            raise TimeoutError(f"{left} events were not acknowledged within two minutes")

    def _work(self) -> None:
        began = time.monotonic()
        while not self._stopping.wait(TURN_SECONDS):
            due = int((time.monotonic() - began) * self._rate)
            while self.sent < due and not self._stopping.is_set():
                self.sent += 1
                self._send(make_event(self.sent, time.time(), self._chance))
            self._producer.poll(0)

    def _send(self, event: Event) -> None:
        def delivered(error: Any, _: Any) -> None:
            self._enter(event, error)

        while True:
            with contextlib.suppress(BufferError):  # too much on the way: let some arrive
                self._producer.produce(event.kind, value=event.value, key=event.key, on_delivery=delivered)
                return
            self._producer.poll(0.1)

    def _enter(self, event: Event, error: Any) -> None:
        ledger = self.ledger
        if error is not None:
            ledger.failed += 1
            return
        if event.reason is not None:
            ledger.malformed[event.reason] += 1
            return
        ledger.ids[event.kind].add(event.identity)
        ledger.cents[event.kind] += event.cents
        if event.is_closing:
            ledger.closing += 1
            return
        window = (event.kind, event.second - event.second % WINDOW_SECONDS)
        (ledger.late if event.is_late else ledger.on_time)[window] += 1
