"""What applications of both kinds share: settings, handlers, and the steps of their queues."""

import os
from collections.abc import Callable
from typing import Any, TypeVar

from reliq.model import settings
from reliq.model.backoff import Backoff
from reliq.model.handlers import DeadHook, Handlers
from reliq.model.keys import check_name
from reliq.model.policy import Errors
from reliq.model.routing import check_pattern
from reliq.model.settings import Duration, whole
from reliq.protocol.producer import ProducerPool
from reliq.protocol.queue import QueueSteps
from reliq.protocol.topics import TopicSteps
from reliq.runtime.url import dereferenced

F = TypeVar("F", bound=Callable[..., Any])


def url_from_environment(url: str | None) -> str:
    """The URL, else that of RELIQ_URL; either may be a reference, `env:NAME` or `file:/path`."""
    return dereferenced(url or os.environ.get("RELIQ_URL") or settings.DEFAULT_URL)


def eviction_allowed(allow: bool | None) -> bool:
    return os.environ.get("RELIQ_ALLOW_EVICTION", "") == "1" if allow is None else allow


class Application:
    """What sync and asyncio applications have in common: the handlers."""

    def __init__(self, url: str | None, allow_eviction: bool | None, max_body: int) -> None:
        self.url = url_from_environment(url)
        self.allow_eviction = eviction_allowed(allow_eviction)
        self.max_body = whole(max_body, "max_body", 1, 512 * 1024 * 1024)
        self.handlers = Handlers()
        self._lanes = ProducerPool()
        self._steps: dict[str, QueueSteps] = {}
        self._topics = TopicSteps(self._steps_of, self._lanes, self.max_body)

    def _steps_of(self, queue: str) -> QueueSteps:
        steps = self._steps.get(queue) if isinstance(queue, str) else None
        if steps is None:
            steps = self._steps[queue] = QueueSteps(queue, self._lanes, self.max_body)
        return steps

    def handler(
        self,
        queue: str,
        *,
        retry: Backoff | None = None,
        retry_on: type[BaseException] | Errors = BaseException,
        dead_on: type[BaseException] | Errors = (),
        time_limit: Duration | None = None,
        once: bool | str = False,
        once_for: Duration = "1d",
    ) -> Callable[[F], F]:
        """Bind a function (def or async def) to a queue. It returns: acked. It raises: failed, and tried again.

        `retry`: a back-off; by default 10 retries, after 5 s, 15 s, 45 s ... up to an hour, +-20 %.
        `dead_on`: errors that make a dead letter at once. `retry_on`: if given, all others do.
        `time_limit`: how long one run may take; longer counts as a failure.
        `once`: a message that was handled is not handled again, however often it is delivered, for `once_for`; True =
        by its id, or the name of a header whose value tells (messages without it: by id). Costs one more round trip.
        Raises InvalidHandler for a second handler of one queue.
        """
        check_name(queue)  # now: `@app.handler` without its parentheses would otherwise be no handler, silently

        def bind(function: F) -> F:
            self.handlers.add(
                queue, function, retry=retry, retry_on=retry_on, dead_on=dead_on, time_limit=time_limit,
                once=once, once_for=once_for,
            )  # fmt: skip
            return function

        return bind

    def broadcast(self, pattern: str, *, time_limit: Duration | None = None) -> Callable[[F], F]:
        """Have every running worker process call a function (def or async def) for each message of these keys.

        Each process has a queue of its own for it, from its start to its end: it gets what is published meanwhile. One
        that is away misses it, one that is 10,000 messages behind gets no more. There is no retry.
        """
        check_pattern(pattern)

        def bind(function: F) -> F:
            self.handlers.add_broadcast(pattern, function, time_limit)
            return function

        return bind

    def check(self, queue: str) -> Callable[[F], F]:
        """Bind a function (def or async def) that decides about prepared messages whose producer fell silent.

        It is given the message and answers True (commit), False (roll back) or None: it cannot say yet, ask again. It
        runs in the workers of this application. Raises InvalidHandler for a second one of a queue.
        """

        def bind(function: F) -> F:
            self.handlers.add_check(queue, function)
            return function

        return bind

    def on_dead(self, queue: str | None = None) -> Callable[[DeadHook], DeadHook]:
        """Have a function called with each message that a worker of this application puts into the dead letters.

        After the message is safely there; what the function raises is logged and changes nothing.
        """

        def bind(hook: DeadHook) -> DeadHook:
            self.handlers.add_dead_hook(queue, hook)
            return hook

        return bind
