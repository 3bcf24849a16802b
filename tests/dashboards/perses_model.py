"""Model what Perses accepts of our dashboards, strictly: an unknown key or value is an error.

Written by us after the CUE schemas of github.com/perses/perses (cue/model/api/v1, at 732c6d67e~1) and of the
plugins in github.com/perses/plugins (*/schemas, at c69fda3f, with perses/shared/cue at b8c9d4c).
docs/dashboards.md describes how the same dashboards were checked with those schemas themselves.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

Name = Annotated[str, StringConstraints(min_length=1, max_length=75, pattern=r"^[a-zA-Z0-9_.-]+$")]
Text = Annotated[str, StringConstraints(min_length=1)]
Duration = Annotated[str, StringConstraints(pattern=r"^(\d+y)?(\d+w)?(\d+d)?(\d+h)?(\d+m)?(\d+s)?(\d+ms)?$")]
Reference = Annotated[str, StringConstraints(pattern=r"^\$\w+$")]
Hex = Annotated[str, StringConstraints(pattern=r"^#(?:[0-9a-fA-F]{3}){1,2}$")]
Opacity = Annotated[float, Field(ge=0, le=1)]
Calculation = Literal["first", "last", "first-number", "last-number", "mean", "sum", "min", "max"]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


class Plain(Strict):
    """A unit that has neither decimals nor short values."""

    unit: Literal["relative-time"]


class Decimals(Strict):
    unit: Literal["microseconds", "milliseconds", "seconds", "percent-decimal", "celsius"]
    decimal_places: float | None = None


class Short(Strict):
    unit: Literal["decimal", "bytes", "bytes/sec", "counts/sec", "requests/sec"]
    decimal_places: float | None = None
    short_values: bool | None = None


Format = Plain | Decimals | Short


class Step(Strict):
    value: float
    color: Hex


class Thresholds(Strict):
    mode: Literal["absolute"] = "absolute"
    default_color: Hex | None = None
    steps: list[Step]


class Result(Strict):
    value: str
    color: Hex | None = None


class ValueMapping(Strict):
    kind: Literal["Value"]
    spec: _ValueSpec


class _ValueSpec(Strict):
    value: Text
    result: Result


class MiscMapping(Strict):
    kind: Literal["Misc"]
    spec: _MiscSpec


class _MiscSpec(Strict):
    value: Literal["NaN", "null"]
    result: Result


Mapping = Annotated[ValueMapping | MiscMapping, Discriminator("kind")]


class Legend(Strict):
    position: Literal["bottom", "right"]
    mode: Literal["list", "table"] | None = None
    size: Literal["small", "medium"] | None = None


class LegendWithValues(Legend):
    values: list[Calculation] | None = None


class Axis(Strict):
    label: str | None = None
    format: Format | None = None
    min: float | None = None
    max: float | None = None
    log_base: Literal[2, 10] | None = None

    @model_validator(mode="after")
    def _ends_above_its_begin(self) -> Axis:
        assert self.min is None or self.max is None or self.min <= self.max
        return self


class Visual(Strict):
    display: Literal["line", "bar"] | None = None
    line_width: Annotated[float, Field(ge=0.25, le=3)] | None = None
    area_opacity: Opacity | None = None
    stack: Literal["all"] | None = None


class QuerySettings(Strict):
    query_index: Annotated[int, Field(ge=0)]
    color_mode: Literal["fixed", "fixed-single"] | None = None
    color_value: Hex | None = None
    line_style: Literal["solid", "dashed", "dotted"] | None = None
    area_opacity: Opacity | None = None


class TimeSeriesSpec(Strict):
    legend: LegendWithValues | None = None
    y_axis: Axis | None = None
    thresholds: Thresholds | None = None
    visual: Visual | None = None
    query_settings: list[QuerySettings] | None = None


class TimeSeriesChart(Strict):
    kind: Literal["TimeSeriesChart"]
    spec: TimeSeriesSpec


class StatSpec(Strict):
    calculation: Calculation
    format: Format | None = None
    thresholds: Thresholds | None = None
    sparkline: dict[str, Any] | None = None
    mappings: list[Mapping] | None = None


class StatChart(Strict):
    kind: Literal["StatChart"]
    spec: StatSpec


class Range(Strict):
    min: float | None = None
    max: float | None = None


class SingleValue(Strict):
    value: Text


class Misc(Strict):
    value: Literal["empty", "null", "NaN", "true", "false"]


class RangeCondition(Strict):
    kind: Literal["Range"]
    spec: Range


class ValueCondition(Strict):
    kind: Literal["Value"]
    spec: SingleValue


class MiscCondition(Strict):
    kind: Literal["Misc"]
    spec: Misc


class CellSettings(Strict):
    condition: Annotated[RangeCondition | ValueCondition | MiscCondition, Discriminator("kind")]
    text: str | None = None
    text_color: Hex | None = None


class DataLink(Strict):
    url: str
    title: str | None = None
    open_new_tab: bool


class ColumnSettings(Strict):
    name: Text
    header: str | None = None
    format: Format | None = None
    sort: Literal["asc", "desc"] | None = None
    width: int | None = None
    hide: bool | None = None
    cell_settings: list[CellSettings] | None = None
    data_link: DataLink | None = None


class MergeSeries(Strict):
    kind: Literal["MergeSeries"]
    spec: dict[str, Any]


class TableSpec(Strict):
    density: Literal["compact", "standard", "comfortable"] | None = None
    enable_filtering: bool | None = None
    enable_sorting: bool | None = None
    column_settings: list[ColumnSettings] | None = None
    transforms: list[MergeSeries] | None = None


class TableChart(Strict):
    kind: Literal["Table"]
    spec: TableSpec


class StatusHistorySpec(Strict):
    legend: Legend | None = None
    mappings: list[Mapping] | None = None


class StatusHistoryChart(Strict):
    kind: Literal["StatusHistoryChart"]
    spec: StatusHistorySpec


class PromQL(Strict):
    datasource: Reference
    query: Text
    series_name_format: str | None = None
    min_step: Duration | None = None
    instant: bool | None = None


class PromQLPlugin(Strict):
    kind: Literal["PrometheusTimeSeriesQuery"]
    spec: PromQL


class QuerySpec(Strict):
    plugin: PromQLPlugin


class Query(Strict):
    kind: Literal["TimeSeriesQuery"]
    spec: QuerySpec


class Display(Strict):
    name: str | None = None
    description: str | None = None


class Link(Strict):
    name: str | None = None
    url: str
    render_variables: bool | None = None
    target_blank: bool | None = None


class PanelSpec(Strict):
    display: Display
    plugin: Annotated[TimeSeriesChart | StatChart | TableChart | StatusHistoryChart, Discriminator("kind")]
    queries: list[Query]
    links: list[Link] | None = None


class Panel(Strict):
    kind: Literal["Panel"]
    spec: PanelSpec


class Content(Strict):
    ref: Annotated[str, StringConstraints(pattern=r"^#/spec/panels/[a-zA-Z0-9_.-]+$")] = Field(alias="$ref")


class Item(Strict):
    x: Annotated[int, Field(ge=0, lt=24)]
    y: int
    width: Annotated[int, Field(gt=0, le=24)]
    height: int
    content: Content


class Collapse(Strict):
    open: bool


class GridDisplay(Strict):
    title: str
    collapse: Collapse | None = None


class GridSpec(Strict):
    display: GridDisplay
    items: list[Item]
    repeat_variable: str | None = None


class Grid(Strict):
    kind: Literal["Grid"]
    spec: GridSpec


class LabelValues(Strict):
    datasource: Reference
    label_name: Text
    matchers: list[str] | None = None


class LabelValuesPlugin(Strict):
    kind: Literal["PrometheusLabelValuesVariable"]
    spec: LabelValues


class DatasourceChoice(Strict):
    datasource_plugin_kind: Text


class DatasourcePlugin(Strict):
    kind: Literal["DatasourceVariable"]
    spec: DatasourceChoice


class VariableDisplay(Display):
    hidden: bool


class ListSpec(Strict):
    name: Name
    display: VariableDisplay
    default_value: str | list[str] | None = None
    allow_all_value: bool
    allow_multiple: bool
    custom_all_value: str | None = None
    sort: Literal["none", "alphabetical-asc"] | None = None
    plugin: Annotated[LabelValuesPlugin | DatasourcePlugin, Discriminator("kind")]


class ListVariable(Strict):
    kind: Literal["ListVariable"]
    spec: ListSpec


class DashboardSpec(Strict):
    display: Display
    duration: Duration
    refresh_interval: Duration
    variables: list[ListVariable]
    panels: dict[Name, Panel]
    layouts: list[Grid]
    links: list[Link] | None = None


class Metadata(Strict):
    name: Name
    project: Name


class Resource(Strict):
    kind: Literal["Dashboard"]
    metadata: Metadata
    spec: DashboardSpec

    @model_validator(mode="after")
    def _places_each_panel_once(self) -> Resource:
        placed = [
            item.content.ref.rsplit("/", 1)[1] for grid in self.spec.layouts for item in grid.spec.items
        ]
        assert sorted(placed) == sorted(self.spec.panels)
        return self


for _late in (ValueMapping, MiscMapping):
    _late.model_rebuild()
