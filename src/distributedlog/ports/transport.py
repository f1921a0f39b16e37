"""Messages between nodes: sent and forgotten, perhaps lost, doubled or late, never altered.

What must arrive is sent again by whoever needs it.  This is all that consensus asks of a network, and it
is what the simulated network takes away.
"""

from collections.abc import Callable
from typing import Protocol

Receive = Callable[[int, bytes], None]
"""Called with the sender's node id and the message."""


class Transport(Protocol):
    def send(self, node_id: int, message: bytes) -> None:
        """Sends a message; never blocks and never raises for a node that cannot be reached."""
        ...

    def on_receive(self, receive: Receive) -> None: ...

    def close(self) -> None: ...
