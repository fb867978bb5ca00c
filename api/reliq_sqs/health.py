"""Liveness, readiness and metrics of the process."""

from fastapi import APIRouter, Request

from reliq_api.http.problems import Problem
from reliq_api.readiness import check_ready, check_tasks

router = APIRouter()
PATHS = ("/healthz", "/readyz")


@router.get("/healthz")
async def healthz(request: Request) -> dict[str, str]:
    """Whether the process is alive and all background tasks run."""
    check_tasks(request)
    return {"status": "ok"}


@router.get("/readyz")
async def readyz(request: Request) -> dict[str, str]:
    """Whether Redis can hold queues."""
    if request.app.state.waits.draining:
        raise Problem("not_ready", "the endpoint is stopping")
    return {"status": "degraded" if await check_ready(request) else "ready"}
