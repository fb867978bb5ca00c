"""The base of synchronous and asyncio applications: settings, handlers, and the steps of their queues."""

import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from reliq.contract import values
from reliq.contract.values import BODY_LIMIT, MAX_BODY_BYTES, Duration, Size, size
from reliq.errors import InvalidSetting
from reliq.model.backoff import Backoff
from reliq.model.breaker import Breaker
from reliq.model.handlers import DeadHook, Handlers
from reliq.model.keys import check_name
from reliq.model.keywords import named_options
from reliq.model.message import Message
from reliq.model.middleware import Middleware, Sending, check_middleware
from reliq.model.policy import ErrorsGiven
from reliq.model.signatures import check_called
from reliq.protocol.producer import ProducerPool
from reliq.protocol.queue import QueueSteps
from reliq.runtime.bounded import Bounded
from reliq.runtime.environment import flag
from reliq.runtime.url import dereferenced, read_url

F = TypeVar("F", bound=Callable[..., Any])


def url_from_environment(url: str | None) -> str:
    """Return the URL or, without one, that of RELIQ_URL; both may be references, `env:NAME` or `file:/path`.

    Raises InvalidSetting, which says so of a RELIQ_URL that is wrong: no line of code names it.
    """
    if url is not None and not isinstance(url, str):
        read_url(url)  # refuses it
    if url is not None and not url.strip():
        raise InvalidSetting(
            f"the Redis URL is empty: give one, such as {values.DEFAULT_URL}, or none at all for that of RELIQ_URL"
        )
    if url is not None:
        return dereferenced(url)
    try:
        found = dereferenced(os.environ.get("RELIQ_URL") or values.DEFAULT_URL)
        read_url(found)
    except InvalidSetting as error:
        raise InvalidSetting(f"RELIQ_URL: {error}") from None
    return found


def body_limit(given: Size | None, what: str = "max_body", environment: Mapping[str, str] = os.environ) -> int:
    """Return the bytes that a body may have: `given`, else RELIQ_MAX_BODY, else 1 MiB. Raises InvalidSetting."""
    if given is None:
        given, what = environment.get("RELIQ_MAX_BODY") or BODY_LIMIT, "RELIQ_MAX_BODY"
    return size(given, what, 1, MAX_BODY_BYTES)


def reconnect_grace(
    given: Duration | None, what: str = "reconnect_grace", environment: Mapping[str, str] = os.environ
) -> float:
    """Return the seconds without a connection after which a worker counts as dead; raises InvalidSetting.

    They are `given`, else RELIQ_RECONNECT_GRACE, else 5.
    """
    if given is None:
        given = environment.get("RELIQ_RECONNECT_GRACE") or values.RECONNECT_GRACE
        what = "RELIQ_RECONNECT_GRACE"
    return values.seconds(given, what)


def eviction_allowed(allow: bool | None, environment: Mapping[str, str] = os.environ) -> bool:
    return flag("RELIQ_ALLOW_EVICTION", environment) if allow is None else allow


class Application:
    """The part that synchronous and asyncio applications share: the handlers and the steps."""

    store: Any  #: runs the steps; each of the two has its own

    def __init__(self, url: str | None, allow_eviction: bool | None, max_body: Size | None) -> None:
        self.url = url_from_environment(url)
        self.allow_eviction = eviction_allowed(allow_eviction)
        self.max_body = body_limit(max_body)
        self.handlers = Handlers()
        self._pool = ProducerPool()
        self._pool.max_body = self.max_body
        self._pool.versions, self._pool.middleware = self.handlers.versions, self.handlers.around_sends
        self._pool.on_commit = self.handlers.on_commit
        self._steps: Bounded[QueueSteps] = Bounded()

    def _redirect(self, url: str, connect: Any = None) -> None:
        """Use another server, of whose queues nothing is known yet; before its first call, or between two."""
        self.store.redirect(url, connect)
        self.url = url
        self._pool.forget()
        self._pool.sharded = self.store.sharded

    def _queue_steps(self, queue: str) -> QueueSteps:
        """Return the steps of the queue with a name that a user has given; raises InvalidName."""
        return self._steps_of(check_name(queue))

    def _steps_of(self, queue: str) -> QueueSteps:
        steps = self._steps.get(queue) if isinstance(queue, str) else None
        if steps is None:
            steps = self._steps[queue] = QueueSteps(queue, self._pool, self.max_body)
        return steps

    @named_options
    def handler(
        self,
        queue: str,
        *,
        retry: Backoff | int | None = None,
        retry_on: ErrorsGiven = BaseException,
        dead_on: ErrorsGiven = (),
        time_limit: Duration | None = None,
        once: bool | str = False,
        once_for: Duration = "1d",
        breaker: Breaker | None = None,
        result: Duration | None = None,
        max_retries: int | None = None,
    ) -> Callable[[F], F]:
        """Bind a function (def or async def) to a queue: if it returns, the message is acked; if it raises, retried.

        The function takes the message, or the body as the type of its annotation (a dataclass, msgspec.Struct or
        pydantic model), or both; a body that does not fit makes a dead letter at once, with reason `invalid`.
        `retry`: a back-off; by default 10 retries, after 5 s, 15 s, 45 s ... up to an hour, +-20 %. A number such as 3
        means `reliq.exponential(limit=3)`: at most 3 retries after the same pauses. `max_retries=3` means the same.
        `dead_on`: errors that make a dead letter at once. `retry_on`: if given, all other errors do.
        `time_limit`: how long one run may take; a longer one counts as a failure.
        `once`: skip a message that was handled within `once_for`, however often it is delivered. True identifies
        messages by id; a text by the value of the header with this name (without it, by id). Costs one more round trip.
        `breaker`: `reliq.breaker(...)`; when too many runs fail, no worker gets messages of the queue for a while.
        `result`: for at least this time, what the function returns (JSON or bytes) is kept for `queue.result(id)`.
        Raises InvalidHandler for a second handler of a queue.
        """
        check_called(queue, "handler", '"{}"')
        check_name(queue)

        def bind(function: F) -> F:
            self.handlers.add(
                queue, function, retry=retry, retry_on=retry_on, dead_on=dead_on, time_limit=time_limit,
                once=once, once_for=once_for, breaker=breaker, result=result, max_retries=max_retries,
            )  # fmt: skip
            return function

        return bind

    def upgrade(self, queue: str, *, version: int) -> Callable[[F], F]:
        """Bind a function (def) that makes the body of this version from the body of the version before.

        It takes the earlier body, as JSON or as the type of its annotation, and returns the later one. A worker calls
        it before the handler; the message in Redis does not change. The header `body-version` has the version (without
        it 1); this application adds it to what it sends. Raises InvalidHandler.
        """
        check_name(queue)

        def bind(function: F) -> F:
            self.handlers.add_upgrade(queue, version, function)
            return function

        return bind

    @named_options
    def middleware(self, *, runs: Middleware[Message] | None = None, sends: Middleware[Sending] | None = None) -> None:
        """Put code around each run of a handler, around each send, or both; what is added first is the outermost.

        Runs are those in the workers of this application, of broadcasts too; sends are those of this application.
        Raises InvalidHandler for a hook that cannot be called, and for an async one around the sends of a reliq.Reliq;
        a worker for an async one around a handler that is a def.
        """
        if runs is None and sends is None:
            raise TypeError("give runs, sends, or both")
        if runs is not None:
            check_middleware(runs, may_await=True, where="")
            self.handlers.around_runs.append(runs)
        if sends is not None:
            asynchronous = inspect.iscoroutinefunction(getattr(self, "close", None))  # as in reliq.aio
            check_middleware(sends, may_await=asynchronous, where="reliq.Reliq")
            self.handlers.around_sends.append(sends)

    def on_dead(self, queue: str | None = None) -> Callable[[DeadHook], DeadHook]:
        """Register a function to be called with each message that a worker of this application makes a dead letter.

        Called after the dead letter is stored, but not for messages that killed their workers; its errors are logged.
        """
        check_called(queue, "on_dead", "")

        def bind(hook: DeadHook) -> DeadHook:
            self.handlers.add_dead_hook(queue, hook)
            return hook

        return bind
