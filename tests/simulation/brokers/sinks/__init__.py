"""Exactly-once sinks on whole simulated brokers: drivers, attempts of tasks, and their invariants."""
