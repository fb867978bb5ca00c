"""Processes, and their tasks: steps, each with the connection that carries them out."""

from collections.abc import Callable, Generator
from typing import Any


class Process:
    """A process: tasks that live and die together."""

    def __init__(self, name: str, owner: str = "") -> None:
        self.name = name
        self.owner = owner  #: the id that its consumers share
        self.alive = True
        self.disturbed = False  #: a fault has hit it
        self.receives = False  #: each of its receives is a consumer of its own
        self.paused_until = 0.0
        self.skew = 0.0  #: seconds its clock is ahead
        self.late_until = 0.0  #: until when a request of it that it has repeated may still arrive
        self.tasks: list[Task] = []
        self.on_death: Callable[[], None] = lambda: None


class Task:
    """One thread of a process: steps, and the connection that carries them out."""

    def __init__(self, process: Process, name: str, steps: Generator[Any, Any, None], timeout: float) -> None:
        self.process = process
        self.name = name
        self.steps = steps
        self.timeout = timeout
        self.connection_name = ""
        self.on_connect: Callable[[bool], object] | None = None
        self.connected = False
        self.connects = 0
        self.connected_at = 0.0
        self.watching: Any = None  #: the server's connection that has the WATCH
        self.watch_lost = False
        self.ended = False
        self.late = 0  #: grows when requests that are still on their way to the server are cut off
        self.on_end: Callable[[Any], None] | None = None  #: of steps that others wait for: gets their answer or error
