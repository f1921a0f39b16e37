"""Whether anybody listens at a broker's addresses, as far as their machine tells.

A port *refuses* if the machine answers that nobody listens there.  No answer, no route, no such name, an
answer that comes too late: all of these say nothing about the broker.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

TRY_SECONDS: Final = 1.0
ADDRESSES_MAX: Final = 16


async def all_refuse(addresses: Sequence[tuple[str, int]]) -> bool:
    """Returns whether every one of these refuses; without any, and of too many, nothing is known."""
    if not 0 < len(addresses) <= ADDRESSES_MAX:
        return False
    try:
        async with asyncio.timeout(TRY_SECONDS):
            for host, port in addresses:
                if not await _refuses(host, port):
                    return False
    except (OSError, TimeoutError, UnicodeError):
        return False
    return True


async def _refuses(host: str, port: int) -> bool:
    """Tries every address of the name: it may have several, and nobody need listen on all of them."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=1)  # 1: a stream
    for _family, _type, _protocol, _name, address in found[:ADDRESSES_MAX]:
        try:
            _, writer = await asyncio.open_connection(str(address[0]), port)
        except ConnectionRefusedError:
            continue
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return False
    return bool(found)
