"""Real processes, real files, real signals."""
