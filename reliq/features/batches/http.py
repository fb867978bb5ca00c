"""Batches that have not ended."""

from typing import Annotated

from fastapi import Path, Query, Request

from reliq.features.batches import schemas
from reliq_api.http.problems import Problem
from reliq_api.http.route import call_router, needs
from reliq_api.routes.queues import of_all_queues
from reliq_api.schemas.base import ListQuery

router = call_router("batches")

Id = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{12}$", examples=["3q2_7wAAq83v"])]


@router.get("/batches", summary="The batches that have not ended, oldest first", **needs("metrics"))
async def list_batches(request: Request, wanted: Annotated[ListQuery, Query()]) -> schemas.BatchList:
    """Needs a key for `*`: a batch may have messages in any queue."""
    found = await of_all_queues(request, "batches").batches(limit=wanted.limit)
    return schemas.BatchList(batches=[schemas.Batch(**one.summary()) for one in found])


@router.get("/batches/{id}", summary="How far a batch is", **needs("metrics", fails=("batch_not_found",)))
async def show_batch(id: Id, request: Request) -> schemas.Batch:
    """Needs a key for `*`."""
    found = await of_all_queues(request, "batches").batch_progress(id)
    if found is None:
        raise Problem("batch_not_found", f"there is no batch {id!r}: it has ended, or never existed")
    return schemas.Batch(**found.summary())
