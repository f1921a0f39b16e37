"""Unmodified Kafka clients, each in a process of its own, against a running broker.

programs/       one small program per client; it is told what to do by a JSON line and answers by one
kafkajs/        the same for KafkaJS, with its locked dependencies
install.py      brings the clients that do not come with the virtual environment
features.py     what is asked of every client, and what a client does not offer, and why
matrix.py       client x feature, as it is printed after the tests; a hole in it is a failure
"""
