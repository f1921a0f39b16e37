"""A consumer's side of a classic group.

subscription   what members tell their leader, as bytes                                       PURE
assignors      range, round-robin; the table of all of them                                   PURE
sticky         sticky and cooperative-sticky                                                  PURE
membership     where a member stands: joining, syncing, stable; what each answer means        PURE
coordinator    sends what the membership says: joins, heartbeats, commits, leaves
"""
