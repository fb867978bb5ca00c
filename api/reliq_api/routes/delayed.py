"""Delayed messages: list."""

from typing import Annotated

from fastapi import Query, Request
from pydantic import BaseModel, Field

from reliq_api import schemas
from reliq_api.http.docs import failures
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


@router.get(
    "/queues/{queue}/delayed",
    summary="Delayed messages, due soonest first",
    response_model=DelayedPage,
    responses=failures("invalid_name"),
    openapi_extra=needs("operate"),
)
async def list_delayed(
    queue: schemas.QueueName,
    request: Request,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    after: Annotated[str | None, Query(max_length=MAX_CURSOR, description="`next` of the page before.")] = None,
    failed: Annotated[bool, Query(description="Only messages that wait for a retry.")] = False,
) -> DelayedPage:
    found = await existing(request, queue)
    page = await found.delayed.list(limit=limit, after=after, failed=failed, bodies=False)
    messages = [DelayedMessage(**message.summary()) for message in page]
    return DelayedPage(messages=messages, next=page.next)
