"""The differences that nobody meant: users may know of them until they are gone.

They stand apart so that the list of what is meant stays a list of reasons.  An entry that is no longer met
fails the run, as in `intended`: whoever mends one deletes it here.
"""

from typing import Final

from tests.compat.differential.compare import ANY, Intended, Match

HEADING: Final = "Not yet as in Kafka"

NOT_YET: Final = (
    Intended(
        HEADING,
        "What a producer says in a batch's header of its largest timestamp is stored as it came: the walk "
        "over its records, which every batch pays for, does not add up times yet. Kafka works it out "
        "from them.",
        (
            Match("Produce/bad batches/read", "**/records/3/crc"),
            Match("Produce/bad batches/read", "**/records/3/max_timestamp", ANY, 7),
        ),
    ),
)  # fmt: skip
