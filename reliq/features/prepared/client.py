# Generated from reliq/features/prepared/aio.py by tools/generate_sync.py: do not edit
"""A message that is sent together with a transaction of the application's own."""

from functools import cached_property
from types import TracebackType
from typing import Self, Unpack

from reliq import forks
from reliq.contract.keywords import MessageOptions
from reliq.contract.values import Duration, check_id
from reliq.errors import ReliqError
from reliq.features.prepared.steps import CHECK_AFTER, CHECKS, PreparedQueue, not_rolled_back
from reliq.model.outgoing import Body, NewMessage
from reliq.protocol.durability import ANY, Terms
from reliq.protocol.queue import QueueSteps
from reliq.runtime.advice import renamed
from reliq.transport.store import Store


class Prepared:
    """A message that waits for its producer's decision: what `Queue.prepare` returns.

        with orders.prepare({"order": 1}) as handle:
            ...                                  # your own transaction; store handle.id in it

    Leaving the context commits; an exception in it rolls back. `commit` and `rollback` may be repeated.
    """

    def __init__(self, store: Store, steps: PreparedQueue, identity: str, terms: Terms = ANY) -> None:
        self.id = check_id(identity)
        self._store = store
        self._steps = steps
        self._terms = terms
        self._decided = False
        self._mark = forks.mark()

    def commit(self) -> str:
        """Enqueue it; return its id, or where its dedup_key is taken, the id of the first message.

        Raises PreparedClosed when it is decided otherwise, RedisUnavailable (nothing is decided) and OutcomeUnknown
        (it may be): repeat it then, or have the check-back answer.
        """
        identity = self._store.run(self._steps.commit(self.id, self._terms))
        self._decided = True
        return identity

    def rollback(self) -> None:
        """Discard it: no consumer will ever see it. Raises as `commit`."""
        self._store.run(self._steps.rollback(self.id, self._terms))
        self._decided = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._decided or self._mark != forks.mark():  # a forked child decides nothing by leaving the block
            return
        if error is None:
            self.commit()
            return
        try:
            self.rollback()
        except ReliqError as failure:
            error.add_note(not_rolled_back(self.id, failure))

    def __repr__(self) -> str:
        return f"<Prepared {self.id}>"


class PreparedCalls:
    """What a queue has of prepared messages."""

    _store: Store
    _steps: QueueSteps

    @cached_property
    def _records(self) -> PreparedQueue:
        return PreparedQueue(self._steps.homes, self._steps.pool)

    def prepare(
        self,
        body: Body | NewMessage,
        *,
        timeout: Duration = CHECK_AFTER,
        checks: int = CHECKS,
        durability: str | None = None,
        repeats: int | None = None,
        retries: int | None = None,
        **options: Unpack[MessageOptions],
    ) -> Prepared:
        """Send a message that no consumer sees until its handle commits; as a context the handle commits at its end.

        Without a decision within `timeout`, reliq asks the application's check-back (`@app.check`), again after each
        `timeout`; after `checks` calls without an answer it is a dead letter (undecided). Other options and errors are
        those of `send`; a delay and a dedup_key's window begin with the commit, a ttl now.
        """
        message, terms = self._steps.prepared(body, options), Terms.of(durability, renamed(repeats, retries))
        self._store.run(self._records.prepare(message, timeout, checks, terms))
        return Prepared(self._store, self._records, message.id, terms)

    def prepared(self, id: str) -> Prepared:
        """Return the handle of a prepared message, maybe of another process. Reads nothing; raises InvalidName."""
        return Prepared(self._store, self._records, id)
