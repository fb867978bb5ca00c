"""What an action gets: the request, who sends it, and the parts of the endpoint."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from reliq import aio
from reliq_api.joined import Joined
from reliq_api.pressure import Pressure
from reliq_sqs.access import Sender
from reliq_sqs.errors import SqsError
from reliq_sqs.known import SqsQueue
from reliq_sqs.names import Place
from reliq_sqs.registry import Registry
from reliq_sqs.waits import Waits

Parameters = dict[str, Any]
Result = dict[str, Any]


@dataclass(slots=True)
class Endpoint:
    """The parts of the endpoint that actions use."""

    app: aio.Reliq
    registry: Registry
    pressure: Pressure
    moves: Any  #: reliq_sqs.moves.Moves, which uses actions itself
    waits: Waits
    joined: Joined
    strict: bool


@dataclass(slots=True)
class Call:
    """One request for an action."""

    endpoint: Endpoint
    action: str
    sender: Sender
    region: str
    base_url: Callable[[], str]  #: the beginning of queue URLs
    given: Parameters
    gone: Callable[[], Awaitable[None]]  #: waits until the client is away
    trace: str = ""  #: the header X-Amzn-Trace-Id

    @property
    def registry(self) -> Registry:
        return self.endpoint.registry

    def url(self, place: Place) -> str:
        return self.registry.names.url(self.base_url(), place)

    async def queue(self) -> SqsQueue:
        """Return the queue that the request is about; raises SqsError."""
        return await self.named(self.registry.names.of_url(self.given["QueueUrl"], self.region))

    async def named(self, place: Place) -> SqsQueue:
        """Return a queue on which the sender may do this; raises SqsError."""
        queue = self.allow(place)
        return self.registry.seen(queue) or await self.registry.get(place)

    def allow(self, place: Place) -> str:
        """Return the name of reliq's queue; raises SqsError unless the sender may carry out the action on it."""
        queue = self.registry.names.queue(place)
        if not self.sender.may(self.action, queue):
            raise SqsError("AccessDeniedException", f"Access to the resource {self.url(place)} is denied.")
        return queue


Handler = Callable[[Call], Awaitable[Result]]
