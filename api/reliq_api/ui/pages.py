"""The pages about queues."""

import time
from collections.abc import Iterable

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRouter

from reliq.aio.queue import Queue
from reliq.contract.counters import BY_NAME as COUNTERS
from reliq.contract.keywords import Config
from reliq.errors import ReliqError
from reliq.model.keys import logical_name
from reliq.model.stats import Stats
from reliq.protocol.partial_reads import QUEUES
from reliq.protocol.partition_progress import spread
from reliq.runtime.looking import Missing, note_missing, unseen
from reliq_api.access.auth import Access
from reliq_api.ui import reading, triage
from reliq_api.ui.access import Operated, Seen, Viewer, homes_of, reliq_of
from reliq_api.ui.assets import ASSETS, VERSION
from reliq_api.ui.charts import Chart, chart
from reliq_api.ui.guard import Page
from reliq_api.ui.redrives import redrives_of
from reliq_api.ui.render import page
from reliq_api.ui.sampler import COARSE, COARSE_EVERY, FINE, PERIOD, STALE, History, Sampler

router = APIRouter(route_class=Page)

SPANS = {"5m": FINE * PERIOD, "2h": COARSE * COARSE_EVERY * PERIOD}

PLOTS = (
    ("Throughput", "messages/s", ("into", "out")),
    ("Waiting and running", "messages", ("ready", "processing", "delayed")),
    ("Oldest ready message", "seconds", ("oldest",)),
    ("Retried, reclaimed or dead", "messages/s", ("failed",)),
)


def sampler_of(request: Request) -> Sampler:
    sampler: Sampler = request.app.state.ui_sampler
    return sampler


@router.get("/")
async def overview(request: Request, who: Viewer, q: str = "", state: str = "", sort: str = "trouble") -> Response:
    sampler = sampler_of(request)
    await sampler.refresh()
    histories = {name: one for name, one in sampler.histories.items() if who.may_see(name)}
    found = {name: one.latest for name, one in histories.items() if one.latest}
    sort = sort if sort in triage.ORDERS else "trouble"
    rows = [
        (
            one,
            triage.states(one),
            _sparkline(histories[one.queue], "into"),
            _sparkline(histories[one.queue], "out"),
            who.may_operate(one.queue),
        )
        for one in triage.chosen(found, q, state, sort)
    ]
    note_missing(_shown(sampler.missing, who))
    return page(
        request,
        "overview.html",
        rows=rows,
        totals=_totals(found.values()),
        flow=_flow(list(histories.values())),
        chosen={"q": q, "state": state, "sort": sort},
        states=triage.counts(found.values()),
        count=len(found),
        sampler=sampler,
        stale=sampler.age > STALE,
    )


def _shown(missing: Missing, who: Access) -> Missing:
    """Return what could not be read of the queues that the viewer may see; the sampler also reads other queues."""
    about = {what: logical_name(what.rpartition(" ")[2]) for what in missing if what != QUEUES}
    return Missing({what: one for what, one in missing.items() if what == QUEUES or who.may_see(about[what])})


def _sparkline(history: History, measure: str) -> Chart:
    return chart(history.column("at"), {measure: history.column(measure)}, SPANS["5m"], time.monotonic())


def _totals(found: Iterable[Stats]) -> dict[str, int]:
    every = list(found)
    return {name: sum(getattr(one, name) for one in every) for name in ("ready", "processing", "delayed", "dead")}


def _flow(histories: list[History]) -> Chart:
    """Plot all queues together. Each sample adds a row to every history, so the latest rows belong together."""
    times = max((one.column("at") for one in histories), key=len, default=[])
    sums = {measure: [0.0] * len(times) for measure in ("into", "out")}
    for measure, total in sums.items():
        for history in histories:
            column = history.column(measure)
            for place in range(1, len(column) + 1):
                total[-place] += column[-place]
    return chart(times, sums, SPANS["5m"], time.monotonic())


@router.get("/queues/{name}")
async def one_queue(request: Request, found: Seen, who: Viewer, span: str = "5m") -> Response:
    store, name, stats = reliq_of(request).store, found.name, await found.stats()
    sampler_of(request).note_look()
    homes, may_operate = homes_of(request, name), who.may_operate(name)
    span = span if span in SPANS else "5m"
    return page(
        request,
        "queue.html",
        queue=name,
        stats=stats,
        states=triage.states(stats),
        counters=COUNTERS,
        config=await seen_policy(found),
        spread=await store.run(spread(homes)),
        holders=await store.run(reading.holders(homes)),
        upcoming=await store.run(reading.next_messages(homes)) if may_operate else None,
        retries=await store.run(reading.retries(homes)) if may_operate else None,
        running_now=await store.run(reading.running_now(homes)) if may_operate else None,
        plots=_plots(sampler_of(request).histories.get(name) or History(), span),
        span=span,
        spans=list(SPANS),
        running=redrives_of(request).running(name),
        may_operate=may_operate,
        may_send=who.may_send(name),
    )


async def seen_policy(queue: Queue) -> Config | None:
    """Return the policy of a queue; None for an operator while the node that has it does not answer."""
    try:
        return await queue.config()
    except ReliqError as error:
        if not unseen(f"policy of queue {queue.name}", error):
            raise
        return None


def _plots(history: History, span: str) -> list[tuple[str, str, Chart]]:
    coarse = span == "2h"
    times, now = history.column("at", coarse), time.monotonic()
    return [
        (title, unit, chart(times, {one: history.column(one, coarse) for one in measures}, SPANS[span], now))
        for title, unit, measures in PLOTS
    ]


@router.get("/queues/{name}/purge")
async def ask_purge(request: Request, queue: Operated) -> Response:
    return page(request, "purge.html", queue=queue.name, stats=await queue.stats(), given=None)


@router.get("/assets/{version}/{name}")
async def asset(version: str, name: str) -> Response:
    found = ASSETS.get(name)
    if found is None:
        raise HTTPException(404, "There is no such file.")
    lasting = version == VERSION  # during an upgrade, a page of the other version may load it
    cache = "public, max-age=31536000, immutable" if lasting else "no-store"
    return Response(found.content, media_type=found.media_type, headers={"Cache-Control": cache})
