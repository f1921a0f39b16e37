"""Programs on Apache Kafka's own Java clients, where its jars can be had (`tests/bench/broker_kafka.py`).

Producing, Consuming, Grouping   what programs/producing_java.py and its like hand over to
Transacting                      what programs/transactions/java_client.py asks, line by line
Journal, Values, Stopping        journal.py, values.py and stopping.py once more
Settings                         what all clients are told
compiled.py                      compiles them, once for all that run, and says how to run one
"""
