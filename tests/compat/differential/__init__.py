"""The same questions to Apache Kafka and to our broker, and their answers compared field by field.

    probes/     the questions, by area: each a function that is run once for every version of its API
    asking      a conversation with one broker: makes what a probe needs, asks, notes each answer
    trees       an answer as nested dicts, in which what must differ (ids, ports, clocks) has a symbol
    compare     two trees to a list of differences; which of them are intended; which intentions are unused
    intended    the kept list of differences that are meant, each with its reason
    running     both brokers, all probes, and what is missing
    page        docs/differences.md, made from the list

`python -m tests.compat.differential` runs all of it, and so does `make compat-jvm`.  It fails on a difference
that is not on the list, on an entry of the list that no probe met, and on an API or version that both offer
and nobody asked for.
"""
