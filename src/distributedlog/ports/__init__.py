"""What a driver may touch of the outside: clock, randomness, disk, transport and executor.

Each port is a Protocol with its real adapter beside it.  Simulated adapters live with the tests, so that
a whole cluster can run in virtual time from one seed.
"""
