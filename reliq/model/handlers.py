"""The handlers of an application: their registration, their checks and their policies."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from reliq.contract.values import Duration, seconds
from reliq.errors import InvalidHandler
from reliq.model.backoff import Backoff, backoff_of
from reliq.model.breaker import Breaker
from reliq.model.keys import check_name
from reliq.model.message import Message
from reliq.model.middleware import CommitHook, Middleware, Sending
from reliq.model.policy import ErrorsGiven, Policy, error_classes
from reliq.model.signatures import (
    HandlerFunction,
    TypedCall,
    check_callable,
    check_runs,
    is_async,
    name_of,
    typed_call,
)
from reliq.model.upgrades import UpgradeFunction, Upgrades

DeadHook = Callable[[Message], Any]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Handler:
    """A function bound to a queue."""

    queue: str
    function: HandlerFunction
    policy: Policy
    time_limit: float | None
    is_async: bool
    once: bool | str = False  #: True: once per message id; a text: once per value of the header of this name
    once_for: float = 86_400.0  #: seconds for which a finished message is remembered
    breaker: Breaker | None = None
    result: float | None = None  #: seconds for which what the function returns is kept; None: it is not
    measured: bool = True  #: False for broadcasts: each instance has its own queue, too many for a metric label
    typed: TypedCall | None = None  #: how the function takes a typed body; None: it takes the message
    by: str = ""  #: the decorator, of another name than `handler`, that has made it one


class Handlers:
    """The handlers of one application, one per queue, what features let it declare, and the hooks for dead letters."""

    def __init__(self) -> None:
        self._by_queue: dict[str, Handler] = {}
        self._upgrades: dict[str, Upgrades] = {}
        self.versions: dict[str, int] = {}  #: by queue: the version of its bodies, where it has upgrades
        self.dead_hooks: list[tuple[str | None, DeadHook]] = []
        self._declared: list[tuple[str | None, object]] = []  #: by features, such as schedules
        self._needs_worker = False  #: something is declared that is no queue's, and that workers run
        self.around_runs: list[Middleware[Message]] = []  #: the first is the outermost
        self.around_sends: list[Middleware[Sending]] = []  #: likewise
        self.on_commit: list[CommitHook] = []  #: are told of prepared messages that are enqueued now

    def add(
        self,
        queue: str,
        function: HandlerFunction,
        *,
        retry: Backoff | int | None,
        retry_on: ErrorsGiven,
        dead_on: ErrorsGiven,
        time_limit: Duration | None,
        once: bool | str = False,
        once_for: Duration = "1d",
        breaker: Breaker | None = None,
        result: Duration | None = None,
        max_retries: int | None = None,
        by: str = "",
    ) -> Handler:
        """Register the handler of a queue; raises InvalidHandler for a second one and for a non-function.

        `by`: the name of a decorator other than `handler` that registers the function.
        """
        check_name(queue)
        typed = checked_function(function, f"the handler of queue {queue!r}")
        if not by:
            self._check_order(queue, function)
        if queue in self._by_queue:
            first = self._by_queue[queue].function
            raise InvalidHandler(
                f"queue {queue!r} has two handlers, {name_of(first)} and {name_of(function)}: "
                "one queue has one handler; use a second queue, or a topic with two subscriptions"
            )
        backoff = backoff_of(retry, max_retries, queue)
        check_callable(backoff, f"retry of queue {queue!r}", "the number of failures", "the error")
        if not isinstance(once, (bool, str)) or once == "":
            raise InvalidHandler(f"once of {queue!r} is {once!r}: True, or the name of a header")
        if not (breaker is None or isinstance(breaker, Breaker)):
            raise InvalidHandler(f"breaker of {queue!r} is {breaker!r}: write reliq.breaker(threshold=0.5, minimum=20)")
        handler = Handler(
            queue,
            function,
            Policy(backoff, error_classes(retry_on, "retry_on"), error_classes(dead_on, "dead_on")),
            None if time_limit is None else seconds(time_limit, "time_limit", shortest=0.001),
            is_async(function),
            once,
            seconds(once_for, "once_for", shortest=1.0),
            breaker,
            None if result is None else seconds(result, "result", shortest=1.0),
            typed=typed,
            by=by,
        )
        self._by_queue[queue] = handler
        return handler

    def _check_order(self, queue: str, function: HandlerFunction) -> None:
        """Raise InvalidHandler if a decorator below `handler` has registered the function, without these options."""
        for other in self._by_queue.values():
            if other.function is function and other.by:
                raise InvalidHandler(
                    f"{other.by} is below @app.handler({queue!r}), and makes {name_of(function)} the handler of queue "
                    f"{other.queue!r}: put it above @app.handler"
                )

    def declare(self, one: object, *, serves: str | None = None, needs_worker: bool = False) -> None:
        """Note what a feature lets an application declare, for the feature's companion in the workers.

        `serves`: the queue that a worker serves with it, as it does with a handler. `needs_worker`: it serves none,
        and workers have something to do by it alone.
        """
        self._declared.append((serves, one))
        self._needs_worker = self._needs_worker or needs_worker

    def declared(self, kind: type[T]) -> list[T]:
        """Return what was declared of this kind."""
        return [one for _, one in self._declared if isinstance(one, kind)]

    def add_upgrade(self, queue: str, version: int, function: UpgradeFunction) -> None:
        """Register the upgrade of a queue's bodies to a version; raises InvalidHandler for an unsuitable function."""
        upgrades = self.upgrades_of(check_name(queue))
        upgrades.add(version, function)
        self.versions[queue] = upgrades.latest

    def upgrades_of(self, queue: str) -> Upgrades:
        """Return the upgrades of a queue's bodies, those that are registered later too."""
        return self._upgrades.setdefault(queue, Upgrades(queue))

    def add_dead_hook(self, queue: str | None, hook: DeadHook) -> None:
        """Register a hook; raises InvalidHandler if it cannot be called with a message, or is an async function."""
        name = "on_dead" if queue is None else f"on_dead of queue {check_name(queue)!r}"
        if checked_function(hook, name) is not None:
            raise InvalidHandler(f"{name} is {name_of(hook)}, which takes a body: it must take a reliq.Message")
        if is_async(hook):
            raise InvalidHandler(f"{name} is {name_of(hook)}, an async function, which is never awaited here: use def")
        self.dead_hooks.append((queue, hook))

    def __iter__(self) -> Iterator[Handler]:
        return iter(self._by_queue.values())

    @property
    def empty(self) -> bool:
        """Whether the application has no handlers, and nothing else for a worker to do."""
        return not (self._by_queue or self._needs_worker or any(queue for queue, _ in self._declared))

    def leave_out(self, queues: Collection[str]) -> None:
        """Forget the handlers of these queues, and what serves them; hooks and all else that is declared stay."""
        for queue in queues:
            self._by_queue.pop(queue, None)
        self._declared = [(serves, one) for serves, one in self._declared if serves not in queues]

    def hooks_of(self, queue: str) -> list[DeadHook]:
        """Return the hooks to call when a message of this queue dies."""
        return [hook for of, hook in self.dead_hooks if of is None or of == queue]


def checked_function(function: HandlerFunction, what: str) -> TypedCall | None:
    """Return how the function takes a typed body; raises InvalidHandler unless it takes a body or the message."""
    check_runs(function, what)
    typed = typed_call(function, what)
    if typed is None:
        check_callable(function, what, "the message")
    return typed
