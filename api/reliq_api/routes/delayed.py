"""Delayed messages: list, run now."""

from typing import Annotated

from fastapi import Query, Request
from pydantic import BaseModel, Field

from reliq.contract import values
from reliq_api import schemas
from reliq_api.http.pairs import headers_of
from reliq_api.http.route import call_router, needs
from reliq_api.routes.queues import MAX_CURSOR, existing

router = call_router("queues")


class DelayedMessage(BaseModel):
    id: str = Field(description="An empty string for bytes that are not a message.")
    queue: schemas.QueueName
    routing_key: str
    key: str
    due_at: int = Field(description="Ms since the epoch, the Redis server's clock.")
    enqueued_at: int
    failures: int
    deliveries: int
    headers: dict[str, str]
    size: int
    error_class: str = Field(description="Error class of the last failure, or an empty string.")
    error: str
    failed_at: int | None


class DelayedPage(BaseModel):
    messages: list[DelayedMessage]
    next: str | None = Field(description="Give it as `after` for the next page; null at the end.")


class RunRequest(schemas.Request):
    """Ids, or a filter; all given conditions of a filter must hold."""

    ids: list[schemas.MessageId] | None = Field(None, min_length=1, max_length=values.MAX_BATCH)
    failed: bool = Field(default=False, description="Only messages that wait for a retry.")
    error_class: str | None = Field(None, max_length=200, description="Of the last error, with or without its module.")
    headers: dict[str, str] | None = None
    all: bool = Field(default=False, description="All delayed messages; needed if no other condition is given.")
    dry_run: bool = Field(default=False, description="Only count those that a filter selects.")


class RunResult(BaseModel):
    due: int = Field(description="How many are due now.")
    dry_run: bool


@router.get("/queues/{queue}/delayed", summary="Delayed messages, due soonest first", **needs("operate"))
async def list_delayed(
    queue: schemas.QueueName,
    request: Request,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    after: Annotated[str | None, Query(max_length=MAX_CURSOR, description="`next` of the page before.")] = None,
    failed: Annotated[bool, Query(description="Only messages that wait for a retry.")] = False,
    error_class: Annotated[str | None, Query(max_length=200)] = None,
    header: schemas.HeaderPairs = (),
) -> DelayedPage:
    found = await existing(request, queue)
    page = await found.delayed.list(
        limit=limit, after=after, failed=failed, error_class=error_class, headers=headers_of(header), bodies=False
    )
    messages = [DelayedMessage(**message.summary()) for message in page]
    return DelayedPage(messages=messages, next=page.next)


@router.post("/queues/{queue}/delayed/run", summary="Run delayed messages now, retries too", **needs("operate"))
async def run_delayed(queue: schemas.QueueName, wanted: RunRequest, request: Request) -> RunResult:
    """Make them due: they are ready at once. Their failures still count."""
    found = await existing(request, queue)
    filters = wanted.model_dump(exclude_none=True, exclude={"ids"})
    return RunResult(due=await found.delayed.run(*(wanted.ids or ()), **filters), dry_run=wanted.dry_run)
