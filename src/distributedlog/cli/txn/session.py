"""What the commands on transactions share: an admin client, and plain errors."""

from collections.abc import Callable, Coroutine
from typing import Any

from distributedlog.cli.exit_codes import NotFoundError
from distributedlog.cli.session import run
from distributedlog.client.admin.admin import Admin
from distributedlog.client.admin.transactions import TransactionAdmin
from distributedlog.client.errors import code_of
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError

Work = Callable[[TransactionAdmin, Admin], Coroutine[Any, Any, int | None]]


def on_transactions(bootstrap: str, timeout_seconds: float, work: Work) -> int:
    """Runs a command's work; its exit code."""

    async def with_transactions(admin: Admin) -> int | None:
        try:
            return await work(TransactionAdmin(admin.cluster), admin)
        except DlogError as error:
            if code_of(error) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise NotFoundError(f"{error}; 'dlog txn list' shows those there are") from error
            raise

    return run(bootstrap, timeout_seconds, with_transactions)
