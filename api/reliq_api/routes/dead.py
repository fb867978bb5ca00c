"""Dead letters: list, show, redrive, purge."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Query, Request, Response
from pydantic import Field

from reliq_api import schemas
from reliq_api.enqueue.bodies import answered, shown
from reliq_api.http.pairs import headers_of
from reliq_api.http.problems import Problem
from reliq_api.http.route import call_router, needs
from reliq_api.routes.queues import MAX_CURSOR, existing

router = call_router("dead letters")
_NOT_FILTERS = {"limit", "dry_run", "keep_failures", "all"}


@router.get("/queues/{queue}/dead", summary="Dead letters, latest first", **needs("operate"))
async def list_dead(
    queue: schemas.QueueName,
    request: Request,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    after: Annotated[str | None, Query(max_length=MAX_CURSOR, description="`next` of the page before.")] = None,
    reason: schemas.DeathReason | None = None,
    error_class: Annotated[str | None, Query(max_length=200)] = None,
    error_text: Annotated[str | None, Query(max_length=500)] = None,
    older_than: Annotated[schemas.Period | None, Query(description="Dead for longer.")] = None,
    newer_than: Annotated[schemas.Period | None, Query(description="Dead for less.")] = None,
    header: schemas.HeaderPairs = (),
) -> schemas.DeadLetterPage:
    found = await existing(request, queue)
    page = await found.dead.list(
        limit=limit, after=after, bodies=False, reason=reason, error_class=error_class, error_text=error_text,
        older_than=older_than, newer_than=newer_than, headers=headers_of(header),
    )  # fmt: skip
    letters = [schemas.DeadLetter(**letter.summary()) for letter in page]
    return schemas.DeadLetterPage(letters=letters, next=page.next)


@router.get(
    "/queues/{queue}/dead/{id}",
    summary="One dead letter, with its body and its errors",
    response_model=schemas.DeadLetterDetails,
    **needs("operate", fails=("dead_letter_not_found",)),
)
async def show_dead(
    queue: schemas.QueueName, id: Annotated[str, Field(min_length=1, max_length=128)], request: Request
) -> Response:
    letter = await (await existing(request, queue)).dead.get(id)
    if letter is None:
        raise Problem("dead_letter_not_found", f"queue {queue!r} has no dead letter with this id")
    encoding, body = shown(letter.body, "auto", letter.headers)
    answer = {**letter.summary(), "body": body, "encoding": encoding, "errors": letter.errors}
    return answered(answer)


@router.post("/queues/{queue}/dead/redrive", summary="Put dead letters back into the queue", **needs("operate"))
async def redrive(queue: schemas.QueueName, wanted: schemas.RedriveRequest, request: Request) -> schemas.RedriveResult:
    """Oldest dead letters first. Repeat the call for more than `limit`. At any instant each is either dead or back."""
    found = await existing(request, queue)
    result = await found.dead.redrive(
        limit=wanted.limit, dry_run=wanted.dry_run, keep_failures=wanted.keep_failures, **_filters(wanted)
    )
    return schemas.RedriveResult(**asdict(result))


@router.post("/queues/{queue}/dead/purge", summary="Remove dead letters for good", **needs("operate"))
async def purge_dead(queue: schemas.QueueName, wanted: schemas.DeadPurgeRequest, request: Request) -> schemas.Purged:
    found = await existing(request, queue)
    return schemas.Purged(removed=await found.dead.purge(all=wanted.all, **_filters(wanted)))


def _filters(wanted: schemas.Filter) -> dict[str, Any]:
    return wanted.model_dump(exclude_none=True, exclude=_NOT_FILTERS)
