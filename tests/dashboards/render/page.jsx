// Draws one dashboard from window.DATA with @grafana/data and @grafana/ui: thresholds, units, mappings,
// transformations and legends are Grafana's own code. State timelines and the marks of annotations are no
// part of the npm packages; they are drawn here from the same frames and colours.
import 'uplot/dist/uPlot.min.css';
import { useEffect, useLayoutEffect, useState } from 'react';
import { createRoot } from 'react-dom/client';
import * as G from '@grafana/data';
import { BigValue, GlobalStyles, PanelChrome, Table, ThemeContext, TimeSeries, VizRepeater } from '@grafana/ui';

const { model, answers, marks, chosen, from, to, width } = window.DATA;
// "Three minutes ago" is meant at the end of the history, not on the day of the drawing.
Date.now = () => to * 1000;
const theme = G.createTheme({ colors: { mode: window.DATA.mode } });
const UNIT = 38;
// The last label of an axis would stand half outside the graph.
const range = { from: G.dateTime(from * 1000), to: G.dateTime(to * 1000 - 1), raw: { from: 'now-1h', to: 'now' } };

const plain = ['displayName', 'unit', 'min', 'max', 'decimals', 'thresholds', 'noValue', 'color', 'links', 'mappings', 'filterable'];
const custom = ['width', 'cellOptions', 'lineStyle', 'fillOpacity', 'align', 'hidden', 'hideFrom'];
const registry = new G.FieldConfigOptionsRegistry(() => [
  ...plain.map((id) => ({ id, path: id, name: id, process: (v) => v, shouldApply: () => true })),
  ...custom.map((id) => ({ id: `custom.${id}`, path: id, name: id, isCustom: true, process: (v) => v, shouldApply: () => true })),
]);
const st = G.standardTransformers;
G.standardTransformersRegistry.setInit(() =>
  [st.mergeTransformer, st.organizeFieldsTransformer].map((t) => ({ id: t.id, name: t.name, transformation: async () => t, editor: () => null }))
);

const fill = (text) => text.replace(/\$(\w+)/g, (whole, name) => chosen[name] ?? whole);

function frames(panel, target, series) {
  if (target.format === 'table') {
    const labels = [...new Set(series.flatMap((one) => Object.keys(one.metric)))];
    const value = panel.targets.length > 1 ? `Value #${target.refId}` : 'Value';
    return [G.toDataFrame({ refId: target.refId, fields: [
      { name: 'Time', type: 'time', values: series.map((one) => one.value[0] * 1000) },
      ...labels.map((name) => ({ name, type: 'string', values: series.map((one) => one.metric[name] ?? '') })),
      { name: value, type: 'number', values: series.map((one) => +one.value[1]) },
    ] })];
  }
  return series.map((one) => {
    const points = one.values || [one.value];
    const name = target.legendFormat === '__auto'
      ? Object.entries(one.metric).map(([k, v]) => `${k}="${v}"`).join(' ') || panel.title
      : target.legendFormat.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => one.metric[label] ?? '');
    return G.toDataFrame({ refId: target.refId, name, fields: [
      { name: 'Time', type: 'time', values: points.map((p) => p[0] * 1000) },
      { name: 'Value', type: 'number', labels: one.metric, config: { displayNameFromDS: name }, values: points.map((p) => +p[1]) },
    ] });
  });
}

function transformed(panel, data) {
  if (!panel.transformations?.length) return Promise.resolve(data);
  return new Promise((ok, bad) => G.transformDataFrame(panel.transformations, data).subscribe({ next: ok, error: bad }));
}

async function prepare(panel) {
  const raw = panel.targets.flatMap((target) => frames(panel, target, answers[panel.id][target.refId]));
  const data = await transformed(panel, raw.filter((frame) => frame.length));
  const shown = G.applyFieldOverrides({ data, fieldConfig: panel.fieldConfig, fieldConfigRegistry: registry, replaceVariables: fill, theme, timeZone: 'utc' });
  for (const field of shown.flatMap((frame) => frame.fields)) {
    field.config.custom = { ...panel.fieldConfig.defaults.custom, ...field.config.custom };
    // The real table panel keeps links of the override only; values read the same.
  }
  return shown;
}

function Empty({ panel }) {
  return <div style={{ display: 'flex', height: '100%', alignItems: 'center', justifyContent: 'center', color: theme.colors.text.secondary }}>
    {panel.fieldConfig?.defaults.noValue ?? 'No data'}</div>;
}

function Stat({ panel, data, w, h }) {
  const values = G.getFieldDisplayValues({ fieldConfig: panel.fieldConfig, reduceOptions: panel.options.reduceOptions, replaceVariables: fill, theme, data, sparkline: panel.options.graphMode !== 'none', timeZone: 'utc' });
  const { colorMode, graphMode, textMode, justifyMode, wideLayout } = panel.options;
  return <VizRepeater width={w} height={h} orientation="auto" source={values} getValues={() => values} itemSpacing={3} renderCounter={0}
    renderValue={({ value, width, height }) => <BigValue theme={theme} width={width} height={height} value={value.display} sparkline={value.sparkline}
      colorMode={colorMode} graphMode={graphMode} textMode={textMode} justifyMode={justifyMode} disableWideLayout={!wideLayout} />} />;
}

const moment = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 16);

/** Seconds between two samples: the least distance in any of the series. */
function spacing(times) {
  const steps = times.flatMap(({ values }) => values.slice(1).map((at, i) => (at - values[i]) / 1000));
  return steps.length ? Math.min(...steps) : 15;
}

/** Marks as Grafana's graphs have them: a dashed line where something began, a triangle below, a band while it lasts. */
function Marks({ config }) {
  useLayoutEffect(() => {
    config.addHook('draw', (u) => {
      const { ctx, bbox } = u;
      ctx.save();
      for (const { color, start, end } of marks) {
        const x = u.valToPos(Math.max(start, from) * 1000, 'x', true);
        const last = u.valToPos(Math.min(end, to) * 1000, 'x', true);
        ctx.strokeStyle = ctx.fillStyle = theme.visualization.getColorByName(color);
        ctx.setLineDash([5, 5]);
        ctx.lineWidth = 1;
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
        ctx.fillRect(x, bbox.top + bbox.height, Math.max(0, last - x), 4);
        ctx.beginPath();
        ctx.moveTo(x - 5, bbox.top + bbox.height + 6);
        ctx.lineTo(x + 5, bbox.top + bbox.height + 6);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.fill();
      }
      ctx.restore();
    });
  }, [config]);
  return null;
}

function Bands({ panel, data, w, h }) {
  const { perPage } = panel.options;
  const fields = data.slice(0, perPage).map((frame) => [frame.fields[0], frame.fields[1]]);
  const names = fields.map(([, value]) => G.getFieldDisplayName(value, data.find((f) => f.fields.includes(value)), data));
  const label = Math.min(260, w * 0.32);
  const room = h - 46;
  const height = Math.max(10, Math.min(26, room / fields.length - 4));
  const scale = (w - label - 14) / (to - from);
  const gap = spacing(fields.map(([time]) => time)) * 1.1;
  const legend = new Map();
  const rows = fields.map(([time, value], index) => {
    const spans = [];
    for (let i = 0; i < time.values.length; i++) {
      const shown = value.display(value.values[i]);
      legend.set(shown.text, shown.color);
      const at = time.values[i] / 1000;
      const last = spans.at(-1);
      if (last && last.text === shown.text && at - last.end <= gap) last.end = at;
      else spans.push({ start: at, end: at, text: shown.text, color: shown.color });
    }
    return <div key={index} style={{ display: 'flex', height: height + 4 }}>
      <div style={{ width: label, paddingRight: 8, textAlign: 'right', fontSize: 12, overflow: 'hidden', whiteSpace: 'nowrap', textOverflow: 'ellipsis', color: theme.colors.text.primary }}>{names[index]}</div>
      <div style={{ position: 'relative', flex: 1, background: theme.colors.background.secondary, height }}>
        {spans.map((s, i) => {
          const wide = Math.max(2, Math.min(s.end + gap, to) * scale - s.start * scale);
          return <div key={i} style={{ position: 'absolute', left: (s.start - from) * scale, width: wide, height, lineHeight: `${height}px`, background: s.color, opacity: 0.8, color: theme.colors.getContrastText(s.color), fontSize: Math.min(12, height - 2), textAlign: 'center', overflow: 'hidden' }}>
            {wide > 7 * s.text.length + 8 ? s.text : ''}</div>;
        })}
      </div></div>;
  });
  const ticks = [0, 1, 2, 3, 4, 5, 6].map((i) => from + ((to - from) * i) / 6);
  return <div style={{ fontSize: 12 }}>{rows}
    <div style={{ position: 'relative', marginLeft: label, height: 16, color: theme.colors.text.secondary }}>
      {ticks.slice(0, -1).map((t) => <span key={t} style={{ position: 'absolute', left: (t - from) * scale }}>{moment(t)}</span>)}</div>
    <div style={{ marginLeft: label }}>{data.length > perPage && <span style={{ marginRight: 14 }}>page 1 of {Math.ceil(data.length / perPage)}</span>}{[...legend].map(([text, color]) => <span key={text} style={{ marginRight: 14, color: theme.colors.text.secondary }}>
      <span style={{ display: 'inline-block', width: 14, height: 4, background: color, marginRight: 6, verticalAlign: 'middle' }} />{text}</span>)}</div></div>;
}

function Content({ panel, data, w, h }) {
  if (!data.length || data.every((frame) => !frame.length)) return panel.type === 'stat'
    ? <Stat panel={panel} data={[G.toDataFrame({ fields: [] })]} w={w} h={h} /> : <Empty panel={panel} />;
  switch (panel.type) {
    case 'stat': return <Stat panel={panel} data={data} w={w} h={h} />;
    case 'timeseries': return <TimeSeries frames={data} structureRev={1} timeRange={range} timeZone="utc" width={w} height={h} legend={panel.options.legend} options={panel.options}>{(config) => <Marks config={config} />}</TimeSeries>;
    case 'table': return <Table data={data[0]} width={w} height={h} columnMinWidth={80} initialSortBy={panel.options.sortBy} />;
    case 'state-timeline': return <Bands panel={panel} data={data} w={w} h={h} />;
    default: return <i>not drawn: {panel.type}</i>;
  }
}

function Panel({ panel, top }) {
  const [data, set] = useState(null);
  const [error, fail] = useState('');
  useEffect(() => { prepare(panel).then(set, (e) => fail(String(e))); }, [panel]);
  const { x, w, h } = panel.gridPos;
  const column = width / 24;
  const box = { position: 'absolute', left: x * column + 4, top: top + 4, width: w * column - 8, height: h * UNIT - 8 };
  return <div style={box} data-panel={panel.title} data-type={panel.type} data-ready={data ? 1 : 0} data-error={error}>
    <PanelChrome title={fill(panel.title)} description={panel.description} width={box.width} height={box.height}>
      {(innerWidth, innerHeight) => data ? <Content panel={panel} data={data} w={innerWidth} h={innerHeight} /> : <i>{error}</i>}
    </PanelChrome></div>;
}

function Header() {
  const chip = { background: theme.colors.background.secondary, border: `1px solid ${theme.colors.border.medium}`, borderRadius: 2, padding: '3px 8px', marginRight: 8, fontSize: 12 };
  return <div style={{ padding: '8px 10px' }}>
    <div style={{ fontSize: 18, fontWeight: 500 }}>{model.title}</div>
    <div style={{ marginTop: 6 }}>{model.templating.list.map((v) => <span key={v.name} style={chip}><span style={{ color: theme.colors.text.secondary }}>{v.label} </span>
      {v.type === 'datasource' ? 'Prometheus' : window.DATA.wanted[v.name] ?? 'All'}</span>)}</div></div>;
}

function Row({ panel, top }) {
  return <div style={{ position: 'absolute', left: 8, top: top + 8, fontSize: 15, fontWeight: 500, color: theme.colors.text.primary }}>
    <span style={{ color: theme.colors.text.secondary, marginRight: 8 }}>{panel.collapsed ? '›' : '⌄'}</span>{fill(panel.title)}
    {panel.collapsed && <span style={{ color: theme.colors.text.secondary, fontSize: 12, marginLeft: 8 }}>({panel.panels.length} panels)</span>}</div>;
}

function Dashboard() {
  const head = 74;
  return <div style={{ position: 'relative', width, fontFamily: 'Inter, "Liberation Sans", Arial, sans-serif', color: theme.colors.text.primary }}>
    <Header />
    {model.panels.map((panel) => panel.type === 'row'
      ? <Row key={panel.id} panel={panel} top={head + panel.gridPos.y * UNIT} />
      : <Panel key={panel.id} panel={panel} top={head + panel.gridPos.y * UNIT} />)}</div>;
}

document.body.style.background = theme.colors.background.canvas;
document.body.style.margin = 0;
createRoot(document.getElementById('root')).render(<ThemeContext.Provider value={theme}><GlobalStyles /><Dashboard /></ThemeContext.Provider>);
