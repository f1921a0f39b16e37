"""A consumer's side of a group, in both protocols.

subscription           what members of a classic group tell their leader, as bytes                    PURE
assignors              range, round-robin; the table of all of them                                   PURE
sticky                 sticky and cooperative-sticky                                                  PURE
membership             where a member of a classic group stands: joining, syncing, stable             PURE
consumer_membership    where a member of a consumer group (KIP-848) stands: epochs, reconciliation    PURE
coordinator            sends what the membership says: joins, heartbeats, commits, leaves
consumer_coordinator   the same for a consumer group: heartbeats, commits
members                either, as a consumer uses it
"""
