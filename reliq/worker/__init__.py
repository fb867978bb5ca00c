"""The worker: claims messages, runs their handlers, settles them."""

from reliq.worker.worker import Options, Worker

__all__ = ["Options", "Worker"]
