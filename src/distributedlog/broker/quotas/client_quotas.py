"""Quotas of clients: which one counts, how much was used, and how long a client must wait.  Pure.

Which limit counts for a client of a user and a client id, the first that there is; and who shares it:

    its entity                           one allowance for each
    user, client id                      user and client id
    user, default client id              user and client id
    user                                 user, with all of its client ids
    default user, client id              user and client id
    default user, default client id      user and client id
    default user                         user, with all of its client ids
    client id                            client id, of whatever user
    default client id                    client id, of whatever user

It is found for each key by itself: a client may be held to its user's bytes and its own request time.

What was used drains at the rate of the limit.  Who used more than drains in BURST_MS waits until it is no
more than that: so a client may burst up to what it could have used in ten seconds, and in the long run gets
its limit and not a byte more.  (Kafka keeps sums of the last eleven seconds, which forgets what a large
request owes once it is older: with requests of twenty seconds' worth its clients get twice their limit.)

Client ids are the clients' own invention, so at most METERS_MAX allowances are kept; the one that no new
connection has asked for for the longest time is forgotten first.  Ids that are longer than any that can have
a quota of its own, and begin alike, share one.

Amounts and limits: bytes of produce requests and of fetch responses in a second; of `request_percentage` the
time that handling took on the data loop, 100 being all of one thread's; partitions made and removed in a
second.  Who is charged for what stands in `request_charges`.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from distributedlog.broker.observability.metrics import Family, FamilyKind, Sample
from distributedlog.controller.image import QuotaEntity
from distributedlog.controller.quotas import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    NAME_LENGTH_MAX,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
)

BURST_MS: Final = 10_000
METERS_MAX: Final = 10_000
REQUEST_THROTTLE_MS_MAX: Final = 1_000
"""The longest wait for request time: a client is not silenced for long, as in Kafka."""
THROTTLE_MS_MAX: Final = 3_600_000
MICROSECONDS_PER_PERCENT: Final = 10_000
"""A hundredth of a thread's time, in a second."""
MICROSECONDS: Final = 1_000_000
"""Microseconds in a second: the unit in which the time of handling is counted."""
PRINCIPAL_PREFIX: Final = "User:"

Limits = Mapping[QuotaEntity, Mapping[str, float]]


class Bucket:
    """What was used and has not drained yet."""

    __slots__ = ("_burst_ms", "_since_ms", "_used")

    def __init__(self, burst_ms: int = BURST_MS) -> None:
        """`burst_ms`: what drains in so long may be used at once."""
        self._burst_ms = burst_ms
        self._used = 0.0
        self._since_ms = 0

    def add(self, amount: int, limit: float, now_ms: int) -> None:
        """Adds what was used; `limit` is what drains in a second."""
        self._used = max(0.0, self._used - (now_ms - self._since_ms) * limit / 1000) + amount
        self._since_ms = now_ms

    def excess_ms(self, limit: float, now_ms: int) -> int:
        """Returns how long nothing more may be used; 0 or less: no time."""
        drains_ms = self._used * 1000 / limit - (now_ms - self._since_ms)
        return int(min(drains_ms - self._burst_ms, THROTTLE_MS_MAX))


class Meter:
    """One allowance: what is counted against which limit."""

    __slots__ = ("key", "limit", "used")

    def __init__(self, key: str, limit: float) -> None:
        self.key = key
        self.limit = limit
        """How much of what is counted is allowed in a second."""
        self.used = Bucket()

    def charge(self, amount: int, now_ms: int) -> int:
        """Counts; returns how long its user is to wait."""
        self.used.add(amount, self.limit, now_ms)
        return self.wait_ms(now_ms)

    def wait_ms(self, now_ms: int) -> int:
        excess_ms = self.used.excess_ms(self.limit, now_ms)
        if self.key == REQUEST_PERCENTAGE:
            excess_ms = min(excess_ms, REQUEST_THROTTLE_MS_MAX)
        return max(0, excess_ms)


class Account(NamedTuple):
    """The allowances of one client, by what they are of; None: as much as it likes."""

    client_id: str | None
    generation: int
    """The generation of the quotas that it was made under."""
    produced: Meter | None
    fetched: Meter | None
    requests: Meter | None
    mutations: Meter | None


class QuotaLimit(NamedTuple):
    """The limit that applies to a client, and who shares it."""

    limit: float
    sharers: QuotaEntity
    """Who has this allowance together."""


def find_limit(limits: Limits, user: str, client_id: str, key: str) -> QuotaLimit | None:
    """The first limit, in the order of the table above."""
    both = ((CLIENT_ID, client_id), (USER, user))
    for of_user in (user, None):
        for of_client in (client_id, None):
            limit = limits.get(((CLIENT_ID, of_client), (USER, of_user)), _NONE).get(key)
            if limit is not None:
                return QuotaLimit(limit, both)
        limit = limits.get(((USER, of_user),), _NONE).get(key)
        if limit is not None:
            return QuotaLimit(limit, ((USER, user),))
    for of_client in (client_id, None):
        limit = limits.get(((CLIENT_ID, of_client),), _NONE).get(key)
        if limit is not None:
            return QuotaLimit(limit, ((CLIENT_ID, client_id),))
    return None


_NONE: Final[Mapping[str, float]] = {}


@dataclass(slots=True)
class Throttled:
    """How often clients were throttled, and for how long in all."""

    times: int = 0
    total_ms: int = 0


@dataclass(slots=True)
class ClientQuotas:
    """The quotas in force on this broker.  On the data loop."""

    is_on: bool = False
    """Somebody has a quota: else nothing is looked up at all."""
    generation: int = 0
    throttled: dict[str, Throttled] = field(default_factory=dict)
    """How often and how long, by key."""
    _limits: Limits = field(default_factory=dict)
    _meters: OrderedDict[tuple[str, QuotaEntity], Meter] = field(default_factory=OrderedDict)

    def follow(self, limits: Limits) -> None:
        """Puts other quotas in force.  What was used so far counts on."""
        self._limits = limits
        self.is_on = bool(limits)
        self.generation += 1

    def account(self, principal: str, client_id: str | None) -> Account:
        """Returns what a client may use, until the generation changes."""
        user = principal.removeprefix(PRINCIPAL_PREFIX)

        name = (client_id or "")[: NAME_LENGTH_MAX + 1]

        def meter(key: str) -> Meter | None:
            return self._meter(user, name, key)

        return Account(
            client_id,
            self.generation,
            produced=meter(PRODUCER_BYTE_RATE),
            fetched=meter(CONSUMER_BYTE_RATE),
            requests=meter(REQUEST_PERCENTAGE),
            mutations=meter(CONTROLLER_MUTATION_RATE),
        )

    def _meter(self, user: str, client_id: str, key: str) -> Meter | None:
        found = find_limit(self._limits, user, client_id, key)
        if found is None:
            return None
        limit = found.limit * (MICROSECONDS_PER_PERCENT if key == REQUEST_PERCENTAGE else 1)
        name = (key, found.sharers)
        meter = self._meters.get(name)
        if meter is None:
            meter = self._meters[name] = Meter(key, limit)
            if len(self._meters) > METERS_MAX:
                self._meters.popitem(last=False)
        meter.limit = limit
        self._meters.move_to_end(name)
        return meter

    def charge(self, meter: Meter | None, amount: int, now_ms: int) -> int:
        """Counts against an allowance, if there is one; how long its client is to wait."""
        if meter is None:
            return 0
        throttle_ms = meter.charge(amount, now_ms)
        if throttle_ms:
            self.note(meter.key, throttle_ms)
        return throttle_ms

    def note(self, key: str, throttle_ms: int) -> None:
        """Somebody has to wait."""
        throttled = self.throttled.setdefault(key, Throttled())
        throttled.times += 1
        throttled.total_ms += throttle_ms

    def families(self) -> Iterator[Family]:
        """Returns what a scrape shows."""
        counter = FamilyKind.COUNTER
        times = [Sample({"quota": key}, each.times) for key, each in self.throttled.items()]
        yield Family(
            counter, "dlog_quota_throttles", "Requests whose client has to wait for its quota.", times
        )
        waits = [Sample({"quota": key}, each.total_ms / 1000) for key, each in self.throttled.items()]
        yield Family(counter, "dlog_quota_throttle_seconds", "How long clients have to wait, in all.", waits)
        meters = [Sample({}, len(self._meters))]
        yield Family(FamilyKind.GAUGE, "dlog_quota_meters", "Allowances that are being counted.", meters)
