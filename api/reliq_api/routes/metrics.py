"""Metrics for Prometheus: all queues at the moment of the scrape, and the requests of this process."""

import asyncio

from fastapi import APIRouter, Request, Response

from reliq_api.http.route import Call, needs

router = APIRouter(tags=["health"], route_class=Call)


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    **needs("metrics", answers={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}),
)
async def metrics(request: Request) -> Response:
    """Metrics of all queues; needs a key for `*`."""
    request.state.access.check_all("metrics")
    exporter = request.app.state.exporter
    content, kind = await asyncio.to_thread(exporter.render, request.headers.get("accept", ""))
    return Response(content, media_type=None, headers={"content-type": kind})
