"""Making logs durable: rounds of syncs while they serve, and the syncs of their opening."""
