"""`dlog txn list`."""

import click

from distributedlog.cli.output import TextTable, columns, output_option, print_json, warn
from distributedlog.cli.session import cluster_options
from distributedlog.cli.txn.session import on_transactions
from distributedlog.client.admin.admin import Admin
from distributedlog.client.admin.transactions import STATES, TransactionAdmin

COLUMNS = columns("transactional_id<40 state<16 producer_id>12 coordinator>11 batch>8")


@click.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
    metavar="STATE",
    help=f"Only those in this state; may be repeated: {', '.join(STATES)}.",
)
@cluster_options
@output_option
def list_transactions(states: tuple[str, ...], bootstrap: str, timeout_seconds: float, output: str) -> int:
    """List the transactional ids there are, their state, and the broker that coordinates each.

    Those of exactly-once sinks begin with dlog.sink/, and have a batch.

    \b
    dlog txn list
    dlog txn list --state Ongoing -o json
    """

    async def work(transactions: TransactionAdmin, admin: Admin) -> None:
        table = TextTable(COLUMNS)
        found = await transactions.list_transactions(states=states)
        if not found and output == "table":
            warn("there are no such transactional ids" if states else "there are no transactional ids")
        for each in found:
            sink = await transactions.describe_sink(each.transactional_id)
            if output == "json":
                print_json(
                    {
                        "type": "transaction",
                        "transactional_id": each.transactional_id,
                        "state": each.state,
                        "producer_id": each.producer_id,
                        "coordinator": each.coordinator_id,
                        "query": None if sink is None else sink.query_id,
                        "batch": None if sink is None else sink.batch_id,
                    }
                )
            else:
                batch = "" if sink is None else sink.batch_id
                table.row(each.transactional_id, each.state, each.producer_id, each.coordinator_id, batch)

    return on_transactions(bootstrap, timeout_seconds, work)
