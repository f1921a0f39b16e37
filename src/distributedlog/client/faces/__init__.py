"""The client as programs use it: an asyncio face and a blocking one, on the same core.

settings            keyword arguments to options; serializers                                        PURE
records             records as consumers give them out; those that have come already               PURE
delivery            what became of a record that was sent, to await or to wait for
aio_producer        Producer of `distributedlog.aio`
bulk                rows of Arrow to batches, and fetched rows to tables
aio_admin           Admin of `distributedlog.aio`
aio_consumer        Consumer of `distributedlog.aio`
loop_thread         a loop in a thread of its own, for programs without one; what a fork leaves of it
blocking_consumer   Consumer of `distributedlog`
blocking_producer   Producer of `distributedlog`
blocking_admin      Admin of `distributedlog`

Each imports only from above it.
"""
