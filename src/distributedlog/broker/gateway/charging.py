"""What the gateway's calls are charged against the quotas of clients (`broker/quotas`).

    call      charged                                          against
    Produce   the size of its message                          producer_byte_rate
    Fetch     the size of the responses that were written      consumer_byte_rate
    both      the time that handlers took on the data loop     request_percentage

The allowances are those of Kafka's clients: who writes 1 MB by Kafka's protocol and 1 MB here, under the same
client id, has written 2 MB.  The client id is what the caller says in the metadata of its call, under
CLIENT_ID_KEY, else CLIENT_ID; the user is the anonymous one, as on listeners without authentication.  It is
for this alone: handlers hear CLIENT_ID.

A Produce is charged before anything is made of it, whatever becomes of it then.  A connection of gRPC has
many callers, so it is not muted.  Who has used too much waits instead:

    Produce   is held back before anything is done, HOLD_MS_MAX at most: one caller that writes in a row only
              becomes slower.  Where the wait is longer than that, or than the call's deadline, the call is
              refused at once (THROTTLING_QUOTA_EXCEEDED, RESOURCE_EXHAUSTED) with the time to wait
    Fetch     is never refused: nothing more is read for it until the time is over

Not charged: what the control loop does for a call (reading and making messages and batches), and calls that
only look (GetMetadata, HealthCheck).  Belongs to the data loop.
"""

from collections.abc import Callable
from time import perf_counter
from typing import Final, NamedTuple, ParamSpec, TypeVar

from distributedlog.broker.context import ANONYMOUS
from distributedlog.broker.quotas import MICROSECONDS, ClientQuotas, Meter
from distributedlog.ports.clock import Clock

CLIENT_ID_KEY: Final = "client-id"
CLIENT_ID: Final = "gateway"
HOLD_MS_MAX: Final = 1_000

P = ParamSpec("P")
T = TypeVar("T")


class Caller(NamedTuple):
    peer: str
    """Its address, without the port."""
    client_id: str = CLIENT_ID


class Stopwatch:
    """How long handlers had the data loop."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0

    def run(self, handler: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        began = perf_counter()
        try:
            return handler(*arguments, **named)
        finally:
            self.seconds += perf_counter() - began


class Charges:
    def __init__(self, quotas: ClientQuotas, clock: Clock) -> None:
        self._quotas = quotas
        self._clock = clock

    @property
    def is_on(self) -> bool:
        """Somebody has a quota.  May be asked on any thread: an answer that is late by a call is no harm."""
        return self._quotas.is_on

    def charge(
        self, client_id: str, *, produced_bytes: int = 0, fetched_bytes: int = 0, seconds: float = 0.0
    ) -> None:
        if not self._quotas.is_on:
            return
        account = self._quotas.account(ANONYMOUS, client_id)
        now_ms = self._clock.monotonic_ms()
        for meter, amount in (
            (account.produced, produced_bytes),
            (account.fetched, fetched_bytes),
            (account.requests, int(seconds * MICROSECONDS)),
        ):
            if amount:
                self._quotas.charge(meter, amount, now_ms)

    def produce_wait_ms(self, client_id: str) -> int:
        """How long this client is not to write."""
        account = self._quotas.account(ANONYMOUS, client_id)
        return self._longest(account.produced, account.requests)

    def fetch_wait_ms(self, client_id: str) -> int:
        """How long this client is not to read."""
        account = self._quotas.account(ANONYMOUS, client_id)
        return self._longest(account.fetched, account.requests)

    def _longest(self, *meters: Meter | None) -> int:
        now_ms = self._clock.monotonic_ms()
        return max(0 if meter is None else meter.wait_ms(now_ms) for meter in meters)
