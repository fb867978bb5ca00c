"""The page about topics: the bindings, and the queues that would get a message."""

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRouter

from reliq.errors import ReliqError
from reliq.features.topics.routing import check_pattern, check_routing_key
from reliq.features.topics.steps import or_alternate, read_routes
from reliq.model.keys import check_name
from reliq_api.access.auth import Access
from reliq_api.http.problems import of_error
from reliq_api.ui.access import Viewer, reliq_of
from reliq_api.ui.guard import Form, Page
from reliq_api.ui.render import page, redirect

router = APIRouter(route_class=Page, prefix="/topics")

SECTION = {"topics": "Topics"}


@router.get("")
async def topics(request: Request, who: Viewer, key: str = "") -> Response:
    reliq, key = reliq_of(request), key.strip()
    stats = await reliq.topics.stats()
    bindings = [(one, who.may_bind(one.queue)) for one in await reliq.topics.list() if who.may_see(one.queue)]
    return page(
        request,
        "topics.html",
        bindings=bindings,
        alternate=stats.alternate if stats.alternate and who.may_see(stats.alternate) else None,
        unroutable=stats.unroutable,
        key=key,
        reached=await _matching_queues(request, who, key) if key else None,
        may_bind=who.key is None or who.key.allows("topics"),
    )


async def _matching_queues(request: Request, who: Access, key: str) -> list[str]:
    """Return the queues that would get the message, as far as the viewer may see them."""
    check_routing_key(key)
    routes, alternate = await reliq_of(request).store.run(read_routes())
    return [queue for queue in or_alternate(routes.match(key), alternate) if who.may_see(queue)]


@router.post("/bind")
async def bind(request: Request, who: Viewer, fields: Form) -> Response:
    queue, pattern = _binding(who, fields)
    changed = await reliq_of(request).subscribe(queue, pattern)
    return redirect(request, "topics", notice="bound" if changed else "bound_before")


@router.post("/unbind")
async def unbind(request: Request, who: Viewer, fields: Form) -> Response:
    queue, pattern = _binding(who, fields, bound=True)
    changed = await reliq_of(request).unsubscribe(queue, pattern)
    return redirect(request, "topics", notice="unbound" if changed else "unbound_before")


def _binding(who: Access, fields: list[tuple[str, str]], bound: bool = False) -> tuple[str, str]:
    """Return queue and pattern of a form if the viewer may bind the queue; a queue of others does not exist."""
    given = dict(fields)
    try:
        queue = check_name(given.get("queue", "").strip())
        pattern = check_pattern(given.get("pattern", "").strip(), bound)
    except ReliqError as error:
        raise HTTPException(400, of_error(error).detail) from None
    if not who.covers(queue):
        raise HTTPException(404, "There is no queue of this name.")
    if not who.may_bind(queue):
        raise HTTPException(403, "This needs a key with the scope topics for this queue.")
    return queue, pattern
