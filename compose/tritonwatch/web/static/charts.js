/* Draws <figure data-source="URL" data-chart="NAME"> with uPlot from the JSON of the page; the table stays without it. */
"use strict";
(function () {
  const colors = ["--link", "--exhausted", "--ok", "--unknown", "--burning", "--soft"];
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const short = (v, unit) => {
    if (v === null || v === undefined) return "-";
    if (unit === "share") return (100 * v).toFixed(Math.abs(v) < 0.1 ? 2 : 1) + " %";
    const text = v >= 100 ? v.toFixed(0) : String(Number(v.toPrecision(3)));
    return unit === "times" ? text + "x" : text;
  };

  const two = (n) => String(n).padStart(2, "0");
  const utc = (seconds) => {
    const d = new Date(seconds * 1000);
    return { day: `${d.getUTCFullYear()}-${two(d.getUTCMonth() + 1)}-${two(d.getUTCDate())}`, clock: `${two(d.getUTCHours())}:${two(d.getUTCMinutes())}` };
  };
  // As everywhere on the pages: UTC, the day where it changes, 24 hours.
  const times = (u, marks) => {
    let before = "";
    return marks.map((at) => {
      const { day, clock } = utc(at), short = day.slice(5);
      const text = clock === "00:00" && marks.length > 1 && marks[1] - marks[0] >= 86400 ? short : day === before ? clock : `${clock}\n${short}`;
      before = day;
      return text;
    });
  };

  function underlay(chart) {
    return (u) => {
      const { left, top, width, height } = u.bbox, c = u.ctx;
      c.save();
      c.beginPath();
      c.rect(left, top, width, height);
      c.clip();
      for (const band of chart.bands) {
        const from = u.valToPos(band.start, "x", true), to = u.valToPos(band.end, "x", true);
        c.fillStyle = css("--band-" + band.kind) || css("--line");
        c.fillRect(from, top, Math.max(to - from, 2), height);
      }
      c.setLineDash([6, 4]);
      c.textAlign = "left";
      c.textBaseline = "bottom";
      c.font = 11 * devicePixelRatio + "px system-ui";
      for (const limit of chart.limits) {
        const y = u.valToPos(limit.value, "y", true);
        c.strokeStyle = c.fillStyle = css("--exhausted");
        c.beginPath();
        c.moveTo(left, y);
        c.lineTo(left + width, y);
        c.stroke();
        c.fillText(limit.label, left + 4, y - 3);
      }
      c.setLineDash([2, 3]);
      for (const mark of chart.marks) {
        const x = u.valToPos(mark.at, "x", true);
        c.strokeStyle = css("--front");
        c.beginPath();
        c.moveTo(x, top);
        c.lineTo(x, top + height);
        c.stroke();
      }
      c.restore();
    };
  }

  function range(chart) {
    return (u, min, max) => {
      const values = chart.limits.map((limit) => limit.value);
      let low = Math.min(min ?? 0, ...values), high = Math.max(max ?? 1, ...values);
      if (chart.log) {
        low = Math.max(0.01, Math.min(low, 0.1));
        return [low, Math.max(high, 1) * 1.8]; // room for the words above the uppermost limit
      }
      low = Math.min(low, 0);
      // Down to -100 %, as on the dashboards: a longer axis would hide the other curves.
      if (chart.unit === "share") [low, high] = [Math.max(low, -1), Math.max(high, 1)];
      return [low, high + (high - low) * 0.05];
    };
  }

  function draw(figure, chart) {
    const plot = figure.querySelector(".plot");
    plot.replaceChildren();
    const axis = { stroke: css("--soft"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line") } };
    const clock = { label: "UTC", value: (u, at) => (at === null ? "-" : `${utc(at).day} ${utc(at).clock}`) };
    const width = () => Math.max(260, figure.clientWidth);
    const series = chart.curves.map((curve, i) => ({
      label: curve.label,
      stroke: css(colors[i % colors.length]),
      width: 1.75,
      dash: curve.dashed ? [6, 4] : i >= colors.length ? [3, 3] : undefined,
      value: (u, v) => short(v, chart.unit),
      points: { show: false },
    }));
    const options = {
      width: width(),
      height: 240,
      series: [clock, ...series],
      scales: { y: { range: range(chart), distr: chart.log ? 3 : 1 } },
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
      axes: [{ ...axis, values: times }, { ...axis, size: 72, values: (u, marks) => marks.map((v) => (v === null ? "" : short(v, chart.unit))) }],
      hooks: { drawAxes: [underlay(chart)] },
      cursor: { drag: { x: true, y: false } },
    };
    const shown = (value) => (chart.log && value !== null ? Math.max(value, 0.01) : value);
    const data = [chart.times, ...chart.curves.map((curve) => curve.values.map(shown))];
    const u = new uPlot(options, data, plot);
    plot.setAttribute("aria-hidden", "true"); // the table below has the same values
    return () => u.setSize({ width: width(), height: 240 });
  }

  async function show() {
    const figures = [...document.querySelectorAll("figure[data-source]")];
    const bySource = Map.groupBy ? Map.groupBy(figures, (f) => f.dataset.source) : new Map(figures.map((f) => [f.dataset.source, figures]));
    const resize = [];
    for (const [source, group] of bySource) {
      const answer = await fetch(source, { headers: { Accept: "application/json" } });
      if (!answer.ok) continue; // the tables stay
      const charts = new Map((await answer.json()).charts.map((chart) => [chart.name, chart]));
      for (const figure of group) {
        const chart = charts.get(figure.dataset.chart);
        if (chart) resize.push(draw(figure, chart));
      }
    }
    addEventListener("resize", () => resize.forEach((one) => one()));
    document.documentElement.dataset.charts = "drawn";
  }

  addEventListener("DOMContentLoaded", show);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
})();
