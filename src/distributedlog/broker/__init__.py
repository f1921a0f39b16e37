"""The broker: the composition root, its servers, and the drivers that perform what the pure cores decide."""
