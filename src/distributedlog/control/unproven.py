"""Nodes that cannot prove anything, for the time of an upgrade (`control.authentication=optional`).

Nodes of versions before the cluster secret neither prove nor ask for a proof.  So that a cluster can be
upgraded node by node, a node may be told to speak with them as they are:

| who                                    | required (the default) | optional                                |
|----------------------------------------|------------------------|-----------------------------------------|
| holds the secret and proves it         | accepted               | accepted                                |
| proves something wrong                 | refused                | refused                                 |
| proves nothing, is no member           | refused                | refused                                 |
| proves nothing, has proved itself once | refused                | refused, as long as this process runs   |
| proves nothing, is a member            | refused                | accepted, counted, logged               |

A member is a voter or a registered broker, by what it says that it is: for as long as a node is so set,
whoever can reach its control port and knows a member's id is that member.  That is as it was before there was
a secret, and why this is never the default, is logged again and again, and is for the time of an upgrade.
"""

from collections.abc import Callable

Accepted = Callable[[int], None]


class UnprovenMembers:
    """Says which nodes may be spoken with without a proof.  Lives on the control loop."""

    def __init__(self, is_member: Callable[[int], bool], accepted: Accepted, *, is_optional: bool) -> None:
        """`accepted` is called for each session, or call, that begins without a proof."""
        self.is_optional = is_optional
        self._is_member = is_member
        self._accepted = accepted
        self._proved: set[int] = set()

    def note_proof(self, node_id: int) -> None:
        """A node that has proved itself is never again believed without a proof."""
        self._proved.add(node_id)

    def accept(self, node_id: int) -> bool:
        """Returns whether the node is spoken with although it has proved nothing."""
        if not self.is_optional or node_id in self._proved or not self._is_member(node_id):
            return False
        self._accepted(node_id)
        return True


NOBODY = UnprovenMembers(lambda node_id: False, lambda node_id: None, is_optional=False)
"""Authentication is required."""
