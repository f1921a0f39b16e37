"""A verifier of transactions that answers when, and what, the test says, and batches of transactions."""

from distributedlog.broker.peers.transaction_verifier import Answered, Question
from distributedlog.model.error_codes import ErrorCode
from tests.unit.storage.support import batch_of, value_of

TRANSACTIONAL_ID, PRODUCER_ID = "x", 7


class ScriptedVerifier:
    def __init__(self) -> None:
        self.asked: list[Question] = []
        self._waiting: list[tuple[Question, Answered]] = []

    def ask(self, question: Question, answered: Answered) -> None:
        self.asked.append(question)
        self._waiting.append((question, answered))

    def answer(self, *codes: ErrorCode) -> None:
        """Answers all that was asked: with a code for each partition, or with NONE."""
        waiting, self._waiting = self._waiting, []
        for question, answered in waiting:
            found = codes or (ErrorCode.NONE,) * len(question.partitions)
            answered(dict(zip(question.partitions, found, strict=True)))


def transactional(sequence: int = 0, epoch: int = 0, producer_id: int = PRODUCER_ID) -> bytearray:
    return batch_of(
        [value_of(sequence)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
