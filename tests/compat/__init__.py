"""Our bytes and those of unmodified clients, read by each other."""
