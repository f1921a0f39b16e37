"""The checks: each a pure function of a history that yields what it found, in words."""
