"""Problems and health."""

from pydantic import BaseModel, ConfigDict, Field


class ProblemDetails(BaseModel):
    """RFC 9457."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:reliq:problem:queue_full",
                    "title": "The queue is full",
                    "status": 429,
                    "detail": "queue 'orders' holds 1000 of at most 1000 messages; none of the 1 was enqueued",
                    "code": "queue_full",
                    "retry_after": 1,
                }
            ]
        },
    )

    type: str
    title: str
    status: int
    detail: str
    code: str


class Health(BaseModel):
    status: str = Field(description="ok, ready or degraded.")
    missing: list[str] | None = Field(default=None, description="What does not answer, when the service is degraded.")
