"""`dlog txn abort`."""

import click

from distributedlog.cli.confirmation import confirm, require_terminal
from distributedlog.cli.exit_codes import NotFoundError
from distributedlog.cli.output import output_option, print_json, print_line
from distributedlog.cli.session import cluster_options
from distributedlog.cli.txn.session import on_transactions
from distributedlog.client.admin.admin import Admin
from distributedlog.client.admin.transactions import OpenTransaction, TransactionAdmin
from distributedlog.model.ids import TopicPartition


@click.command()
@click.option("--topic", required=True, metavar="TOPIC", help="The topic it hangs in.")
@click.option("--partition", type=click.IntRange(0), required=True, metavar="P", help="And the partition.")
@click.option(
    "--start-offset",
    type=click.IntRange(0),
    required=True,
    metavar="OFFSET",
    help="Where it begins, as `find-hanging` says.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask whether it is meant.")
@cluster_options
@output_option
def abort(
    topic: str,
    partition: int,
    start_offset: int,
    yes: bool,
    bootstrap: str,
    timeout_seconds: float,
    output: str,
) -> int:
    """End a transaction that hangs: an ABORT marker is written into the partition, and nowhere else.

    For one that `find-hanging` has found.  What its coordinator knows of, that ends by itself.

    \b
    dlog txn abort --topic orders --partition 0 --start-offset 4711
    """
    place = TopicPartition(topic, partition)
    if not yes:
        require_terminal("what the transaction has written there is taken back")
        confirm(f"Abort the transaction that begins at offset {start_offset} of {place}?")

    async def work(transactions: TransactionAdmin, admin: Admin) -> None:
        for producer in await admin.describe_producers(place):
            if producer.transaction_start_offset == start_offset:
                await transactions.abort(OpenTransaction(place, producer))
                break
        else:
            raise NotFoundError(f"no open transaction begins at offset {start_offset} of {place}")
        if output == "json":
            print_json({"type": "aborted", "topic": topic, "partition": partition, "offset": start_offset})
        else:
            print_line(f"{place}: the transaction from offset {start_offset} on is aborted")

    return on_transactions(bootstrap, timeout_seconds, work)
