"""The parts of a dashboard: rows of panels, each with a question and its answer in PromQL."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from grafana_foundation_sdk.builders import dashboard as grafana
from grafana_foundation_sdk.builders import prometheus, stat, timeseries
from grafana_foundation_sdk.builders.common import ReduceDataOptions, VizLegendOptions, VizTooltipOptions
from grafana_foundation_sdk.models.common import (
    BigValueGraphMode,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    Dashboard,
    DashboardCursorSync,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")


@dataclass(frozen=True)
class Number:
    """One number; red from `bad` on (below it, if `low_is_bad`)."""

    title: str
    description: str
    expr: str
    unit: str = "short"
    bad: float | None = None
    low_is_bad: bool = False
    width: int = 4

    def builder(self) -> stat.Panel:
        panel = stat.Panel().title(self.title).description(self.description).unit(self.unit).datasource(_SOURCE)
        panel.span(self.width).height(4).no_value("-").graph_mode(BigValueGraphMode.NONE)
        panel.with_target(_query(self.expr, instant=True))
        return panel.reduce_options(ReduceDataOptions().calcs(["lastNotNull"])).thresholds(self._thresholds())

    def _thresholds(self) -> grafana.ThresholdsConfig:
        good, bad = ("red", "green") if self.low_is_bad else ("green", "red")
        steps = [Threshold(None, good if self.bad is not None else "text")]
        if self.bad is not None:
            steps.append(Threshold(self.bad, bad))
        return grafana.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)


@dataclass(frozen=True)
class Lines:
    """Lines over time; `exprs` by legend."""

    title: str
    description: str
    exprs: Mapping[str, str]
    unit: str = "short"
    width: int = 8

    def builder(self) -> timeseries.Panel:
        panel = timeseries.Panel().title(self.title).description(self.description).unit(self.unit).datasource(_SOURCE)
        panel.span(self.width).height(8).axis_soft_min(0).fill_opacity(8)
        panel.legend(
            VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(show_legend=True)
        )
        panel.tooltip(VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
        for place, (legend, expr) in enumerate(self.exprs.items()):
            panel.with_target(_query(expr, legend=legend, name=chr(ord("A") + place)))
        return panel


Panel = Number | Lines


@dataclass(frozen=True)
class Page:
    """A dashboard: its panels, in rows with a heading."""

    name: str  #: of its file and in its address
    title: str
    description: str
    rows: Mapping[str, Sequence[Panel]] = field(default_factory=dict)

    def build(self) -> Dashboard:
        page = grafana.Dashboard(self.title).uid(f"reliq-{self.name}").description(self.description).tags(["reliq"])
        page.refresh("10s").time("now-1h", "now").timezone("browser").tooltip(DashboardCursorSync.CROSSHAIR)
        page.with_variable(_datasource()).with_variable(_queue())
        page.link(
            grafana.DashboardLink("reliq").tags(["reliq"]).as_dropdown(as_dropdown=False).keep_time(keep_time=True)
        )
        for title, panels in self.rows.items():
            page.with_row(grafana.Row(title))
            for panel in panels:
                page.with_panel(panel.builder())
        built = page.build()
        for place, one in enumerate(built.panels or (), 1):
            one.id_val = place
        return built


def _query(expr: str, legend: str = "", name: str = "A", instant: bool = False) -> prometheus.Dataquery:
    query = prometheus.Dataquery().expr(expr).legend_format(legend).ref_id(name).datasource(_SOURCE)
    return query.instant() if instant else query.range()


def _datasource() -> grafana.DatasourceVariable:
    return grafana.DatasourceVariable("datasource").label("Data source").type("prometheus")


def _queue() -> grafana.QueryVariable:
    return (
        grafana.QueryVariable("queue")
        .label("Queue")
        .datasource(_SOURCE)
        .query("label_values(reliq_queue_messages, queue)")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(multi=True)
        .include_all(include_all=True)
        .all_value(".*")
        .current(VariableOption(selected=True, text="All", value="$__all"))
    )


# --- PromQL ----------------------------------------------------------------------------------------------------------

QUEUE = 'queue=~"$queue"'


def here(state: str) -> str:
    """Return the query for messages in this state: the maximum over exporters, as all export the same numbers."""
    return f'sum(max by (queue) (reliq_queue_messages{{{QUEUE},state="{state}"}}))'


def worst(gauge: str) -> str:
    """Return the query for the highest value of all queues."""
    return f"max({gauge}{{{QUEUE}}})"


def rate(counter: str, by: str = "", extra: str = "") -> str:
    """Return the query for a rate per second, of all queues together or by label; `extra`: further matchers."""
    inner = ", ".join(sorted({"queue", *([by] if by else [])}))
    outer = f"sum by ({by})" if by else "sum"
    return f"{outer} (max by ({inner}) (rate({counter}_total{{{QUEUE}{extra}}}[$__rate_interval])))"


def quantiles(histogram: str) -> dict[str, str]:
    return {f"p{share * 100:g}": quantile(histogram, share) for share in (0.5, 0.95, 0.99)}


def quantile(histogram: str, share: float, matchers: str = QUEUE, by: str = "") -> str:
    labels = f"{by}, le" if by else "le"
    inner = f"rate({histogram}_bucket{{{matchers}}}[$__rate_interval])"
    return f"histogram_quantile({share:g}, sum by ({labels}) ({inner}))"
