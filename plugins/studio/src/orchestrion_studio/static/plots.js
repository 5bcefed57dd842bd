// Replaces the curves of each figure[data-plot] by ones that can be read under the pointer and
// zoomed: drag to zoom, double click to see all again.
import { colour, library } from "./library.js";

const HEIGHT = 220;
const drawn = new Map(); // figure -> uPlot

const near = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (entry.isIntersecting) draw(entry.target);
  }
}, { rootMargin: "300px" });
const sizes = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    const plot = drawn.get(target.closest("figure"));
    if (plot && contentRect.width) plot.setSize({ width: contentRect.width, height: HEIGHT });
  }
});

export function drawPlots(within) {
  for (const figure of drawn.keys()) {
    if (!figure.isConnected) forget(figure);
  }
  for (const figure of within.querySelectorAll("figure[data-plot]")) near.observe(figure);
}

function forget(figure) {
  drawn.get(figure)?.destroy();
  drawn.delete(figure);
}

document.addEventListener("studio:colours", () => {
  for (const figure of [...drawn.keys()]) {
    forget(figure);
    draw(figure);
  }
});

async function draw(figure) {
  near.unobserve(figure);
  if (drawn.has(figure)) return;
  const plot = JSON.parse(figure.dataset.plot);
  const canvas = figure.querySelector(".canvas");
  if (!plot.series.some((series) => series.y.some((value) => value !== null))) return;
  await library("uPlot.min.js");
  if (!figure.isConnected || drawn.has(figure)) return;
  const { data, series } = columns(plot);
  const axis = {
    stroke: colour("muted"),
    grid: { stroke: colour("line"), width: 1 },
    ticks: { show: false },
    values: (_, values) => values.map((value) => text(value)),
    labelSize: 18,
    font: "11px sans-serif",
    labelFont: "11px sans-serif",
  };
  canvas.replaceChildren();
  const options = {
    width: canvas.clientWidth,
    height: HEIGHT,
    scales: { x: { time: false }, y: { range: (_, low, high) => range(plot, low, high) } },
    cursor: { points: { size: 6 } },
    legend: { live: true },
    series: [{ label: plot.x, value: (_, value) => text(value) }, ...series],
    axes: [
      { ...axis, label: plot.x, size: 28, incrs: whole(plot) ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1e5, 1e6] : undefined },
      { ...axis, label: plot.y, values: (_, values) => values.map((value) => text(value, plot.shares)), size: (_, texts) => Math.max(48, 12 + 6.5 * longest(texts)) },
    ],
    hooks: { draw: [(chart) => whiskers(chart, plot)] },
  };
  drawn.set(figure, new uPlot(options, data, canvas));
  figure.querySelector(".legend")?.remove();
  sizes.observe(canvas);
}

function longest(texts) {
  return Math.max(0, ...(texts ?? []).map((each) => each?.length ?? 0));
}

// Iterations and episodes are counted: no tick lies between two of them.
function whole(plot) {
  return plot.series.every((series) => series.x.every(Number.isInteger));
}

// Nothing where the pointer is not over the plot.
function text(value, share = false) {
  if (value === null || value === undefined) return "";
  if (share) return `${text(100 * value)}%`;
  const near = Number(value.toPrecision(4));
  if (near && Math.abs(near) < 1e-6) return near.toFixed(12).replace(/0+$/, "");
  return Math.abs(value) < 1000 ? String(near) : Math.round(value).toLocaleString("en");
}

// Room for intervals too; a curve that never changes is in the middle.
function range(plot, low, high) {
  const known = (name) => plot.series.flatMap((one) => one[name] ?? []).filter((value) => value !== null);
  low = Math.min(...[low, ...known("low")].filter((value) => value !== null));
  high = Math.max(...[high, ...known("high")].filter((value) => value !== null));
  const half = Math.abs(low) / 2 || 0.5;
  return low < high ? uPlot.rangeNum(low, high, 0.1, true) : low > high ? [0, 1] : [low - half, low + half];
}

function columns(plot) {
  const xs = [...new Set(plot.series.flatMap((series) => series.x))].sort((a, b) => a - b);
  const place = new Map(xs.map((x, number) => [x, number]));
  const series = plot.series.map((one) => {
    const faint = one.style === "faint";
    const stroke = colour(`c${one.colour}`, faint ? 0.35 : 1);
    return {
      label: one.name,
      stroke,
      width: faint ? 1 : 1.8,
      dash: one.style === "rule" ? [4, 4] : undefined,
      spanGaps: true,
      paths: one.style === "points" ? () => null : undefined,
      points: { show: one.style === "points" || one.y.filter((y) => y !== null).length === 1, size: 7, fill: stroke },
      value: (_, value) => text(value, plot.shares),
    };
  });
  const data = plot.series.map((one) => {
    const ys = new Array(xs.length).fill(one.style === "rule" ? one.y[0] : null);
    if (one.style !== "rule") one.x.forEach((x, number) => (ys[place.get(x)] = one.y[number]));
    return ys;
  });
  return { data: [xs, ...data], series };
}

// Intervals around values, as lines.
function whiskers(chart, plot) {
  const { ctx } = chart;
  plot.series.forEach((one, number) => {
    if (!one.low) return;
    ctx.save();
    ctx.strokeStyle = chart.series[number + 1].stroke();
    ctx.lineWidth = 1.5 * devicePixelRatio;
    ctx.beginPath();
    one.x.forEach((x, at) => {
      if (one.low[at] === null) return;
      const left = chart.valToPos(x, "x", true);
      ctx.moveTo(left, chart.valToPos(one.low[at], "y", true));
      ctx.lineTo(left, chart.valToPos(one.high[at], "y", true));
    });
    ctx.stroke();
    ctx.restore();
  });
}
