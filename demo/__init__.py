"""What `make demo` shows: the product doing its main job, checked against a ledger."""
