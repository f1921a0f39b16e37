"""`dlog txn find-hanging`."""

import time

import click

from distributedlog.cli.output import TextTable, columns, output_option, print_json, warn
from distributedlog.cli.session import cluster_options
from distributedlog.cli.txn.session import on_transactions
from distributedlog.client.admin.admin import Admin
from distributedlog.client.admin.transactions import OpenTransaction, TransactionAdmin
from distributedlog.model.ids import TopicPartition

COLUMNS = columns("partition<40 producer_id>12 epoch>6 start_offset>14")


@click.command("find-hanging")
@click.option(
    "--topic", "topics", multiple=True, required=True, metavar="TOPIC", help="Look here; may be repeated."
)
@click.option(
    "--min-seconds",
    type=click.FloatRange(0),
    metavar="SECONDS",
    default=900.0,
    show_default=True,
    help="Only those whose last record is so old: the longest timeout that a transaction may have.",
)
@cluster_options
@output_option
def find_hanging(
    topics: tuple[str, ...], min_seconds: float, bootstrap: str, timeout_seconds: float, output: str
) -> int:
    """Find transactions that are open in a partition and that no coordinator knows of.

    Readers of committed records stop at one.  `dlog txn abort` ends it.

    \b
    dlog txn find-hanging --topic orders
    """

    async def work(transactions: TransactionAdmin, admin: Admin) -> None:
        views = await admin.describe_topics(topics)
        places = [TopicPartition(view.name, each.index) for view in views for each in view.partitions]
        found = await transactions.find_hanging(
            places, open_ms_min=int(min_seconds * 1000), now_ms=int(time.time() * 1000)
        )
        if not found and output == "table":
            warn("no transaction hangs")
        table = TextTable(COLUMNS)
        for each in found:
            show(each, output, table)

    return on_transactions(bootstrap, timeout_seconds, work)


def show(found: OpenTransaction, output: str, table: TextTable) -> None:
    producer = found.producer
    if output == "json":
        print_json(
            {
                "type": "hanging_transaction",
                "topic": found.partition.topic,
                "partition": found.partition.partition,
                "producer_id": producer.producer_id,
                "producer_epoch": producer.producer_epoch,
                "start_offset": producer.transaction_start_offset,
            }
        )
    else:
        table.row(
            str(found.partition),
            producer.producer_id,
            producer.producer_epoch,
            producer.transaction_start_offset,
        )
