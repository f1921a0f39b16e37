"""What clients saw, and whether it can be: a history of operations, and checks that name what is wrong in it.

history.py    operations of clients, as they began and as they ended
journal.py    how a client's process tells them, and how they are gathered
checks/       one module per subject, one pure function per finding
checker.py    all of them, by name
programs/     clients under load, each a process that tells its journal on stdout
"""
