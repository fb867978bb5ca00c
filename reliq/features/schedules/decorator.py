"""`@app.every`: the schedule of a handler."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar, Unpack

from reliq.contract.values import Duration
from reliq.errors import InvalidHandler
from reliq.features.schedules.model import Definition, ScheduleOptions
from reliq.features.schedules.steps import ScheduleSteps
from reliq.model.handlers import Handlers
from reliq.model.keys import check_name
from reliq.model.outgoing import Body
from reliq.model.signatures import HandlerFunction, check_called, name_of
from reliq.protocol.application import Application

F = TypeVar("F", bound=Callable[..., Any])


class Every(Application):
    """What synchronous and asyncio applications share of schedules."""

    @cached_property
    def _schedules(self) -> ScheduleSteps:
        return ScheduleSteps(self._steps_of, self.max_body)

    def every(
        self,
        when: Duration,
        *,
        queue: str | None = None,
        name: str | None = None,
        body: Body = b"",
        **options: Unpack[ScheduleOptions],
    ) -> Callable[[F], F]:
        """Run a handler on a schedule: a message for its queue at each tick of `when`.

        `when`: a cron expression such as "*/5 * * * *", or an interval such as "30s". Put it above `@app.handler`, or
        alone: the function (def or async def) then becomes the handler of `queue`, by default a queue with its name.
        `name`: of the schedule, by default that of the queue. The other options are those of ScheduleOptions. A worker
        of this application stores the schedule when it starts; it stays until `app.schedules.remove(name)`. Raises
        InvalidSetting, InvalidName or InvalidMessage, and InvalidHandler for a second schedule of the same name.
        """
        check_called(when, "every", '"5m"')

        def bind(function: F) -> F:
            home = _queue_of(self.handlers, function, queue)
            _add(self.handlers, self._schedules.define(name or home, when, home, body, options), function)
            return function

        return bind


def _queue_of(handlers: Handlers, function: HandlerFunction, queue: str | None) -> str:
    """Return the queue that a function handles; without one, `queue` or the function's own name."""
    handled = next((handler.queue for handler in handlers if handler.function is function), None)
    if handled is not None and queue not in (None, handled):
        raise InvalidHandler(f"{name_of(function)} handles queue {handled!r}, and its schedule is for {queue!r}")
    return handled or check_name(queue or getattr(function, "__name__", repr(function)))


def _add(handlers: Handlers, definition: Definition, function: HandlerFunction) -> None:
    """Register a schedule for a function, as the handler of its queue if it is none yet."""
    if any(one.name == definition.name for one in handlers.declared(Definition)):
        raise InvalidHandler(f"two schedules have the name {definition.name!r}: give one of them another name=")
    if all(handler.function is not function for handler in handlers):
        handlers.add(
            definition.queue, function, retry=None, retry_on=BaseException, dead_on=(), time_limit=None, by="@app.every"
        )
    handlers.declare(definition)
