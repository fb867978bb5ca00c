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
    document = Loader().load_service_model("sqs", "service-2")
    made: dict[str, Shape] = {}
    nothing = Shape("Nothing", "structure")

    def shape(name: str) -> Shape:
        if name not in made:
            made[name] = one = Shape(name, document["shapes"][name]["type"])
            _fill(one, document["shapes"][name], shape)
        return made[name]

    found = {}
    for name, told in document["operations"].items():
        takes = shape(told["input"]["shape"]) if "input" in told else nothing
        found[name] = Action(name, takes, shape(told["output"]["shape"]) if "output" in told else None)
    return found


def _fill(one: Shape, told: dict[str, Any], shape: Any) -> None:
    one.members = {name: shape(member["shape"]) for name, member in told.get("members", {}).items()}
    one.required = tuple(told.get("required", ()))
    if one.kind == "list":
        one.member = shape(told["member"]["shape"])
    elif one.kind == "map":
        one.member = shape(told["value"]["shape"])


@cache
def words(shape: str) -> frozenset[str]:
    """Return the values that a shape of words has, such as QueueAttributeName."""
    return frozenset(Loader().load_service_model("sqs", "service-2")["shapes"][shape]["enum"])


@cache
def modelled_errors() -> frozenset[str]:
    """Return the names of all errors of the model."""
    shapes = Loader().load_service_model("sqs", "service-2")["shapes"]
    return frozenset(name for name, told in shapes.items() if told.get("exception"))
