"""Policies: how failures are judged, and what a handler raises or returns to decide it."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from reliq.contract.values import Duration, seconds
from reliq.errors import InvalidHandler, InvalidSetting
from reliq.model.backoff import Backoff

Errors = tuple[type[BaseException], ...]
ErrorsGiven = type[BaseException] | Collection[type[BaseException]]


class Retry(Exception):
    """Raise it to fail on purpose: the message is tried again after `delay` or, without one, as its policy says.

    It counts as a failure. `scope="queue"`: no worker gets a message of the queue before `delay` is over, as when a
    service answers 429; `scope="key"`: the same for the limit key of this message. Other messages are not charged.
    """

    __module__ = "reliq"  # the name that users know is the one in the history of a message

    def __init__(
        self,
        message: str = "retry was asked for",
        *,
        delay: Duration | None = None,
        scope: Literal["message", "key", "queue"] = "message",
    ) -> None:
        super().__init__(message)
        self.delay = None if delay is None else seconds(delay, "Retry(delay=)")
        if scope not in ("message", "key", "queue"):
            raise InvalidSetting(f'Retry(scope=) is {scope!r}: "message", "key" or "queue"')
        if scope != "message" and not self.delay:
            raise InvalidSetting(
                f'Retry(scope="{scope}") needs a delay: for so long nothing of the {scope} is given out'
            )
        self.scope = scope


class Dead(Exception):
    """Raise it to make the message a dead letter at once, with reason `rejected`."""

    __module__ = "reliq"


class RunOver(BaseException):
    """Ends the run of a handler whose message is not here any more. Not an Exception, which handlers catch."""

    def __str__(self) -> str:
        return (
            "this run is over: its message sleeps, waits, has a step that is tried again, or was cancelled; let this "
            "exception pass, and do not settle the message"
        )


@dataclass(frozen=True, slots=True, match_args=False)
class Again:
    """Return it to put the message back into its queue: not a failure, its counts start from zero."""

    delay: Duration = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "delay", seconds(self.delay, "Again(delay=)"))


@dataclass(frozen=True, slots=True)
class Policy:
    """How the failures of a queue are judged."""

    backoff: Backoff
    retry_on: Errors = (BaseException,)
    dead_on: Errors = ()

    def delay(self, failures: int, error: BaseException) -> float | None:
        """Return the seconds until the next try after the n-th failure; None makes the message a dead letter."""
        delay = self.backoff(failures, error)
        if delay is not None and isinstance(error, Retry) and error.delay is not None:
            return error.delay
        return None if delay is None else seconds(delay, "the back-off's answer")

    def rejects(self, error: BaseException) -> bool:
        """Whether this error forbids a retry, however many retries are left."""
        if isinstance(error, Dead):
            return True
        return isinstance(error, self.dead_on) or not isinstance(error, (*self.retry_on, Retry))


def error_classes(value: ErrorsGiven, what: str) -> Errors:
    """Return the classes of one class or of several, in a tuple or, as is common, in a list."""
    errors: tuple[Any, ...] = tuple(value) if isinstance(value, (tuple, list, set, frozenset)) else (value,)
    for one in errors:
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            raise InvalidHandler(f"{what} has {one!r}, which is not an exception class")
    return errors
