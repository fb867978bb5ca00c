"""The library's application, with a publish that the access of the sender limits."""

from collections.abc import Callable, Sequence

from reliq import aio
from reliq.model.outgoing import NewMessage


class Service(aio.Reliq):
    """The application of the HTTP service."""

    async def publish_checked(
        self,
        routing_key: str,
        message: NewMessage,
        check: Callable[[Sequence[str]], None],
        mandatory: bool,
        durability: str | None,
    ) -> dict[str, str]:
        """Publish as `publish` does. `check` gets exactly the queues that the message enters, and raises to refuse."""
        message = self._topics.prepared(message, {})
        return await self.store.run(self._topics.publish(routing_key, message, mandatory, durability, check=check))
