"""What a pipeline's flows read, from their plans as Spark resolved them.

| a leaf of a plan                                    | is                                                   |
|-----------------------------------------------------|------------------------------------------------------|
| a stream of the format `dlog`, not of segment files | a topic, with these options                          |
| a stream in memory                                  | a table of the pipeline: plans are resolved with     |
|                                                     | empty ones in the tables' places                     |
| rows that are in the plan itself                    | the same, not read as a stream; or constants         |
| any other, or one of a kind that is not known       | something else                                       |

Plans of subqueries are looked at as well.  A flow that does not add what is new, but computes everything
anew, is repeatable if Spark says that its plan is deterministic, it takes no sample, it has no expression for
the time or the user that it is run by, and no function that is not Spark's own.
"""

from collections.abc import Iterator
from typing import Any, Final

from distributedlog.model.errors import ConfigError, PipelineError
from distributedlog.pipelines.definitions import FORMAT
from distributedlog.pipelines.graph_reader import FlowPlan, GraphReader, each_of
from distributedlog.pipelines.loop.news import FlowReads
from distributedlog.spark.source.options import ReadOptions, parse_stream_options

STREAMING_KIND: Final = "StreamingFlow"
KINDS: Final = frozenset((STREAMING_KIND, "CompleteFlow", "AppendOnceFlow"))
STREAM_LEAF: Final = "StreamingRelationV2"
MEMORY_TABLE: Final = "MemoryStreamTable"
CONSTANT_LEAVES: Final = frozenset(("LocalRelation", "OneRowRelation", "Range", "CTERelationRef"))
SEGMENTS_OPTION: Final = "segments"
UNREPEATABLE: Final = ("CURRENT_LIKE", "PYTHON_UDF", "SCALA_UDF")
SAMPLE: Final = "Sample"


def reads_of(reader: GraphReader) -> tuple[FlowReads, ...]:
    """Resolves the graph for it; `PipelineError` if that fails."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    try:
        patterns = [reader.pattern(each) for each in UNREPEATABLE]
        return tuple(_reads(each, patterns) for each in reader.plans())
    except Py4JError as error:
        raise PipelineError(f"this Spark does not tell what the flows read: {error}") from error


def _reads(flow: FlowPlan, patterns: list[Any]) -> FlowReads:
    topics: list[ReadOptions] = []
    others = [] if flow.kind in KINDS else [f"what a {flow.kind} reads"]
    for leaf in _leaves(flow.plan):
        found = _topic(leaf)
        if found is not None:
            topics.append(found)
        elif not _is_of_the_pipeline(leaf):
            others.append(str(leaf.simpleString(10)))
    is_repeatable = (
        flow.plan.deterministic()
        and not any(map(flow.plan.containsPattern, patterns))
        and not any(_class_of(each) == SAMPLE for each in _nodes(flow.plan))
    )
    is_streaming = flow.kind == STREAMING_KIND
    return FlowReads(flow.name, tuple(topics), tuple(others), is_streaming, is_repeatable)


def _leaves(plan: Any) -> Iterator[Any]:
    return (node for node in _nodes(plan) if node.children().isEmpty())


def _nodes(plan: Any) -> Iterator[Any]:
    """All parts of a plan, those of its subqueries too."""
    waiting = [plan, *each_of(plan.subqueriesAll())]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += each_of(node.children())


def _topic(leaf: Any) -> ReadOptions | None:
    if _class_of(leaf) != STREAM_LEAF or leaf.sourceName() != FORMAT:
        return None
    options = dict(leaf.extraOptions().asCaseSensitiveMap())
    if SEGMENTS_OPTION in {name.lower() for name in options}:
        return None
    try:
        return parse_stream_options(options)
    except ConfigError:  # for Spark to tell
        return None


def _is_of_the_pipeline(leaf: Any) -> bool:
    kind = _class_of(leaf)
    return kind in CONSTANT_LEAVES or (kind == STREAM_LEAF and _class_of(leaf.table()) == MEMORY_TABLE)


def _class_of(java: Any) -> str:
    return str(java.getClass().getSimpleName())
