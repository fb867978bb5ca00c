"""Liveness and readiness of the process. No key is needed: a load balancer has none."""

from typing import Any

from fastapi import APIRouter, Request

from reliq_api import schemas
from reliq_api.http.docs import failures
from reliq_api.http.problems import Problem
from reliq_api.readiness import check_ready, check_tasks

router = APIRouter(tags=["health"])


_FAILURES: dict[int | str, Any] = {503: failures("not_ready")[503]}


@router.get(
    "/healthz",
    summary="Whether the process is alive and all background tasks run",
    response_model=schemas.Health,
    response_model_exclude_none=True,
    responses=_FAILURES,
)
async def healthz(request: Request) -> schemas.Health:
    check_tasks(request)
    return schemas.Health(status="ok")


@router.get(
    "/readyz",
    summary="Whether Redis is reachable and `reliq doctor` reports no failure",
    response_model=schemas.Health,
    response_model_exclude_none=True,
    responses=_FAILURES,
)
async def readyz(request: Request) -> schemas.Health:
    """Degraded, and still 200, while some nodes of a Redis Cluster do not answer: `missing` names them.

    Answered within a second: while Redis has not answered by then, as the last look found.
    """
    if request.app.state.polls.draining:
        raise Problem("not_ready", "the service is stopping")
    if degraded := await check_ready(request):
        return schemas.Health(status="degraded", missing=degraded)
    return schemas.Health(status="ready")
