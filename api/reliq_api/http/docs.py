"""Additions to FastAPI's OpenAPI document: bodies that are not JSON, headers, and the errors of each call."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from reliq.runtime.pieces import grouped
from reliq_api import schemas
from reliq_api.enqueue import cloudevents
from reliq_api.http.problems import CODES, MEDIA_TYPE

_EVERYWHERE = ("invalid_header", "unauthorized", "forbidden", "queue_not_found", "invalid_request", "rate_limited",
               "headers_too_large", "internal_error", "redis_unavailable", "memory_pressure",
               "request_timeout")  # fmt: skip
_REF = "#/components/schemas/"
EVENT = {"$ref": _REF + "CloudEvent"}


def failures(*codes: str) -> dict[int | str, dict[str, Any]]:
    """Return the error answers of a call: the common ones and these."""
    by_status = grouped((CODES[code].status, code) for code in (*_EVERYWHERE, *codes))
    return {
        status: {
            "description": ", ".join(sorted(set(names))),
            "content": {MEDIA_TYPE: {"schema": {"$ref": _REF + "ProblemDetails"}}},
        }
        for status, names in by_status.items()
    }


def header(name: str, description: str, **schema: Any) -> dict[str, Any]:
    schema = {"type": "string", **schema}
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}


def body_of(forms: dict[str, Any]) -> dict[str, Any]:
    """Describe a request body by content type: a model, a schema, or None for any bytes."""
    content: dict[str, Any] = {}
    for media, form in forms.items():
        if form is None:
            schema: dict[str, Any] = {"type": "string", "format": "binary"}
        elif isinstance(form, dict):
            schema = form
        else:
            schema = {"$ref": _REF + form.__name__}
        content[media] = {"schema": schema}
    return {"required": True, "content": content}


def install(app: FastAPI) -> None:
    """Make /openapi.json contain the additions."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    components = document.setdefault("components", {})
    known = components.setdefault("schemas", {})
    for model in (schemas.NewMessage, schemas.ProblemDetails):
        schema = model.model_json_schema(ref_template=_REF + "{model}")
        known.update(schema.pop("$defs", {}))
        known[model.__name__] = schema
    known["CloudEvent"] = cloudevents.SCHEMA
    for unused in ("HTTPValidationError", "ValidationError"):
        known.pop(unused, None)
    components["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "An API key, id.secret"}
    }
    return document
