"""Named invariants of transactions on whole simulated brokers."""
