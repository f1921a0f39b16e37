"""Which brokers are not tried for now, because they could not be reached: a circuit breaker for each.  Pure.

    closed --(no connection could be made)--> open --(its pause is over)--> half open: one try
       ^                                        ^                               |      |
       +----------------------------------------|---(a broker answered)---------+      |
                                                +------------(nobody did)--------------+

While a breaker is open whoever wants that broker is told so at once, with the reason of the last try, and
others are asked instead; nobody waits for the time to connect again.  Each pause is twice the one before up
to the largest, give or take a fifth, so that clients that lost a broker together do not come back together.

Whoever connects holds the address's lock meanwhile, so that in half open there is one try, and all who waited
for it share its outcome.

Soft state, of at most `ADDRESSES_MAX` addresses: a program that starts again tries everybody.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from distributedlog.client.addresses import ADDRESSES_MAX, Address
from distributedlog.client.options import ClientOptions
from distributedlog.model.errors import BrokerAvoidedError, BrokerUnreachableError

TRIES_COUNTED_MAX: Final = 1_000


class _Open(NamedTuple):
    tries: int
    """How many have failed since the last success."""
    again_ms: int
    reason: str


class Reachability:
    def __init__(self, options: ClientOptions, between: Callable[[int, int], int]) -> None:
        self._options = options
        self._between = between
        self._open: dict[Address, _Open] = {}

    def check(self, address: Address, now_ms: int) -> None:
        """Raises `BrokerAvoidedError` while the broker's breaker is open."""
        known = self._open.get(address)
        if known is not None and now_ms < known.again_ms:
            again_in_ms = known.again_ms - now_ms
            raise BrokerAvoidedError(
                f"{known.reason}; it is tried again in {again_in_ms} ms", again_in_ms=again_in_ms
            )

    def failed(self, address: Address, error: BrokerUnreachableError, now_ms: int) -> None:
        known = self._open.pop(address, None)
        tries = 1 if known is None else min(known.tries + 1, TRIES_COUNTED_MAX)
        pause_ms = self._between(*self._options.reconnect_ms_range(tries))
        if len(self._open) >= ADDRESSES_MAX:
            del self._open[next(iter(self._open))]  # the one whose last failure is longest ago
        self._open[address] = _Open(tries, now_ms + pause_ms, str(error))

    def succeeded(self, address: Address) -> None:
        self._open.pop(address, None)


def all_failed(failures: list[BrokerUnreachableError]) -> BrokerUnreachableError:
    """What is told when none of several could be reached: when the first of them is tried again, if none was
    tried."""
    text = "; ".join(map(str, failures))
    avoided = [each.again_in_ms for each in failures if isinstance(each, BrokerAvoidedError)]
    if failures and len(avoided) == len(failures):
        return BrokerAvoidedError(text, again_in_ms=min(avoided))
    return BrokerUnreachableError(text)
