"""Schedules."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from reliq.contract.options import SCHEDULE, options_of
from reliq.features.schedules.model import MOST_CAUGHT_UP, CatchUp
from reliq_api.schemas.base import MessageId, Period, QueueName, Request, Whole
from reliq_api.schemas.declared import with_options

ScheduleName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,99}$", examples=["report"])]
Moment = Annotated[str, Field(max_length=40, examples=["2026-11-21T10:00:00+01:00"])]


class ScheduleRequest(with_options(Request, options_of(SCHEDULE))):  # type: ignore[misc]
    """A schedule. At most one of `body` and `body_base64` is given; without one the body is empty."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"when": "0 7 * * MON-FRI", "tz": "Europe/Berlin", "body": {"kind": "daily"}, "jitter": "30s"}]
        }
    )

    when: str | float = Field(description="A cron expression of five fields, or an interval, as in `delay`.")
    tz: str = Field("UTC", max_length=64, description="The time zone of a cron expression.")
    body: Any = Field(None, description="A text is sent as its UTF-8, any other value as the JSON it is.")
    body_base64: str | None = Field(None, description="Bytes that are not text.")
    start: Moment | None = Field(None, description="No tick before; in `tz` unless it has an offset.")
    end: Moment | None = Field(None, description="No tick after.")
    jitter: Period = Field(0.0, description="Delays each tick by up to this time.")
    catch_up: CatchUp = Field("latest", description="What is sent for missed ticks.")
    catch_up_limit: Whole = Field(100, ge=1, le=MOST_CAUGHT_UP, description="For `all`: the latest so many.")


class Schedule(BaseModel):
    name: ScheduleName
    queue: QueueName
    when: str
    tz: str
    paused: bool
    ended: bool
    next_tick: str | None = Field(description="In the time zone of the schedule; null while it is paused or ended.")
    last_tick: str | None = Field(description="Of the latest run.")
    last_run_at: str | None
    last_id: str = Field(description="Of the latest message; empty before it, and if the latest ticks were missed.")
    lateness: float = Field(description="Seconds that the latest run was late.")
    fired: int = Field(description="Messages sent.")
    missed: int = Field(description="Ticks that were not sent.")
    start: str | None
    end: str | None
    jitter: float
    catch_up: str
    catch_up_limit: int


class ScheduleDetails(Schedule):
    next_ticks: list[str] = Field(description="The next ten.")
    fate: str = Field(
        description="Where the message of the latest run is: ready, processing, delayed, parked (waits for a signal), "
        "dead, gone (handled, or removed), unknown (in a queue too long to look); empty without one."
    )


class ScheduleList(BaseModel):
    schedules: list[Schedule]


class ScheduleTicks(BaseModel):
    ticks: list[str]


class ScheduleRemoved(BaseModel):
    removed: bool


class ScheduleRun(BaseModel):
    id: MessageId
