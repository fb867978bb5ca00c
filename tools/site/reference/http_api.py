"""The HTTP calls: every operation of the OpenAPI document."""

from collections.abc import Iterator
from typing import Any

from reliq_api.app import create_app

_HEAD = """# HTTP calls

Made from the OpenAPI document, which a running service has at `/openapi.json`. How the calls are used:
[the HTTP service](../how-to/http.md). Errors are `application/problem+json` with a `code`:
[all codes](errors.md#over-http).
"""


def page() -> str:
    """Return the page with all calls."""
    document = create_app().openapi()
    return _HEAD + "".join(
        part
        for path, calls in document["paths"].items()
        for method, call in calls.items()
        for part in _call(path, method, call, document)
    )


def _call(path: str, method: str, call: dict[str, Any], document: dict[str, Any]) -> Iterator[str]:
    yield f"\n## `{method.upper()} {path}`\n\n"
    yield f"{call.get('description') or call.get('summary', '')}\n\n"
    if scope := call.get("x-scope"):
        scopes = " and ".join(f"`{one}`" for one in (scope, *call.get("x-other-scopes", ())))
        yield f"Scope of the key: {scopes}.\n\n"
    if rows := [_parameter(one) for one in call.get("parameters", [])]:
        yield "\n".join(["| parameter | in | type | |", "|---|---|---|---|", *rows, "", ""])
    for media, content in call.get("requestBody", {}).get("content", {}).items():
        yield from _body(f"Request `{media}`", content.get("schema", {}), document)
    answers = [f"`{status}` {_line(answer.get('description', ''))}" for status, answer in call["responses"].items()]
    yield "Answers: " + "; ".join(answers) + ".\n"


def _parameter(one: dict[str, Any]) -> str:
    return f"| `{one['name']}` | {one['in']} | {_type(one.get('schema', {}))} | {_line(one.get('description', ''))} |"


def _body(title: str, schema: dict[str, Any], document: dict[str, Any]) -> Iterator[str]:
    schema = _resolved(schema, document)
    fields = schema.get("properties")
    if not fields:
        yield f"{title}: {_type(schema)}.\n\n"
        return
    yield f"{title}:\n\n| member | type | |\n|---|---|---|\n"
    for name, field in fields.items():
        yield f"| `{name}` | {_type(field)} | {_line(_resolved(field, document).get('description', ''))} |\n"
    yield "\n"


def _resolved(schema: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in schema[word]))
    if schema.get("type") == "array":
        return f"array of {_type(schema.get('items', {}))}"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    return str(schema.get("type", "any"))


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|").removesuffix(".")
