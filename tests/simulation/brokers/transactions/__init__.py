"""Transactions on whole simulated brokers: clients, faults and named invariants of their own."""
