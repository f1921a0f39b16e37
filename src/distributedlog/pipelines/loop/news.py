"""May a run find anything that the last one did not?  Nothing here has effects.

A run in which nothing is new changes nothing: every flow goes on from its checkpoint, finds its topics where
it left them, and ends without a micro-batch, also one with a watermark (what that lets go of went with the
run that read the data).  Spark takes seconds for it all the same.  So where **all** of this holds, none is
made:

| what                                  | must be so                                                       |
|---------------------------------------|------------------------------------------------------------------|
| the last run                          | was made by this process, of the whole pipeline, and completed   |
| the project's files                   | are those that were there before that run                        |
| the definitions                       | depend on nothing else (`texts`)                                 |
| whatever a flow reads                 | is a topic, read as a stream, or made by the pipeline itself     |
| flows that compute their tables anew  | read no clock, no chance, and call no function of the user's     |
| the ends of the topics, as they read  | are those of before that run: it read at least to there, since a |
| them (the last stable offset)         | flow looks for its end only when it begins                       |
| which topics, their ids, partitions   | are the same: so also what a pattern finds                       |
| the last run itself                   | is not longer ago than `REVIEW_SECONDS`                          |

What is not known counts as news.  The last row has group offsets committed again before brokers forget them,
merged files of tables removed, and bounds what all the others may have overlooked.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from distributedlog.client.offset_specs import Isolation
from distributedlog.model.ids import TopicPartition, Uuid
from distributedlog.spark.source.options import ReadOptions
from distributedlog.spark.source.subscription import Subscription

REVIEW_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class FlowReads:
    """What one flow reads, as its resolved plan has it."""

    flow: str
    topics: tuple[ReadOptions, ...] = ()
    """Those that it reads as a stream."""
    others: tuple[str, ...] = ()
    """What is neither a topic nor of the pipeline, in words."""
    is_streaming: bool = True
    """Whether it adds what is new; else it computes everything anew."""
    is_repeatable: bool = True
    """Whether the same rows give the same result at another time."""


@dataclass(frozen=True, slots=True)
class TopicRead:
    """What one source looks at."""

    bootstrap: str
    subscription: Subscription
    isolation: Isolation


@dataclass(frozen=True, slots=True)
class TopicEnds:
    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, Uuid]


Stamp = tuple[int, ...]
"""What changes when a file does."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What is there for a run to find."""

    files: Mapping[str, Stamp]
    ends: Mapping[TopicRead, TopicEnds]


def topics_of(reads: tuple[FlowReads, ...]) -> frozenset[TopicRead]:
    """What has to be looked at for these flows."""
    return frozenset(
        TopicRead(each.kafka.bootstrap, each.subscription, each.kafka.isolation)
        for flow in reads
        for each in flow.topics
    )


def unknowable(reads: tuple[FlowReads, ...]) -> str | None:
    """Returns why it cannot be known whether these flows have anything to do; None if it can."""
    for flow in reads:
        if flow.others:
            return f"flow {flow.flow} reads {flow.others[0]}"
        if not flow.is_streaming and not flow.is_repeatable:
            return f"flow {flow.flow} may come to another result at another time"
    return None


def difference(before: Sight, now: Sight) -> str | None:
    """Returns what is new, in words; None if nothing is."""
    changed = sorted(
        path
        for path in before.files.keys() | now.files.keys()
        if before.files.get(path) != now.files.get(path)
    )
    if changed:
        return f"{changed[0]} has changed"
    if before.ends.keys() != now.ends.keys():
        return "other topics are read"
    for read, ends in now.ends.items():
        if ends != before.ends[read]:
            return f"{read.subscription.label} has news"
    return None
