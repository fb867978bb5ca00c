"""The calls, one module per subject. Each has a `router`, which is found by its place, here or in a slice."""

from collections.abc import Iterator

from fastapi import APIRouter

from reliq_api.parts import modules_with_router

#: The calls of producers come first, for a request is compared with the routes in this order. A page lists them so too.
_FIRST = (
    "messages", "tracking", "results", "topics", "schedules", "leases", "steps", "output", "batches", "flows",
    "queues", "delayed",
)  # fmt: skip


def routers() -> Iterator[APIRouter]:
    """Yield the routers of all calls."""
    for module in modules_with_router(__name__, __path__, _FIRST, of_slices="http"):
        yield module.router
