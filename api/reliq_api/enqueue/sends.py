"""Single enqueues: those of one queue that arrive during a call go together in the next one."""

from collections.abc import Sequence

from reliq import aio
from reliq.errors import OutcomeUnknown
from reliq.model.outgoing import NewMessage
from reliq_api.joined import Joined


class Sends:
    """The single enqueues of this process."""

    def __init__(self, reliq: aio.Reliq, joined: Joined) -> None:
        self._reliq = reliq
        self._joined = joined

    async def send(self, queue: str, message: NewMessage, durability: str | None = None) -> str:
        """Enqueue a message; return its id. Raises as aio.Queue.send does. With a durability it is sent alone."""
        handle = self._reliq.queue(queue)
        if durability is not None:
            return await handle.send(message, durability=durability)

        async def send(messages: list[NewMessage]) -> Sequence[str]:
            if len(messages) == 1:
                return [await handle.send(messages[0])]
            return await handle.send_many(messages)

        try:
            (identity,) = await self._joined.run(("send", queue), [message], send, len(message.body))
        except OutcomeUnknown as error:
            raise OutcomeUnknown(str(error), (message.first_id or message.id,)) from error
        return identity
