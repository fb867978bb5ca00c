"""Write the dashboards, from the folder monitor/: python -m grafana_dashboards"""

from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from grafana_dashboards.overview import OVERVIEW
from grafana_dashboards.queue import QUEUE_PAGE
from grafana_dashboards.redis import REDIS_PAGE
from grafana_dashboards.workers import WORKERS_PAGE

PAGES = (OVERVIEW, QUEUE_PAGE, WORKERS_PAGE, REDIS_PAGE)
FOLDER = Path(__file__).parents[1] / "grafana" / "dashboards"


def files() -> dict[Path, str]:
    """Return each file with its content."""
    encoder = JSONEncoder(sort_keys=True, indent=2)
    return {FOLDER / f"reliq-{page.name}.json": encoder.encode(page.build()) + "\n" for page in PAGES}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
