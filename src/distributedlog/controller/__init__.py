"""The controller: one truth about the cluster, kept as records of a replicated log.

    records         what the log holds: schemas, ids, versions
    features        levels: which versions may be written, which can be read
    bundles         one entry of the log: records in bytes
    persistent_map  maps that share what did not change
    image           the truth itself, immutable, and how a record changes it
    quotas          of clients: whose, and which changes are allowed
    deltas          what differs between two images
    snapshots       an image in bytes
    placement       which brokers get a new partition
    elections       who leads a partition, and who may
    configs         settings of topics, brokers and the cluster
    sessions/       what is heard from brokers and not written down: leases, unclean elections
    brokers         registration, heartbeats, fencing, shutdown
    topics          create, delete, grow
    partitions      changes of the in-sync replicas, elections by hand
    reassignments   moves of partitions to other brokers
    moves/          moves that the controller begins by itself: internal topics grow
    producer_ids    blocks of producer ids
    quorum/         where controllers are reached, and what they vote with
    requests        requests and replies
    machine         all of it as one `Machine`

Each imports only from above it.  Brokers use the first eight: they replay what is committed and act on the
delta.  Only the active controller runs the machine.
"""
