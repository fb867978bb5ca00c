"""The query protocol: the action and its parameters in a form or in the address, answers as XML."""

import base64
import re
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from reliq_sqs.errors import NO_QUEUE, SqsError, invalid_value
from reliq_sqs.message_attributes import without_not_xml
from reliq_sqs.model import NAMESPACE, Action, Shape, actions

MEDIA_TYPE = "text/xml"

_FIELDS_MOST = 1000  #: a batch of ten messages with ten attributes each has about 500
_ESCAPES = {"\r": "&#xD;", '"': "&quot;"}
_NO_QUEUE = "The specified queue does not exist for this wsdl version."
_BOOLEANS = {"true": True, "false": False}
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)

#: Members that are ignored beside an older one that says the same.
_NEWER = {"MessageSystemAttributeNames": "AttributeNames"}

Tree = dict[str, Any]  #: the parts of names between dots; leaves are texts


def fields(text: bytes | str) -> list[tuple[str, str]]:
    """Return the fields of a form or of a query string; raises SqsError."""
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
        return parse_qsl(decoded, keep_blank_values=True, max_num_fields=_FIELDS_MOST, errors="strict")
    except ValueError:  # also of bytes that are not UTF-8
        raise SqsError("MalformedQueryString", "The request is not a form in UTF-8, or has too many fields.") from None


def action_of(name: str) -> Action:
    """Return the action that a field names; raises SqsError."""
    action = actions().get(name)
    if action is None:
        raise no_action(name)
    return action


def no_action(name: str) -> SqsError:
    return SqsError("InvalidAction", f"The action {name[:100]} is not valid for this endpoint.")


def parameters(action: Action, given: list[tuple[str, str]]) -> dict[str, Any]:
    """Return the parameters in the form of the model; raises SqsError. Unknown fields are ignored."""
    found = _structure(action.takes, _tree(given))
    for newer, older in _NEWER.items():
        if older in found:
            found.pop(newer, None)
    return found


def _tree(given: list[tuple[str, str]]) -> Tree:
    root: Tree = {}
    for name, value in given:
        *parents, leaf = name.split(".", 8)
        node = root
        for part in parents:
            below = node.setdefault(part, {})
            if not isinstance(below, dict):
                below = node[part] = {}
            node = below
        node[leaf] = value
    return root


def _structure(shape: Shape, tree: Tree) -> dict[str, Any]:
    found = {}
    for name, member in shape.members.items():
        value = _member(name, member, tree)
        if value is not None:
            found[name] = value
    return found


def _member(name: str, shape: Shape, tree: Tree) -> Any:
    """Return the value of one member, or None. Lists and maps have the old names of SQS, or those of the model."""
    if shape.kind not in ("list", "map"):
        return _leaf(name, shape, tree[name]) if name in tree else None
    for called in dict.fromkeys((shape.element, name, name.removesuffix("s"))):
        if called in tree:
            given = tree[called]
            if shape.kind == "list":
                return [_leaf(name, shape.of, one) for one in _elements(given)]
            alone = isinstance(given, dict) and isinstance(given.get(shape.pair[0]), str)  # without a number
            return _map(name, shape, [given] if alone else _elements(given))
    return None


def _map(name: str, shape: Shape, elements: list[Any]) -> dict[str, Any]:
    found = {}
    for one in elements:
        if not isinstance(one, dict):
            raise SqsError("MalformedQueryString", f"{name} has an element without a name.")
        key, value = (one.get(part, one.get(part.lower())) for part in shape.pair)
        if "Key" in one and shape.pair[0] == "Name":
            key = one["Key"]
        if isinstance(key, str):
            found[key] = _leaf(name, shape.of, "" if value is None else value)
    return found


def _elements(node: Any) -> list[Any]:
    """Return the elements of a list in the order of their numbers; SDKs write an empty one as an empty text."""
    if not isinstance(node, dict):
        return [node] if node else []  # a single one without a number
    for wrapper in ("member", "entry"):
        if wrapper in node:
            return _elements(node[wrapper])
    numbered = [(int(place), one) for place, one in node.items() if place.isascii() and place.isdigit()]
    return [one for _, one in sorted(numbered, key=lambda pair: pair[0])]


def _leaf(name: str, shape: Shape, value: Any) -> Any:
    if shape.kind == "structure":
        return _structure(shape, value if isinstance(value, dict) else {})
    if not isinstance(value, str):
        raise SqsError("MalformedQueryString", f"{name} has parts, but it is one value.")
    match shape.kind:
        case "integer" | "long":
            if _NUMBER.fullmatch(value) is None:
                raise invalid_value(value[:100], name, "Must be an integer.")
            return int(value)
        case "boolean":
            if value.lower() not in _BOOLEANS:
                raise invalid_value(value[:100], name, "Must be true or false.")
            return _BOOLEANS[value.lower()]
    return value


def answer(action: Action, result: dict[str, Any], request_id: str) -> bytes:
    """Write a result as XML."""
    name = action.name
    inside = ""
    if action.returns is not None:
        written = _written(action.returns, result)
        inside = f"<{name}Result>{written}</{name}Result>" if written else f"<{name}Result/>"
    return (
        f'<?xml version="1.0"?><{name}Response xmlns="{NAMESPACE}">{inside}'
        f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata></{name}Response>"
    ).encode()


def error_answer(error: SqsError, request_id: str) -> tuple[bytes, dict[str, str]]:
    """Return the body, XML, and the headers of an error."""
    if error.name == "UnknownOperationException":
        return b"<UnknownOperationException/>\n", {}
    body = (
        f'<?xml version="1.0"?><ErrorResponse xmlns="{NAMESPACE}"><Error><Type>{error.fault}</Type>'
        f"<Code>{escape(error.code)}</Code><Message>{_text(message_of(error))}</Message><Detail/></Error>"
        f"<RequestId>{request_id}</RequestId></ErrorResponse>"
    )
    return body.encode(), {}


def message_of(error: SqsError) -> str:
    """Return the text of an error, which for one of them is that of an earlier version of the API."""
    return _NO_QUEUE if error.message == NO_QUEUE else error.message


def _written(shape: Shape, value: dict[str, Any]) -> str:
    return "".join(_tag(name, shape.members[name], one) for name, one in value.items())


def _tag(name: str, shape: Shape, value: Any) -> str:
    match shape.kind:
        case "list":
            return "".join(_tag(shape.element, shape.of, one) for one in value)
        case "map":
            key, content = shape.pair
            return "".join(
                f"<{shape.element}><{key}>{_text(one)}</{key}>{_tag(content, shape.of, of)}</{shape.element}>"
                for one, of in value.items()
            )
        case "structure":
            return f"<{name}>{_written(shape, value)}</{name}>"
        case "boolean":
            return f"<{name}>{str(value).lower()}</{name}>"
        case "blob":
            return f"<{name}>{base64.b64encode(value).decode()}</{name}>"
    return f"<{name}>{_text(str(value))}</{name}>"


def _text(value: str) -> str:
    return escape(without_not_xml(value), _ESCAPES)  # an error may repeat a name or value that XML cannot hold
