"""Compaction of a log: what is planned, which records stay, how segments are replaced."""
