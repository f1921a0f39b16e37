"""Transactional clients under load, one program for each role, and each role with each kind of client.

    mixing.py         writes to the input in transactions, and reads meanwhile what is committed
    transforming.py   reads one partition of the input, writes its function, commits its offset with it
    worker.py         what both do: begin, end, give up in the middle, come back as a zombie
    client.py         what is asked of a kind of client; kinds.py finds it, and there is a module for each
    topics.py         what they work on

A name is ROLE.KIND, and for a transformer ROLE.KIND.PARTITION.  Who takes the place of one that has ended has
a `+` behind the kind, and the same transactional id.

DLOG_LOAD_CARELESS=1 in the environment: they read what is not committed, too, and leave their last
transaction open.
"""
