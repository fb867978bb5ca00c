"""All errors: exceptions of the library, codes of the HTTP service, reasons of dead letters."""

import inspect

from reliq import errors
from reliq_api.http.problems import _BY_ERROR, CODES

_HEAD = """# Errors

Each text says what was wrong, with the value, and what to do. No text quotes a body or a password.

## In Python

All are classes of `reliq`, below `reliq.ReliqError`. Those below `ValueError` are wrong arguments: nothing was sent,
and the same call fails again.

| class | below | meaning | over HTTP |
|---|---|---|---|
"""
_HTTP = """
## Over HTTP

The member `code` of a problem keeps its meaning for ever; `type` is `urn:reliq:problem:` and the code. *Retry-After*
says when to try again.

| code | status | title | Retry-After |
|---|---|---|---|
"""


def page() -> str:
    """Return the page with all errors."""
    rows = [_row(kind) for kind in exceptions()]
    codes = [f"| `{code}` | {kind.status} | {kind.title} | {kind.retry_after or ''} |" for code, kind in CODES.items()]
    return _HEAD + "\n".join(rows) + "\n" + _HTTP + "\n".join(codes) + "\n"


def exceptions() -> list[type[errors.ReliqError]]:
    """Return every class of error that the library raises, in the order of the module."""
    kinds = [one for one in vars(errors).values() if inspect.isclass(one) and issubclass(one, errors.ReliqError)]
    return sorted(kinds, key=lambda kind: inspect.getsourcelines(kind)[1])


def _row(kind: type[errors.ReliqError]) -> str:
    below = ", ".join(base.__name__ for base in kind.__bases__)
    text = " ".join((inspect.getdoc(kind) or "").split()).replace("|", r"\|")
    over_http = next((f"`{code}`" for base, code, _ in _BY_ERROR if issubclass(kind, base)), "")
    return f"| `{kind.__name__}` | {below} | {text} | {over_http} |"
