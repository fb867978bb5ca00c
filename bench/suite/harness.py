"""What every part of the suite uses: a Redis for it, figures with their spread, verdicts."""

import contextlib
import statistics
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import redis

import reliq
from reliq.embedded import EmbeddedRedis
from reliq.transport.store import Store
from reliq.worker import Options, Worker


@dataclass(frozen=True, slots=True)
class Setting:
    """The volumes of the suite. `scale` multiplies them: below 1 for a smoke test."""

    full: bool = False
    rounds: int = 3
    scale: float = 1.0

    def volume(self, short: int, full: int | None = None) -> int:
        chosen = full if self.full and full is not None else short
        return max(1, int(chosen * self.scale))


@dataclass(frozen=True, slots=True)
class Check:
    """One figure and what it must reach."""

    what: str
    values: Sequence[float]
    bound: float
    at_least: bool = True

    @property
    def value(self) -> float:
        return statistics.median(self.values) if self.values else float("nan")

    @property
    def ok(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    @property
    def shown(self) -> str:
        """The median, and where the others lie."""
        spread = f" ({_short(min(self.values))}..{_short(max(self.values))})" if len(self.values) > 1 else ""
        return f"{_short(self.value)}{spread}"

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        verdict = "ok" if self.ok else f"missed, {self.value / self.bound:.2f} of it" if self.bound else "missed"
        return f"{self.what} {self.shown}, must be {sign} {self.bound:g}: {verdict}"


@dataclass(slots=True)
class Row:
    """One row of the table of figures."""

    what: str
    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)  #: further measurements, for the JSON

    @property
    def verdict(self) -> str:
        if not self.checks:
            return "not measured"
        return "ok" if all(check.ok for check in self.checks) else "missed"

    def as_dict(self) -> dict[str, Any]:
        checks = [{**asdict(check), "value": check.value, "ok": check.ok} for check in self.checks]
        return {
            "what": self.what, "verdict": self.verdict, "checks": checks, "notes": self.notes, "figures": self.figures
        }  # fmt: skip


@contextlib.contextmanager
def fresh_redis() -> Iterator[tuple[EmbeddedRedis, redis.Redis]]:
    """A server that writes nothing to disk, the same for every contestant, and a client of it."""
    with EmbeddedRedis(settings=("--appendonly", "no")) as server, redis.Redis(port=server.port) as client:
        yield server, client


@contextlib.contextmanager
def working(app: reliq.Reliq, **options: Any) -> Iterator[None]:
    """Run the application's handlers in a thread of this process; `options` as for `reliq worker`."""
    worker = Worker(Store(app.url), app.handlers, Options(**options))
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join()


def percentile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def shown(values: Sequence[float]) -> str:
    """The median, and where the others lie."""
    if not values:
        return "-"
    return f"{statistics.median(values):,.0f} ({min(values):,.0f}..{max(values):,.0f})"


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Compare round by round: other load of the machine in a round affected both."""
    return [one / other for one, other in zip(above, below, strict=False) if other]
