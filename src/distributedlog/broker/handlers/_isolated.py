"""Questions about the cluster to a broker that is isolated: who leads, who coordinates.

What it knows may be over, and it cannot know.  Where most brokers are dead it is right all the same, and a
new client needs it to read what is there.  So on each connection one question is answered; with the next the
connection is closed: the client got no further by the answer.  Some clients prefer whom they asked last, and
would ask the same broker for ever; none asks one that has just hung up, if there is another.
"""

from typing import TYPE_CHECKING

from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import CloseConnectionError

if TYPE_CHECKING:
    from distributedlog.broker.services import Services


def send_elsewhere_if_isolated(services: "Services", context: RequestContext) -> None:
    """Raises CloseConnectionError if this is the second such question in one isolation."""
    session = context.session
    if session is None:
        return
    services.isolation.look()
    is_isolated = services.isolation.is_isolated
    if is_isolated and session.has_asked_isolated:
        raise CloseConnectionError("this broker hears no other: another may know more of the cluster")
    session.has_asked_isolated = is_isolated
