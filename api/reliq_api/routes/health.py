"""Whether the process lives, and whether it can serve."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="The process lives")
async def healthz() -> JSONResponse:
    return JSONResponse({"status": "ok"})
