"""Workers."""

from typing import Literal

from pydantic import BaseModel, Field


class RunningMessage(BaseModel):
    queue: str
    id: str
    since: int = Field(description="Ms since the epoch.")


class Worker(BaseModel):
    """A process that consumes. What it does not say about itself is null."""

    id: str
    host: str | None
    pid: int | None
    title: str | None
    started: int | None = Field(description="Ms since the epoch, by its own clock.")
    version: str | None
    queues: list[str]
    processing: int = Field(description="Messages that it holds.")
    messages_per_second: float
    last_heartbeat: int | None = Field(description="Ms since the epoch.")
    paused: bool
    running: RunningMessage | None = Field(description="The message that has run for longest.")


class WorkerList(BaseModel):
    workers: list[Worker]


class Instructed(BaseModel):
    id: str
    told: Literal["pause", "resume", "stop"]
