"""Templates, and the format of numbers and times in them."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup, escape

from reliq import features
from reliq._version import __version__
from reliq.model import error_text
from reliq.model.element import Failure
from reliq.runtime.logging import printable
from reliq.runtime.looking import Missing, missing_now
from reliq.runtime.tracing import is_traceparent
from reliq_api.ui.assets import VERSION
from reliq_api.ui.bodies import shown

_FOLDERS = [Path(__file__).with_name("templates"), *Path(features.__file__).parent.glob("*/templates")]
#: By name, read with this module: the service keeps its pages when another version is installed over it.
_TEMPLATES = {file.name: file.read_text(encoding="utf-8") for folder in _FOLDERS for file in folder.glob("*.html")}
_UNITS = ((1e3, "k"), (1e6, "M"), (1e9, "G"))
_AGES = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


def compact(value: float) -> str:
    """Format a number with at most four digits: 950, 12.3k, 4.56M."""
    if value < 10_000:
        return f"{value:,.0f}"
    divisor, unit = next(pair for pair in _UNITS if value < 1000 * pair[0] or pair[0] == _UNITS[-1][0])
    scaled = value / divisor
    return f"{scaled:.3g}{unit}" if scaled < 100 else f"{scaled:.0f}{unit}"


def rate(value: float) -> str:
    """Format messages per second."""
    return f"{value:.1f}" if value < 10 and value % 1 else compact(value)


def duration(seconds: float) -> str:
    """Format a duration in its two largest units: 45 s, 3 min 20 s, 2 d 4 h."""
    if seconds < 1:
        return "0 s" if seconds <= 0 else "<1 s"
    parts = []
    for size, unit in _AGES:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count:.0f} {unit}")
        elif parts:
            break
    return " ".join(parts[:2])


def in_unit(value: float, unit: str) -> str:
    match unit:
        case "seconds":
            return duration(value)
        case "messages/s":
            return rate(value)
        case _:
            return compact(value)


def ago(milliseconds: int) -> str:
    return f"{duration(max(0.0, time.time() - milliseconds / 1000))} ago"


def until(milliseconds: int) -> str:
    """Format the time from now, or that it has come."""
    left = milliseconds / 1000 - time.time()
    return f"in {duration(left)}" if left > 0 else "due"


def utc(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return "an impossible time"


def size(count: int) -> str:
    if count < 1024:
        return f"{count} B"
    return f"{count / 1024:.1f} KiB" if count < 1024 * 1024 else f"{count / 1024 / 1024:.1f} MiB"


def plural(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def short_class(name: str) -> str:
    """Return the name of a class without its module."""
    return name.rpartition(".")[2]


def gist(failure: Failure) -> str:
    """Return the first line of what an error says, without its class, which is shown beside it."""
    return error_text.gist(failure)[:300]


def trace_id(headers: Mapping[str, str]) -> str:
    """Return the id of the trace that a message belongs to; empty without a valid `traceparent`."""
    text = headers.get("traceparent", "")
    return text.split("-")[1] if is_traceparent(text) else ""


def _legible(value: Any) -> Any:
    """Return a value as a page shows it; characters that reverse the text or are invisible are escaped."""
    return printable(value, lines=True) if isinstance(value, str) and not isinstance(value, Markup) else value


_environment = Environment(
    loader=DictLoader(_TEMPLATES),
    autoescape=True,
    finalize=_legible,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters |= {
    "ago": ago, "compact": compact, "duration": duration, "exact": escape, "gist": gist, "in_unit": in_unit,
    "plural": plural, "rate": rate, "segment": lambda text: quote(text, safe=""), "short_class": short_class,
    "shown": shown, "size": size, "trace_id": trace_id, "until": until, "utc": utc,
}  # fmt: skip

SECTIONS: dict[str, str] = {}  #: in the bar of all pages: path and title; `router` enters them
PAGES: set[str] = set()  #: the paths that there are, entered likewise: without a slice some are not
_environment.globals["pages"] = PAGES

NOTICES = {
    "paused": "The queue is paused: no message starts, sends continue.",
    "breaker-open": "The breaker is open for an hour: no message starts, sends continue.",
    "breaker-closed": "The breaker is closed: messages start again.",
    "resumed": "The queue is resumed.",
    "configured": "The policy is saved.",
    "bound": "The queue is bound.",
    "bound_before": "The queue was bound to this pattern before.",
    "unbound": "The binding is removed. The queue keeps the messages that it has.",
    "unbound_before": "There was no such binding.",
    "cancel-cancelled": "The message is cancelled: it never runs.",
    "cancel-told": "Its consumer is told with its next heartbeat.",
    "cancel-done": "Nothing to cancel: the message has ended.",
    "cancel-unknown": "Nothing to cancel: the message is not in the queue any more.",
    "sent": "The message is sent.",
    "edited": "The edited message is back in the queue.",
    "hastened": "Messages that run now: {count}.",
    "cancelled": "Messages cancelled: {count}.",
    "purged": "Messages deleted: {count}.",
    "deleted": "Dead letters deleted: {count}.",
}


def redirect(request: Request, *path: str, **query: object) -> RedirectResponse:
    """Answer 303, so that a reload of the page repeats nothing. `path`: the names in the address of the page."""
    names = "".join(f"/{quote(name, safe='')}" for name in path)
    asked = f"?{urlencode(query)}" if query else ""
    return RedirectResponse(f"{_base(request)}{names}{asked}", status_code=303)


def _base(request: Request) -> str:
    """Return the path of the service behind a proxy that removes a prefix."""
    base: str = request.scope.get("root_path", "").rstrip("/")
    return base


def page(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Render a page."""
    base = _base(request)
    text = _environment.get_template(template).render(
        base=base,
        assets=f"{base}/assets/{VERSION}",
        sections=SECTIONS,
        version=__version__,
        notice=_notice(request),
        status=status,
        missing=(missing_now() or Missing()).lines(),
        **values,
    )
    return HTMLResponse(text, status)


def _notice(request: Request) -> str:
    count = request.query_params.get("count", "")
    text = NOTICES.get(request.query_params.get("notice", ""), "")
    return text.format(count=f"{int(count):,}" if count.isascii() and count.isdigit() and len(count) < 16 else "some")
