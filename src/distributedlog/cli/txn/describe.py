"""`dlog txn describe`."""

import click

from distributedlog.cli.output import output_option, print_json, print_line
from distributedlog.cli.session import cluster_options
from distributedlog.cli.txn.session import on_transactions
from distributedlog.client.admin.admin import Admin
from distributedlog.client.admin.transactions import TransactionAdmin, TransactionView
from distributedlog.client.sinks import SinkView


@click.command()
@click.argument("transactional_ids", nargs=-1, required=True, metavar="ID…")
@cluster_options
@output_option
def describe(transactional_ids: tuple[str, ...], bootstrap: str, timeout_seconds: float, output: str) -> int:
    """The state of transactional ids, their producer, and the partitions of an open transaction.

    Of an exactly-once sink also its query, its batch, and the attempts that write in it.

    \b
    dlog txn describe transfers
    dlog txn describe transfers audit -o json
    """

    async def work(transactions: TransactionAdmin, admin: Admin) -> None:
        for each in dict.fromkeys(transactional_ids):
            facts = _as_json(await transactions.describe_transaction(each))
            sink = await transactions.describe_sink(each)
            if sink is not None:
                facts |= _sink_as_json(sink)
            if output == "json":
                print_json(facts)
            else:
                for name, value in facts.items():
                    if name != "type":
                        shown = ", ".join(value) if isinstance(value, list) else value
                        print_line(f"{name:<18}{'' if shown is None else shown}".rstrip())

    return on_transactions(bootstrap, timeout_seconds, work)


def _as_json(found: TransactionView) -> dict[str, object]:
    return {
        "type": "transaction",
        "transactional_id": found.transactional_id,
        "state": found.state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.timeout_ms,
        "start_ms": None if found.start_ms < 0 else found.start_ms,
        "partitions": [str(each) for each in found.partitions],
    }


def _sink_as_json(found: SinkView) -> dict[str, object]:
    return {
        "query": found.query_id,
        "batch": found.batch_id,
        "committed_batch": None if found.committed_batch_id < 0 else found.committed_batch_id,
        "token": found.token,
        "attempts": [f"{each.attempt_id}:{each.producer_id}:{each.epoch}" for each in found.attempts],
        "pooled_ids": found.pooled_count,
    }
