"""Kafka's own consumer as a member of a group: BOOTSTRAP TOPIC PARTITIONS GROUP.MEMBER.STRATEGY.

Only hands over to Java; the program is java/Grouping.java.
"""

from tests.reliability.programs.java.compiled import hand_over

if __name__ == "__main__":
    hand_over("Grouping")
