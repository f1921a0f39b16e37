"""Kafka's own consumer with a fixed assignment, from the start: BOOTSTRAP TOPIC PARTITIONS NAME.

Only hands over to Java; the program is java/Consuming.java.
"""

from tests.reliability.programs.java.compiled import hand_over

if __name__ == "__main__":
    hand_over("Consuming")
