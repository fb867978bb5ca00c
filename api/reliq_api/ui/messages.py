"""The pages about single messages: send, edit a dead one."""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRouter

from reliq.aio.queue import Queue
from reliq.contract import kinds
from reliq.contract.options import BY_NAME, FORM, options_of
from reliq.errors import InvalidMessage, InvalidSetting
from reliq.model.dead_letter import DeadLetter
from reliq.protocol.edited_redrive import redrive_edited, why_not_editable
from reliq_api.enqueue.entries import refuse_reserved
from reliq_api.ui.access import Sendable, homes_of, reliq_of
from reliq_api.ui.dead_pages import existing_letter
from reliq_api.ui.guard import Form, Page
from reliq_api.ui.render import page, redirect

router = APIRouter(route_class=Page)

#: The options that are fields of their own; headers have an area for lines.
OPTIONS = tuple(one for one in options_of(FORM) if not isinstance(one.kind, kinds.Headers))


# --- send ---


@router.get("/queues/{name}/send")
async def ask_send(request: Request, queue: Sendable) -> Response:
    return _send_page(request, queue, {}, {})


def _send_page(request: Request, queue: Queue, given: Mapping[str, str], faults: Mapping[str, str]) -> Response:
    values = {name: given.get(name, "") for name in ("body", "headers", *(one.name for one in OPTIONS))}
    return page(
        request, "send.html", status=422 if faults else 200, queue=queue.name, values=values, faults=dict(faults),
        options=OPTIONS,
    )  # fmt: skip


@router.post("/queues/{name}/send")
async def send(request: Request, queue: Sendable, fields: Form) -> Response:
    given = {name: value for name, value in fields if value.strip()}
    options: Any = {one.name: one.kind.typed(given[one.name].strip()) for one in OPTIONS if one.name in given}
    try:
        headers = _headers(given.get("headers", ""))
        refuse_reserved(headers)
        sent = await queue.send(_text(given.get("body", "")), headers=headers, **options)
    except (InvalidMessage, InvalidSetting) as error:
        return _send_page(request, queue, given, {_field_of(str(error)): str(error)})
    request.state.form = [*fields, ("sent", sent)]
    return redirect(request, "queues", queue.name, "message", id=sent, notice="sent")


def _field_of(fault: str) -> str:
    """Return the field of the form that an error is about, by the word for it at the start of the error."""
    word = fault.removeprefix("message ").partition(" ")[0]
    if fault.startswith(("the header", "headers")):
        return "headers"
    return word if word in BY_NAME else "body"


def _text(text: str) -> str:
    """Return a text as it was typed: a browser sends each end of a line as two characters."""
    return text.replace("\r\n", "\n")


def _headers(text: str) -> dict[str, str]:
    """Read a header from each line, `name: value`; raises InvalidMessage."""
    headers = {}
    for line in text.splitlines():
        if line.strip():
            name, colon, value = line.partition(":")
            if not colon or not name.strip():
                raise InvalidMessage(f"the header line {line.strip()[:100]!r} has no colon: write name: value")
            headers[name.strip()] = value.strip()
    return headers


# --- edit a dead letter ---


@router.get("/queues/{name}/dead/edit")
async def ask_edit(request: Request, queue: Sendable, id: str) -> Response:
    letter = await existing_letter(queue.dead.get(id))
    reason = _why_not(letter)
    body = "" if reason else letter.body.decode()
    return _edit_page(request, queue, letter, body, _lines(letter.headers), {}, reason)


def _edit_page(
    request: Request, queue: Queue, letter: DeadLetter, body: str, headers: str, faults: Mapping[str, str], reason: str
) -> Response:
    values = {"body": body, "headers": headers}
    return page(
        request, "edit.html", status=422 if faults else 200, queue=queue.name, letter=letter, values=values,
        faults=dict(faults), reason=reason,
    )  # fmt: skip


def _why_not(letter: DeadLetter) -> str:
    """Return why the page cannot edit a letter; empty if it can."""
    if reason := why_not_editable(letter):
        return reason
    try:
        written = _headers(_lines(letter.headers)) == letter.headers
    except InvalidMessage:
        written = False
    return "" if written else "Its headers have line ends, or names with colons, which this form cannot write."


def _lines(headers: Mapping[str, str]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in headers.items())


@router.post("/queues/{name}/dead/edit")
async def edit(request: Request, queue: Sendable, fields: Form) -> Response:
    given = dict(fields)
    letter = await existing_letter(queue.dead.get(given.get("id", "")))
    if given.get("tag") != letter.tag:
        raise HTTPException(409, "Nothing was changed: it was redriven and died again since the page was read.")
    body, headers = given.get("body", ""), given.get("headers", "")
    if reason := _why_not(letter):
        return _edit_page(request, queue, letter, "", "", {"body": reason}, reason)
    edited = (body if b"\r\n" in letter.body else _text(body)).encode()
    try:
        refuse_reserved(_headers(headers), letter.headers)
        homes, most = homes_of(request, queue.name), reliq_of(request).max_body
        steps = homes.each(lambda keys: redrive_edited(keys, letter, edited, _headers(headers), most))
        moved = any(await reliq_of(request).store.run(steps))
    except InvalidMessage as error:
        return _edit_page(request, queue, letter, body, headers, {_field_of(str(error)): str(error)}, "")
    if not moved:
        raise HTTPException(409, "Nothing was changed: the message is not a dead letter any more.")
    request.state.form = [*fields, ("changed", _changes(letter, edited, headers))]
    return redirect(request, "queues", queue.name, "message", id=letter.id, notice="edited")


def _changes(letter: DeadLetter, body: bytes, headers: str) -> str:
    changed: Sequence[str] = [
        name
        for name, differs in (("body", body != letter.body), ("headers", _headers(headers) != letter.headers))
        if differs
    ]
    return " and ".join(changed) or "nothing"
