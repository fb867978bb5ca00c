"""Rules for all pages: security headers, errors as pages, forms of a bounded size.

A message's body, headers and error text are untrusted. Jinja escapes them; the policy below is the second
line, for the day on which an escape is missing: no script, style or request that is not a file of this package.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from reliq.errors import ReliqError
from reliq.runtime.looking import looking
from reliq_api.http.problems import of_request
from reliq_api.http.requests import BoundedRequest
from reliq_api.ui import audit
from reliq_api.ui.render import page

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # "no-referrer" would make the Origin of our own forms "null"
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_FORM_LARGEST = 64 * 1024

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class Page(APIRoute):
    """A route of the dashboard."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            with looking():
                return await answered(request)

        async def answered(request: Request) -> Response:
            try:
                response = await handle(request)
                if request.method == "POST" and response.status_code == HTTPStatus.SEE_OTHER:
                    audit.note(request, getattr(request.state, "form", ()))
            except RequestValidationError:
                response = _failed(request, 400, "The address or the form holds a value that cannot be read.")
            except HTTPException as error:
                response = _failed(request, error.status_code, error.detail, error.headers)
            except ReliqError as error:
                problem = of_request(error, request)
                response = _failed(request, problem.status_code, problem.detail, problem.headers)
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
            return response

        return guarded


def _failed(request: Request, status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    response = page(request, "error.html", status=status, title=HTTPStatus(status).phrase, detail=detail)
    response.headers.update(headers or {})
    return response


def wrong_name(name: str, fields: Sequence[tuple[str, str]]) -> str | None:
    """Return what was typed as confirmation if it is not the name that has to be typed; else None."""
    typed = dict(fields).get("confirm", "").strip()
    return None if typed == name else typed


async def form(request: Request) -> list[tuple[str, str]]:
    """The fields of a posted form."""
    state = request.app.state
    bounded = BoundedRequest(request.scope, request.receive, state.buffered, state.settings.body_timeout)
    bounded.allow(_FORM_LARGEST)
    try:
        fields = parse_qsl((await bounded.take()).decode(), keep_blank_values=True, max_num_fields=2000)
        request.state.form = fields
        return fields
    except ValueError:
        raise HTTPException(400, "The form cannot be read.") from None
    finally:
        bounded.release()


Form = Annotated[list[tuple[str, str]], Depends(form)]
