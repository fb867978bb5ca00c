"""The circuit breaker of a handler: when its queue stops giving out messages because what the handler needs is down."""

from dataclasses import dataclass

from reliq.contract.values import Duration, seconds, whole
from reliq.errors import InvalidSetting


@dataclass(frozen=True, slots=True, match_args=False)
class Breaker:
    """Opens when `threshold` of the runs within `window` have failed, if there were at least `minimum` runs.

    While it is open no worker gets a message of the queue. After `open_for` one message is tried: if it passes the
    breaker closes, else the message goes back uncharged and the breaker stays open for as long again. All workers
    share its state. Raises InvalidSetting.
    """

    threshold: float = 0.5
    minimum: int = 20
    window: Duration = 30.0
    open_for: Duration = 30.0

    @property
    def window_seconds(self) -> float:
        return seconds(self.window, "window")

    @property
    def open_seconds(self) -> float:
        return seconds(self.open_for, "open_for")

    def __post_init__(self) -> None:
        number = isinstance(self.threshold, (int, float)) and not isinstance(self.threshold, bool)
        if not (number and 0 < self.threshold <= 1):
            raise InvalidSetting(f"threshold is {self.threshold!r}: it must be above 0 and at most 1")
        whole(self.minimum, "minimum", 1, 1_000_000)
        object.__setattr__(self, "window", seconds(self.window, "window", shortest=0.1, longest=86_400))
        object.__setattr__(self, "open_for", seconds(self.open_for, "open_for", shortest=0.1, longest=86_400))


breaker = Breaker  #: as it is written: @app.handler("mails", breaker=reliq.breaker(minimum=20))
