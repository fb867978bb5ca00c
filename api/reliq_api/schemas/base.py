"""Types that several schemas use."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from reliq.contract import values
from reliq.contract.outcomes import REASONS
from reliq.model.keys import FURTHER_HOME
from reliq_api.enqueue.entries import DURATION

QueueName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,127}$", examples=["orders"])]
MessageId = Annotated[str, Field(pattern=r"^[!-~]{1,128}$", examples=["019aa4c2-7b1e-7c55-9d0e-3f0a7c5e1b2d"])]
# Never the id of a worker's consumer, which begins with c. Clients treat it as opaque.
Lease = Annotated[
    str,
    Field(pattern=rf"^h[0-9a-f]{{20}}(\.[0-9]{{1,6}})?({FURTHER_HOME})?$", examples=["h3f9c2d1e8a7b6c5d4e3f"]),
]


def as_whole(value: Any) -> Any:
    """Accept 5.0 as a whole number, as JSON does; no other types."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


DeathReason = Literal[*REASONS]  # type: ignore[valid-type]
Whole = Annotated[int, BeforeValidator(as_whole)]
Seconds = Annotated[float, Field(ge=0, le=values.MAX_DELAY_SECONDS, allow_inf_nan=False, examples=[30])]
PeriodText = Annotated[str, Field(pattern=DURATION, examples=["5m"])]
Period = Seconds | PeriodText


class Request(BaseModel):
    """The body of a request. Unknown members are refused: a misspelled option must not be ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)
