"""Liveness, readiness and metrics of the process."""

from fastapi import APIRouter, Request

from reliq_api.http.problems import Problem

router = APIRouter()
PATHS = ("/healthz", "/readyz")


def _check_tasks(request: Request) -> None:
    if down := request.app.state.background.down:
        raise Problem("not_ready", f"failed, now restarting: {', '.join(down)}; the log of the service says more")


@router.get("/healthz")
async def healthz(request: Request) -> dict[str, str]:
    """Whether the process is alive and all background tasks run."""
    _check_tasks(request)
    return {"status": "ok"}


@router.get("/readyz")
async def readyz(request: Request) -> dict[str, str]:
    """Whether Redis can hold queues."""
    if request.app.state.waits.draining:
        raise Problem("not_ready", "the endpoint is stopping")
    _check_tasks(request)
    found, degraded = await request.app.state.readiness.seen()
    if found:
        raise Problem("not_ready", " ".join(found))
    return {"status": "degraded" if degraded else "ready"}
