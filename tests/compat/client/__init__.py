"""This project's own client, by its public faces alone, against one broker, three, and Apache Kafka.

    make test                            one broker
    make compat BROKERS=3                three, and topics of three replicas
    python -m tests.compat.client        Apache Kafka, by its jars: part of `make compat-jvm`

The tests are the same and expect the same.  What differs on Kafka is a bug of the client, or of our broker.
"""
