"""Faults drawn by a seed against a cluster of real processes, under clients that nobody here wrote.

    schedule.py      which faults, when and for how long: a pure function of the seed
    nemeses/         the faults: what each does to the cluster, and how it is healed
    cluster.py       the brokers, a process each, and who leads what
    node.py          the program of such a process: a node with a disk and a clock that can be made faulty
    clients.py       who takes part
    load.py          the clients, of which those that end are noticed and replaced
    transactions.py  the transactional clients, and what is judged of them alone
    judging.py       the end: all healed, a fresh client reads everything, the checker judges
    gaps.py          for how long each client got nothing
    errors.py        what consumers met and went on after, and which of that no fault excuses
    timeline.py      the picture: faults above, throughput and errors below
    run.py           one run, from the start of the brokers to the report

The checker and the clients' programs are those of tests/reliability.  A run writes its picture, its report
and the nodes' logs below `.chaos/`; the same seed draws the same faults at the same times, while what the
operating system makes of them differs from run to run.
"""
