"""Kafka's own idempotent producer with acks=all: BOOTSTRAP TOPIC PARTITIONS NAME.

Only hands over to Java; the program is java/Producing.java.
"""

from tests.reliability.programs.java.compiled import hand_over

if __name__ == "__main__":
    hand_over("Producing")
