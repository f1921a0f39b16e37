"""Consumer groups (KIP-848): the coordinator assigns, and each member is led to its part on its own.

topics           what a coordinator sees of the cluster's topics, and a partition by its topic's id
member           one member: what it subscribes to, its epoch, what it holds and what it has to give up
records          what the log says of such a group, in Kafka's formats
group            a group as those records make it; a draft of one, on which a turn tries what it is to write
patterns         subscriptions by regular expression
assignors        range and uniform: from subscriptions to a target
reconciliation   a member's next step from what it holds to its target
planning         subscriptions looked up again, the group's epoch, the target
heartbeat        ConsumerGroupHeartbeat: join, stay, change, leave
leaving          members that go, by themselves or because they are silent or too slow
classic_members  JoinGroup, SyncGroup, Heartbeat, LeaveGroup of clients that speak only the classic protocol
moving           a group between the two protocols: empty, or with its members
describing       ConsumerGroupDescribe
offset_checks    who may commit and fetch offsets
settings         what a group has set for itself
groups           all consumer groups of a coordinator
"""
