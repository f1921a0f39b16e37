"""The data directory of a node: whose it is, and the log of the metadata quorum in it.

    identity        cluster, node and directory id; the lock; the secret of a new cluster
    raft_storage    term and vote in a small file, Raft's log in the log engine

A running broker opens it, and so does `adoption`, which makes one out of a Kafka broker's.
"""
