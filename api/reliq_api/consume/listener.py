"""Listener: what a feature has for clients that wait."""

from typing import Protocol

from reliq.transport.aiostore import AioStore
from reliq_api.background import Background
from reliq_api.consume.homes import HomesOf


class Listener(Protocol):
    """Exists once in a process of the service."""

    def __init__(self, store: AioStore, background: Background, homes: HomesOf) -> None: ...

    def drain(self) -> None:
        """Answer all now, because the service stops."""
