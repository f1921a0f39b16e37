"""Classic groups: members meet at a barrier, and the one that leads assigns partitions to all.

group       what a group is: its states, its members, what it is called in the log
rebalance   the barrier: from one generation to the next, and everything that starts it
joining     JoinGroup
syncing     SyncGroup and Heartbeat
leaving     LeaveGroup, and members that are gone
"""
