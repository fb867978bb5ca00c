"""The page about staged jobs of Spark: what is open, committed or being removed, and the button that aborts."""

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRouter

from reliq.errors import InvalidName
from reliq.features.staging.jobs import ABORTABLE, abort_job, counts_of, read_ended, read_jobs
from reliq.model.keys import check_name
from reliq.protocol.partial_reads import every_queue
from reliq_api.access.auth import Access
from reliq_api.ui.access import Viewer, reliq_of
from reliq_api.ui.guard import Form, Page
from reliq_api.ui.render import page, redirect

router = APIRouter(route_class=Page, prefix="/jobs")

SECTION = {"jobs": "Jobs"}

_SHOWN = 50  #: jobs that have ended

NOTICES = {
    "aborted": "The job is aborted. Its staged messages are deleted.",
    "decided_before": "The job was decided before: nothing has changed.",
}


@router.get("")
async def jobs(request: Request, who: Viewer) -> Response:
    store = reliq_of(request).store
    queues = [queue for queue in await store.run(every_queue()) if who.may_see(queue)]
    found = await store.run(read_jobs(queues, several=_may_abort(who, "")))
    rows = [(one, one.state == ABORTABLE and _may_abort(who, one.queue)) for one in found]
    ended = (await store.run(read_ended(queues, several=_may_abort(who, ""))))[:_SHOWN]
    return page(request, "jobs.html", jobs=rows, ended=[(queue, one, counts_of(one)) for queue, one in ended])


@router.post("/abort")
async def abort(request: Request, who: Viewer, fields: Form) -> Response:
    given = dict(fields)
    queue, name = given.get("queue", "").strip(), given.get("job", "").strip()
    if queue and not who.may_see(queue):
        raise HTTPException(404, "There is no queue of this name.")
    if not _may_abort(who, queue):
        raise HTTPException(403, "This needs a key with the scope operate for the queues of the job.")
    try:
        aborted = await reliq_of(request).store.run(abort_job(check_name(queue) if queue else "", name))
    except InvalidName as error:
        raise HTTPException(400, str(error)) from None
    return redirect(request, "jobs", notice="aborted" if aborted else "decided_before")


def _may_abort(who: Access, queue: str) -> bool:
    """Whether the viewer may abort jobs of this queue; only a viewer with all rights those of several queues."""
    return who.may_operate(queue) if queue else who.key is None
