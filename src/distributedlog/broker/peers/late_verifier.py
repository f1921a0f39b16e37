"""The verifier of transactions, imported and made when a transaction first needs it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributedlog.broker.peers.transaction_verifier import Answered, Question, TransactionVerifier


class LateVerifier:
    """Makes the verifier when it is first asked.  Belongs to the data loop."""

    def __init__(self, make: "Callable[[], TransactionVerifier]") -> None:
        self._make = make
        self._made: TransactionVerifier | None = None

    def ask(self, question: "Question", answered: "Answered") -> None:
        if self._made is None:
            self._made = self._make()
        self._made.ask(question, answered)

    def completed(self, transactional_id: str) -> None:
        if self._made is not None:
            self._made.completed(transactional_id)

    def brokers_changed(self) -> None:
        if self._made is not None:
            self._made.brokers_changed()

    def close(self) -> None:
        if self._made is not None:
            self._made.close()
