"""A broadcast, as an application declares it."""

import re
from dataclasses import dataclass

from reliq.contract.values import Duration, seconds
from reliq.features.topics.routing import check_pattern
from reliq.model.handlers import Handler, Handlers, checked_function
from reliq.model.keys import instance_queue
from reliq.model.policy import Policy
from reliq.model.signatures import HandlerFunction, TypedCall, is_async, name_of


@dataclass(frozen=True, slots=True)
class Broadcast:
    """A function that every running instance calls for each message with a matching routing key."""

    name: str
    pattern: str
    function: HandlerFunction
    time_limit: float | None
    is_async: bool
    typed: TypedCall | None = None

    def of(self, owner: str) -> Handler:
        """Return the handler of one instance; a message that fails there is not retried."""
        queue = instance_queue(self.name, owner)
        policy = Policy(self._give_up)
        return Handler(queue, self.function, policy, self.time_limit, self.is_async, measured=False, typed=self.typed)

    def _give_up(self, failures: int, error: BaseException) -> None:
        """Return None: no retry."""


def add_broadcast(handlers: Handlers, pattern: str, function: HandlerFunction, time_limit: Duration | None) -> None:
    """Register a broadcast; raises InvalidHandler if `function` is not a function."""
    typed = checked_function(function, f"the handler of broadcast {pattern!r}")
    limit = None if time_limit is None else seconds(time_limit, "time_limit", shortest=0.001)
    # The name becomes part of a queue name. The number distinguishes two functions of the same name.
    name = re.sub(r"[^A-Za-z0-9]+", "-", name_of(function)).strip("-")[-60:].strip("-")
    name = f"{name or 'broadcast'}.{len(handlers.declared(Broadcast)) + 1}"
    broadcast = Broadcast(name, check_pattern(pattern), function, limit, is_async(function), typed)
    handlers.declare(broadcast, needs_worker=True)
