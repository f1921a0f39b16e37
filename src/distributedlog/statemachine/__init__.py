"""State machines that live in a replicated log: one contract and one runtime for all of them.

`Machine` says what a machine is: requests become records, and only `replay` changes it.  `Runtime` keeps its
promises: what a response was made from is committed before the response leaves, and so is what an effect
was caused by.  Nothing here waits, reads a clock or touches a log by itself.
"""

from distributedlog.statemachine.contract import Context, Machine, Result
from distributedlog.statemachine.pending import PendingTransactions, Producer, TransactionEnd
from distributedlog.statemachine.runtime import (
    AppendLog,
    Outbox,
    Phase,
    Runtime,
    RuntimeLimits,
    TicketReply,
    TransactionalLog,
)

__all__ = [
    "AppendLog",
    "Context",
    "Machine",
    "Outbox",
    "PendingTransactions",
    "Phase",
    "Producer",
    "Result",
    "Runtime",
    "RuntimeLimits",
    "TicketReply",
    "TransactionEnd",
    "TransactionalLog",
]
