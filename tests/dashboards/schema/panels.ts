// Options and field settings of the panel kinds, which the dashboard's type leaves open; see README.md.
import type { Options as Stat } from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type { Options as TimeSeries, FieldConfig as TimeSeriesField } from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';
import type { Options as Table, FieldConfig as TableField } from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import type { Options as StateTimeline, FieldConfig as StateTimelineField } from '@grafana/schema/dist/esm/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen';
import type { Options as Heatmap, FieldConfig as HeatmapField } from '@grafana/schema/dist/esm/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen';

export interface Root {
  stat: { options: Stat };
  timeseries: { options: TimeSeries; custom: TimeSeriesField };
  table: { options: Table; custom: TableField };
  'state-timeline': { options: StateTimeline; custom: StateTimelineField };
  heatmap: { options: Heatmap; custom: HeatmapField };
}
