"""Whole brokers in one thread and in virtual time: storage, handlers, streams, replication, controllers."""
