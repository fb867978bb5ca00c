"""The service model of SQS, as botocore has it: the shapes of all actions, from which parsing and answers follow."""

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from botocore.loaders import Loader

NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
TARGET_PREFIX = "AmazonSQS."

#: How lists and maps are called in the query protocol, whose names botocore's model does not tell any more. Lists that
#: are not named here have the name of their shape without "List".
_QUERY_NAMES = {
    "MessageSystemAttributeList": "MessageSystemAttributeName",
    "QueueAttributeMap": "Attribute",
    "MessageSystemAttributeMap": "Attribute",
    "MessageBodyAttributeMap": "MessageAttribute",
    "MessageBodySystemAttributeMap": "MessageSystemAttribute",
    "TagMap": "Tag",
}


@dataclass(slots=True, eq=False)
class Shape:
    """The shape of a value."""

    name: str
    kind: str  #: string, integer, long, boolean, blob, list, map or structure
    members: dict[str, "Shape"] = field(default_factory=dict)  #: of a structure
    required: tuple[str, ...] = ()
    member: "Shape | None" = None  #: of a list; the values of a map

    @property
    def of(self) -> "Shape":
        """The shape of the elements of a list, or of the values of a map."""
        assert self.member is not None  # noqa: S101  only lists and maps are asked
        return self.member

    @property
    def element(self) -> str:
        """The name of one element in the query protocol."""
        return _QUERY_NAMES.get(self.name) or self.name.removesuffix("List")

    @property
    def pair(self) -> tuple[str, str]:
        """How a map's keys and values are called in the query protocol."""
        return ("Key", "Value") if self.name == "TagMap" else ("Name", "Value")


@dataclass(frozen=True, slots=True)
class Action:
    """One action of the service."""

    name: str
    takes: Shape
    returns: Shape | None


@cache
def actions() -> dict[str, Action]:
    """Return all actions by name."""
    nothing = Shape("Nothing", "structure")
    found = {}
    for name, operation in _document()["operations"].items():
        takes = shapes()[operation["input"]["shape"]] if "input" in operation else nothing
        returns = shapes()[operation["output"]["shape"]] if "output" in operation else None
        found[name] = Action(name, takes, returns)
    return found


@cache
def shapes() -> dict[str, Shape]:
    """Return all shapes by name."""
    described = _document()["shapes"]
    made = {name: Shape(name, one["type"]) for name, one in described.items()}
    for name, one in described.items():
        shape = made[name]
        shape.members = {called: made[member["shape"]] for called, member in one.get("members", {}).items()}
        shape.required = tuple(one.get("required", ()))
        if shape.kind in ("list", "map"):
            shape.member = made[one["member" if shape.kind == "list" else "value"]["shape"]]
    return made


@cache
def words(shape: str) -> frozenset[str]:
    """Return the values that a shape of words has, such as QueueAttributeName."""
    return frozenset(_document()["shapes"][shape]["enum"])


@cache
def modelled_errors() -> frozenset[str]:
    """Return the names of all errors of the model."""
    return frozenset(name for name, shape in _document()["shapes"].items() if shape.get("exception"))


@cache
def _document() -> Any:
    return Loader().load_service_model("sqs", "service-2")
