"""Topics as tables, for SQL: a view for each topic that a query names, bounded by now.

| column                      | type   | what it is                                                |
|-----------------------------|--------|-----------------------------------------------------------|
| key, value                  | string | text where the bytes are UTF-8, else `0x…` in hexadecimal |
| key_bytes, value_bytes      | binary | the bytes themselves                                      |
| topic, partition, offset, … |        | as the source has them: also timestamp, headers           |

`SELECT * FROM orders` shows people what they sent.  Whoever needs the bytes names them; hexadecimal is never
mistaken for text that a producer wrote, because of its two columns only one is read as bytes.

**Which topics** a query names is found by looking at its words: any identifier (`orders`, `"a-b"` in
backquotes) that is a topic's name.  A word may turn out to be a column or a text; its view is then made and
not used, which costs nothing, because a view is read only if the query reads it.  Names with dots or dashes
are written in backquotes, as always in Spark: `a.b-c`.

**Under two names.**  A topic is `orders` and `topic.orders` (a global temporary view; the session names their
database).  Where a table has the plain name, that is the table's, and the topic has its second one alone.

**Bounded by now.**  Ends are asked once for all topics when the views are made, and every view ends there:
a query that names a topic twice sees the same records both times, and never waits for more.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TOPICS_DATABASE: Final = "topic"
TOPICS_DATABASE_KEY: Final = "spark.sql.globalTempDatabase"

_WORDS: Final = re.compile(
    r"""
      --[^\n]*                    # a comment
    | /\*.*?\*/
    | '(?:[^'\\]|\\.|'')*'        # a text
    | `((?:[^`]|``)*)`            # 1: a quoted name
    | ([A-Za-z_][A-Za-z0-9_]*)    # 2: a plain one
    """,
    re.VERBOSE | re.DOTALL,
)


def words_of(query: str, *, behind_dots: bool = True) -> Iterator[str]:
    """The identifiers of a query, as they are meant; texts and comments are left out.  Without those behind
    dots, what is left are names that nothing qualifies: not `orders` in `topic.orders`."""
    end = 0
    is_qualified = False
    for found in _WORDS.finditer(query):
        between = query[end : found.start()].strip()
        end = found.end()
        word = found[2] if found[1] is None else found[1].replace("``", "`")
        if word is None:  # a comment changes nothing; a text is no name that a dot could follow
            is_qualified = (is_qualified or between.endswith(".")) and not found[0].startswith("'")
            continue
        is_qualified = between.endswith(".") or (is_qualified and not between)
        if behind_dots or not is_qualified:
            yield word
        is_qualified = False


def named_topics(query: str, topics: Collection[str]) -> list[str]:
    """Returns, of the topics there are, those that the query may mean.  Spark's plain names do not know upper
    case."""
    by_name = {}
    for topic in sorted(topics, reverse=True):
        by_name[topic.lower()] = topic
    exact = set(topics)
    found: dict[str, None] = {}
    for word in words_of(query):
        meant = word if word in exact else by_name.get(word.lower())
        if meant is not None:
            found[meant] = None
    return list(found)


def ending_offsets(ends: Mapping[int, int], topic: str) -> str:
    return json.dumps({topic: {str(partition): end for partition, end in sorted(ends.items())}})


def make_view(
    spark: "SparkSession",
    bootstrap: str,
    topic: str,
    ends: Mapping[int, int],
    options: Mapping[str, str],
    *,
    is_plain_name_free: bool = True,
) -> "DataFrame":
    """The views `topic` and, if nothing else has that name, its plain one."""
    merged = {"startingOffsets": "earliest", "includeHeaders": "true", **options}
    frame = (
        spark.read.format("dlog")
        .options(**merged)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("endingOffsets", ending_offsets(ends, topic))
        .load()
    )
    shown = with_text(frame)
    quoted = f"`{topic.replace('`', '``')}`"
    shown.createOrReplaceGlobalTempView(quoted)
    if is_plain_name_free:
        shown.createOrReplaceTempView(quoted)
    else:
        spark.catalog.dropTempView(topic)
    return shown


def with_text(frame: "DataFrame") -> "DataFrame":
    """Keys and values as text where they are that, and the bytes beside them."""
    from pyspark.sql import functions

    def text(name: str) -> "Column":
        bytes_of = functions.col(name)
        readable = functions.is_valid_utf8(bytes_of.cast("string"))
        as_hexadecimal = functions.concat(functions.lit("0x"), functions.lower(functions.hex(bytes_of)))
        return functions.when(readable, bytes_of.cast("string")).otherwise(as_hexadecimal).alias(name)

    others = [name for name in frame.columns if name not in ("key", "value", "timestampType")]
    return frame.select(
        text("key"),
        text("value"),
        *others,
        functions.col("key").alias("key_bytes"),
        functions.col("value").alias("value_bytes"),
    )
