"""The gateway: the log over gRPC, for programs that want no Kafka client.  A process of its own, `dlog
gateway`.

    caller ──gRPC──► server ── service ──► producing ──► client/producer ──┐
                                      └──► streams ──► fetching ──────────┴──Kafka's protocol──► brokers

It is a client like any other: it works against every cluster that speaks Kafka's protocol, finds leaders by
itself and follows them when they move, so that NOT_LEADER_OR_FOLLOWER never reaches a caller; and no record
of a user is encoded or decoded on a loop of a broker.  It keeps nothing: one that dies loses what was not
acknowledged, and as many as one likes may run side by side.

    protos, _generated   the contract, and the messages made from it
    failures             Kafka's errors as statuses of gRPC
    batches              single records into batches
    clients              connections to the cluster, for each client id
    producing            one Produce call
    budget, reading      fetched batches into records, within a bound that all streams share
    fetching             where a stream begins, and the next bytes of its partitions
    streams              one Fetch call
    metadata             what GetMetadata answers
    health, server       gRPC's own health service, and the port
    service              BrokerService
    process              the process: from start to stop
"""
