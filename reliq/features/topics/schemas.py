"""Topics and their bindings."""

from typing import Annotated

from pydantic import BaseModel, Field

from reliq.errors import InvalidName
from reliq.features.topics.routing import check_pattern, check_routing_key
from reliq_api.http.faults import worded_by
from reliq_api.schemas.base import MessageId, QueueName


def check_key(text: str) -> None:
    """Raise InvalidName for what is no routing key, or none that the path of a request can contain."""
    _check_path(check_routing_key(text))


def _check_pattern(text: str) -> None:
    _check_path(check_pattern(text))


def _check_path(text: str) -> None:
    if "/" in text or "\ufffd" in text:
        raise InvalidName(f"{text!r}: over HTTP without a slash, and of valid UTF-8")


# As paths can contain them: without a slash, of valid Unicode. The library also takes others.
KEY = worded_by(check_key, r"^[^\s./#*\ufffd]+(\.[^\s./#*\ufffd]+)*$")
_PATTERN = worded_by(_check_pattern, r"^([^\s./#*\ufffd]+|\*|#)(\.([^\s./#*\ufffd]+|\*|#))*$")
RoutingKey = Annotated[str, Field(pattern=KEY, max_length=255, examples=["order.created.eu"])]
Pattern = Annotated[str, Field(pattern=_PATTERN, max_length=255, examples=["order.created.*"])]


class Published(BaseModel):
    queues: dict[str, MessageId] = Field(
        description="The id of the message, by queue it is in.",
        examples=[{"mailer": "019aa4c2-7b1e-7c55-9d0e-3f0a7c5e1b2d"}],
    )


class TopicBinding(BaseModel):
    queue: QueueName
    pattern: str = Field(description="`*` is one word, `#` any number of words.", examples=["order.created.*"])


class BindingChanged(TopicBinding):
    changed: bool = Field(description="false: nothing changed.")


class TopicList(BaseModel):
    bindings: list[TopicBinding]
    alternate: str | None = Field(description="The queue for messages that match no pattern; null: none.")
    unroutable: int = Field(description="How many messages matched no queue.")


class TopicMatch(BaseModel):
    routing_key: str
    queues: list[str] = Field(description="The queues to which the key has rights.", examples=[["mailer"]])
    alternate: str | None = Field(description="The queue that gets the message because no pattern matches.")
