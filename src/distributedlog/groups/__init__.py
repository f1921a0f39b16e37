"""Consumer groups: who reads which partition, and how far each group has read.  Pure.

requests   what is asked of a coordinator, and the answers
records    what stands in `__consumer_offsets`, in Kafka's formats
offsets    the positions that groups have committed
classic/   groups whose members choose an assignor and whose leader assigns (JoinGroup, SyncGroup)
consumer/  groups that the coordinator assigns, member by member (ConsumerGroupHeartbeat)
machine    all of it as one machine of the shared runtime: one for each partition of the topic
"""
