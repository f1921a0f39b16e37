"""The client's side of Kafka's protocol: to brokers of this project, and to any other that speaks it.

    errors       which answers are worth another try, and which exception stands for a response     PURE
    options      what every client can be told: timeouts, limits, pauses                           PURE
    addresses    bootstrap lists                                                                   PURE
    view         what a client knows of a cluster: brokers, topics, leaders                        PURE
    places       an end, a time, "the last ten"                                                    PURE
    connection   one connection to one broker: handshake, pipelined requests, timeouts
    metadata     a cluster: its connections, its view and when to renew it, retries
    offsets      which offset a place means now
    changes      when a change that failed may be tried again
    *_admin      topics, settings, logs, the cluster, quotas: a module for each family
    admin        all of administration as one class
    partitioner  which partition a key belongs to                                                  PURE
    accumulator  records into batches, batches into requests; sequences and retries                PURE
    producer     sends what the accumulator says
    positions    leader epochs of what was read; whether a new leader has it all
    fetcher      positions, fetch requests, and records out of the answers                         PURE
    group_offsets, group_admin, group_lag   groups: where they stand, who is in them, what is left
    consumer     sends what the fetcher says
    faces        what programs use: on a loop, and blocking with a loop in a thread of its own

Each imports only from above it.  Everything that is not pure runs on one asyncio loop; only
`faces.loop_thread` starts a thread.
"""
