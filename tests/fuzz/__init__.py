"""Fuzzing of what reads bytes from outside: `python -m tests.fuzz --executions 1000000`."""
