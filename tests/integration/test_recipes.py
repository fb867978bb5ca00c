"""The recipes of docs/concepts/architecture.md that need a Redis, followed in a copy."""

import pytest

from tests.support.recipes import Copy

OUTCOME = """
    Outcome(
        "snoozed", "its handler is tired", (_D.DELAYED,), PASSED, no_verb="a client is not tired",
    ),
    Outcome(DEAD_LETTERED,"""

OUTCOME_COUNTER = """
    Counter("snoozed", "messages whose handler was tired", "reliq_messages_snoozed", event=STAYS),
    Counter(
        "reclaimed","""

OUTCOME_MOVE = '''

def snoozed(message: Message) -> Move:
    """Move a message back for a minute."""
    return Move(message.element, Destination.DELAYED, Counter.SNOOZED, message.id, message.again(), 60.0)


def released('''

OUTCOME_IS_THERE = """
import reliq
from reliq import Message, ops
from reliq.model.keys import QueueKeys
from reliq.observability.queue_metrics import of_queues
from reliq.protocol.outcomes import snoozed
from reliq.worker.flow_control import _PASSED
from tools.site.reference import PAGES

app = reliq.Reliq({url!r})
queue = app.queue("tired")
queue.configure(history="1h")
identity = queue.send("x")
keys = QueueKeys("tired")
app.store.call(ops.register(keys, "w", 60.0))
(element,) = app.store.call(ops.claim(keys, "w", 60.0, 1)).elements
app.store.call(ops.settle(keys, "w", 60.0, [], [snoozed(Message.decode("tired", element))]))
assert (queue.stats().delayed, queue.stats().counters["snoozed"]) == (1, 1)
assert [one.name for one in queue.find(identity).history] == ["enqueued", "claimed", "snoozed"]
assert "reliq_messages_snoozed" in {{one.name for one in of_queues([queue.stats()])}}
assert "snoozed" in _PASSED and "| `snoozed` | its handler is tired |" in PAGES["reference/outcomes.md"]()
"""

ENDPOINT = '''"""The moods of queues."""

from fastapi import Request
from pydantic import BaseModel, Field

from reliq_api.http.route import call_router, needs

router = call_router("moods")


class Moods(BaseModel):
    moods: list[str] = Field(description="How the queues feel.")


@router.get("/moods", summary="Moods", **needs("metrics"))
async def list_moods(request: Request) -> Moods:
    """How the queues feel."""
    return Moods(moods=["fine"])
'''

PAGE = '''"""The page about moods."""

from fastapi import Request, Response
from fastapi.routing import APIRouter

from reliq_api.ui.access import Viewer
from reliq_api.ui.guard import Page
from reliq_api.ui.render import page

router = APIRouter(route_class=Page, prefix="/moods")
SECTION = {"moods": "Moods"}


@router.get("")
async def moods(request: Request, who: Viewer) -> Response:
    """Show them."""
    return page(request, "moods.html")
'''

TEMPLATE = """{% extends "base.html" %}
{% block title %}Moods{% endblock %}
{% block main %}<h1>All queues are fine</h1>{% endblock %}
"""

ENDPOINT_IS_THERE = """
from starlette.testclient import TestClient
from reliq_api.app import create_app
from reliq_api.settings import Settings
from tools.site.reference import PAGES

app = create_app(Settings(url={url!r}, no_auth=True))
with TestClient(app, "http://localhost", client=("127.0.0.1", 1)) as client:
    assert client.get("/v1/moods").json() == {{"moods": ["fine"]}}
    page = client.get("/moods").text
    assert "All queues are fine" in page and '<a class="to" href="/moods">Moods</a>' in page
    assert "/v1/moods" in client.get("/metrics").text
operation = app.openapi()["paths"]["/v1/moods"]["get"]
assert (operation["operationId"], operation["x-scope"]) == ("list_moods", "metrics")
assert "## `GET /v1/moods`" in PAGES["reference/http-api.md"]()
"""


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path)


def test_an_outcome_is_an_entry_its_counter_and_its_move(copy, url):
    copy.edit("reliq/contract/outcomes.py", "\n    Outcome(DEAD_LETTERED,", OUTCOME)
    copy.edit("reliq/contract/counters.py", '\n    Counter(\n        "reclaimed",', OUTCOME_COUNTER)
    copy.edit("reliq/protocol/outcomes.py", "\n\ndef released(", OUTCOME_MOVE)
    copy.generate("contract")
    copy.run("-c", OUTCOME_IS_THERE.format(url=url))


def test_an_endpoint_with_its_page_is_two_modules_and_a_template(copy, url):
    copy.write("api/reliq_api/routes/moods.py", ENDPOINT)
    copy.write("api/reliq_api/ui/moods.py", PAGE)
    copy.write("api/reliq_api/ui/templates/moods.html", TEMPLATE)
    copy.run("-c", ENDPOINT_IS_THERE.format(url=url))
