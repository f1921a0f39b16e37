"""Consumer groups: who reads which partition, and how far each group has read.  Pure.

requests   requests to a coordinator, and its replies
records    the records of `__consumer_offsets`, in Kafka's formats
committed_offsets, offset_manager   the committed offsets of groups; commits, deletion and expiry
classic/   groups whose members choose an assignor and whose leader assigns (JoinGroup, SyncGroup)
consumer/  groups that the coordinator assigns, member by member (ConsumerGroupHeartbeat)
machine    all of it as one machine of the shared runtime: one for each partition of the topic
"""
