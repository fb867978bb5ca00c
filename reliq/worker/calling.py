"""A handler as a worker calls it: its body is upgraded and read, a span is around it, and it may be guarded."""

from dataclasses import replace

from reliq.model.handlers import Handler, Handlers
from reliq.model.upgrades import reading
from reliq.runtime import tracing
from reliq.transport.store import Store
from reliq.worker.once import guarded


def called(handler: Handler, handlers: Handlers, store: Store) -> Handler:
    """Return the handler with the function to call. One that takes the message, without options, stays as it is."""
    function, upgrades = handler.function, handlers.upgrades_of(handler.queue)
    upgrades.check()
    if handler.typed is not None or upgrades.latest > 1:
        function = reading(function, handler.typed, upgrades)
    handler = replace(handler, function=tracing.traced(function))
    return replace(handler, function=guarded(handler, store)) if handler.once else handler
