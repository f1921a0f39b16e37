"""Administration of a cluster over Kafka's protocol: a module for each family of requests.

admin          all of administration as one class, on an asyncio loop
blocking       the same for programs without an event loop
topics         create, delete, more partitions, delete records, elect leaders
configs        settings of topics, of brokers, of the cluster
log_dirs       log directories, sizes of partitions, producers
cluster        the quorum of controllers, features
quotas         quotas of clients
groups, group_offsets, group_lag   groups, their committed offsets, their lag
changes        which failures of a change may be followed by another try

Nothing is imported here: producers and consumers need only the committed offsets of groups, and are loaded
sooner without the rest.
"""
