"""`dlog topic analyze`: what a topic holds: how much, how fast, how even, how compressible, how compactable.

A sample is taken in windows of consecutive records, spread evenly over each partition, so that rates and the
order of time can be judged within a window.  With --full everything is read.  What compaction would save is
exact only of everything: in a sample the older records of a key are mostly not seen, and it is left out.
"""

from collections.abc import Mapping
from contextlib import aclosing
from typing import Final

import click

from distributedlog.cli.output import (
    TextTable,
    columns,
    json_bytes,
    output_option,
    print_json,
    print_line,
    show_bytes,
    show_size,
    show_time,
)
from distributedlog.cli.progress import count_bar
from distributedlog.cli.records.figures import Figures
from distributedlog.cli.records.ranges import (
    ISOLATIONS,
    OffsetSpan,
    TopicRange,
    range_options,
    read_range,
    resolve_range,
)
from distributedlog.cli.session import cluster_options, run
from distributedlog.client.admin.admin import Admin
from distributedlog.client.offset_specs import OffsetSpec
from distributedlog.model.ids import TopicPartition, check_topic_name

SAMPLE_DEFAULT: Final = 100_000
WINDOWS: Final = 8
TOP_KEYS: Final = 5
COLUMNS = columns("partition>9 records>10 share>6 size>10 oldest<24 newest<24 late>6")


@click.command()
@click.argument("topic")
@click.option("--full", "is_full", is_flag=True, help="Read everything; else a sample.")
@click.option(
    "--sample",
    type=click.IntRange(1),
    default=SAMPLE_DEFAULT,
    show_default=True,
    metavar="N",
    help="Read about so many records, spread over all partitions.",
)
@range_options
@cluster_options
@output_option
def analyze(
    topic: str,
    is_full: bool,
    sample: int,
    start: OffsetSpec,
    end: OffsetSpec,
    partitions: tuple[int, ...],
    isolation: str,
    bootstrap: str,
    timeout_seconds: float,
    output: str,
) -> int:
    """Say what a topic holds: sizes, rates, keys and their skew, order of time, the largest records, and what
    compression saves and compaction would.

    \b
    dlog topic analyze orders
    dlog topic analyze orders --full --from -1d
    """
    check_topic_name(topic)

    async def work(admin: Admin) -> None:
        wanted = await resolve_range(admin, topic, start, end, partitions, ISOLATIONS[isolation])
        windows = [wanted] if is_full else sampled(wanted, sample)
        figures = Figures()
        total = sum(each.offset_count for each in windows)
        with count_bar("reading", total) as on_progress:
            for window in windows:
                async with aclosing(read_range(admin, window)) as portions:
                    async for portion in portions:
                        for record in portion.records:
                            figures.add(portion.partition, record)
                        on_progress(portion.offsets_passed)
        sizes = await admin.log_sizes(await admin.describe_topics([topic]))
        report = Report(wanted, figures, total, sizes)
        report.print_json() if output == "json" else report.print_table()

    return run(bootstrap, timeout_seconds, work)


def sampled(wanted: TopicRange, count: int) -> list[TopicRange]:
    """Windows with about `count` offsets in all, each partition's share as large as its part of the whole."""
    total = wanted.offset_count
    if total <= count:
        return [wanted]
    rounds: list[dict[TopicPartition, OffsetSpan]] = [{} for _ in range(WINDOWS)]
    for partition, span in wanted.spans.items():
        share = max(1, count * span.offsets // total)
        length = max(1, share // WINDOWS)
        for number, spans in enumerate(rounds):
            begin = span.start + number * span.offsets // WINDOWS
            limit = span.start + (number + 1) * span.offsets // WINDOWS
            if begin < limit:
                spans[partition] = OffsetSpan(begin, min(begin + length, limit))
    return [TopicRange(wanted.topic, spans, wanted.isolation) for spans in rounds if spans]


class Report:
    def __init__(
        self,
        wanted: TopicRange,
        figures: Figures,
        offsets_read: int,
        sizes: Mapping[TopicPartition, int] | None,
    ) -> None:
        self._wanted = wanted
        self._figures = figures
        self._share = offsets_read / wanted.offset_count if wanted.offset_count else 1.0
        self._disk_bytes = None if sizes is None else sum(sizes.get(each, 0) for each in wanted.spans)

    @property
    def _is_full(self) -> bool:
        return self._share >= 1

    @property
    def _compression(self) -> float | None:
        """Bytes of records for one on the disk; of a sample, what all of them would have."""
        whole = self._figures.size_bytes / self._share if self._share else 0
        return None if not self._disk_bytes or not whole else whole / self._disk_bytes

    @property
    def _rate(self) -> float | None:
        """The rate, or None: of a sample nothing can be said about it."""
        figures = self._figures
        return round(figures.records / figures.seconds, 3) if self._is_full and figures.seconds else None

    def print_json(self) -> None:
        figures, busiest = self._figures, self._figures.timeline.busiest
        for partition, each in sorted(figures.partitions.items()):
            print_json(
                {
                    "type": "partition",
                    "topic": self._wanted.topic,
                    "partition": partition,
                    "records": each.records,
                    "size_bytes": each.size_bytes,
                    "oldest_timestamp_ms": each.oldest_ms,
                    "newest_timestamp_ms": each.newest_ms,
                    "late_records": each.late_records,
                    "lateness_ms_max": each.lateness_ms_max,
                }
            )
        print_json(
            {
                "type": "analysis",
                "topic": self._wanted.topic,
                "is_full": self._is_full,
                "share_read": round(self._share, 6),
                "records": figures.records,
                "key_bytes": figures.key_bytes,
                "value_bytes": figures.value_bytes,
                "header_bytes": figures.header_bytes,
                "disk_bytes": self._disk_bytes,
                "compression_ratio": self._compression and round(self._compression, 3),
                "size_p50_bytes": figures.sizes.at(0.5),
                "size_p95_bytes": figures.sizes.at(0.95),
                "size_p99_bytes": figures.sizes.at(0.99),
                "largest": [each._asdict() for each in figures.largest],
                "find_keyless_records": figures.keyless,
                "tombstones": figures.tombstones,
                "records_with_headers": figures.with_headers,
                "keys": figures.keys.distinct,
                "keys_exact": figures.keys.is_exact,
                "top_keys": [
                    {**json_bytes("key", each.key), "records": each.records}
                    for each in figures.heavy.top(TOP_KEYS)
                ],
                "skew": round(figures.skew(len(self._wanted.spans)), 3),
                "records_per_second": self._rate,
                "busiest": None if busiest is None else busiest._asdict(),
                "superseded_records": figures.keys.superseded_records if self._is_full else None,
                "superseded_bytes": figures.keys.superseded_bytes if self._is_full else None,
            }
        )

    # --- for people ----------------------------------------------------------------------------

    def print_table(self) -> None:
        figures = self._figures
        table = TextTable(COLUMNS)
        for partition, each in sorted(figures.partitions.items()):
            table.row(
                partition,
                each.records,
                f"{100 * each.records / figures.records:.1f}%",
                show_size(each.size_bytes),
                show_time(each.oldest_ms),
                show_time(each.newest_ms),
                each.late_records,
            )
        for name, text in self._lines():
            print_line(f"{name:<12}{text}")

    def _lines(self) -> list[tuple[str, str]]:
        figures = self._figures
        read = (
            "all"
            if self._is_full
            else f"a sample: {100 * self._share:.2g} % of {self._wanted.offset_count} offsets"
        )
        lines = [("records", f"{figures.records} ({read})")]
        if not figures.records:
            return lines
        lines += [
            ("bytes", self._spell_bytes()),
            ("sizes", self._spell_sizes()),
            (
                "largest",
                ", ".join(f"{show_size(size)} at {where}/{at}" for size, where, at in figures.largest),
            ),
            ("time", self._spell_time()),
            ("keys", self._spell_keys()),
            ("partitions", f"the fullest has {figures.skew(len(self._wanted.spans)):.2f} times the average"),
        ]
        if self._is_full and figures.keys.distinct:
            lines.append(("compaction", self._spell_compaction()))
        return lines

    def _spell_sizes(self) -> str:
        half, most, nearly_all = (show_size(self._figures.sizes.at(share)) for share in (0.5, 0.95, 0.99))
        return f"half of them up to {half}, 95 % to {most}, 99 % to {nearly_all}"

    def _spell_compaction(self) -> str:
        keys, whole = self._figures.keys, self._figures.size_bytes
        share = 100 * keys.superseded_bytes / whole if whole else 0
        saved = f"{show_size(keys.superseded_bytes)} ({share:.0f} %)"
        return f"would drop {keys.superseded_records} records that have a newer one, {saved}"

    def _spell_bytes(self) -> str:
        figures = self._figures
        text = (
            f"{show_size(figures.size_bytes)}: values {show_size(figures.value_bytes)}, keys "
            f"{show_size(figures.key_bytes)}, headers {show_size(figures.header_bytes)}"
        )
        if self._disk_bytes is not None and self._compression is not None:
            about = "" if self._is_full else "about "
            text += f"; on disk {show_size(self._disk_bytes)} in all, {about}1 : {self._compression:.2f}"
        return text

    def _spell_time(self) -> str:
        figures = self._figures
        late = sum(each.late_records for each in figures.partitions.values())
        text = f"{show_time(figures.oldest_ms)} to {show_time(figures.newest_ms)}"
        if self._is_full and figures.seconds:
            text += (
                f", {figures.records / figures.seconds:.3g} records/s, "
                f"{show_size(round(figures.size_bytes / figures.seconds))}/s"
            )
        busiest = figures.timeline.busiest
        if busiest is not None:
            when = f"{busiest.width_ms // 1000} s, at {show_time(busiest.start_ms)}"
            text += f"; at most {busiest.records} in {when}"
        latest = max((each.lateness_ms_max for each in figures.partitions.values()), default=0)
        return text + (f"; {late} late, by up to {latest} ms" if late else "; in order")

    def _spell_keys(self) -> str:
        figures = self._figures
        about = "" if figures.keys.is_exact else "about "
        text = f"{about}{figures.keys.distinct} different; {figures.keyless} records have none"
        if figures.tombstones:
            text += f"; {figures.tombstones} records without a value"
        top = ", ".join(f"{show_bytes(each.key)} ({each.records})" for each in figures.heavy.top(TOP_KEYS))
        return text + (f"; most frequent {top}" if top else "")
