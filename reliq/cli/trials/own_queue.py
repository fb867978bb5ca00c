"""Removal of a temporary queue from a shared Redis, without leftovers."""

from reliq import ops
from reliq.client.app import Reliq
from reliq.model.keys import QueueKeys


def remove_queue(app: Reliq, name: str) -> None:
    """Delete the queue with all its messages, including held ones."""
    keys = QueueKeys(name)
    consumers = app.store.call(ops.members(keys.consumers))
    app.store.call(ops.drop_queue(keys, consumers))
