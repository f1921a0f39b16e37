"""Simulated disk, clock, executor and network: whole runs in virtual time from one seed."""
