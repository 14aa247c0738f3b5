// Draws the curves of a cell with uPlot: answers over time, and latency by percentile.
'use strict';

const HEIGHT = 200;
// On paper there is half a column of an A4 page or of a letter, whatever the window.
const PAPER = { width: 320, height: 110 };
// Told apart without colour.
const DASHES = {
  bought: [],
  sold_out: [6, 3],
  already_ordered: [2, 2],
  refused: [10, 3, 2, 3],
  unknown: [12, 4],
};

// A colour as the style has it now.
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
}

function size(place) {
  const onPaper = document.documentElement.classList.contains('paper');
  return onPaper ? PAPER : { width: place.clientWidth, height: HEIGHT };
}

function axis(more) {
  return {
    stroke: colour('muted'),
    grid: { stroke: colour('line'), width: 1 },
    ticks: { stroke: colour('line'), width: 1 },
    font: '12px system-ui, sans-serif',
    ...more,
  };
}

function line(outcome, value) {
  return {
    label: t(outcome),
    stroke: colour(outcome),
    dash: DASHES[outcome],
    width: 2,
    points: { show: false },
    value,
  };
}

// Shades the times in which something was done to the cell.
function shade(faults) {
  return (plot) => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.fillStyle = colour('shade');
    for (const fault of faults) {
      const from = plot.valToPos(fault.begin_ns / 1e9, 'x', true);
      const until = plot.valToPos(fault.end_ns / 1e9, 'x', true);
      const left = Math.max(from, bbox.left);
      const right = Math.min(Math.max(until, from + 2), bbox.left + bbox.width);
      ctx.fillRect(left, bbox.top, Math.max(right - left, 0), bbox.height);
    }
    ctx.restore();
  };
}

// A line where the closing loads begin, which rates and latencies leave out.
function close(ns) {
  return (plot) => {
    const { ctx, bbox } = plot;
    const at = Math.round(plot.valToPos(ns / 1e9, 'x', true));
    if (ns == null || at > bbox.left + bbox.width) return;
    ctx.save();
    ctx.strokeStyle = colour('muted');
    ctx.lineWidth = 2;
    ctx.setLineDash([3, 5]);
    ctx.beginPath();
    ctx.moveTo(at, bbox.top);
    ctx.lineTo(at, bbox.top + bbox.height);
    ctx.stroke();
    ctx.restore();
  };
}

// The same dashes for the legend, along a short line.
function key(outcome) {
  const ink = colour(outcome);
  if (!DASHES[outcome].length) return ink;
  let at = 0;
  const stops = DASHES[outcome].map((length, index) => {
    const stop = `${index % 2 ? 'transparent' : ink} ${at}px ${at + length}px`;
    at += length;
    return stop;
  });
  return `repeating-linear-gradient(to right, ${stops.join(', ')})`;
}

function legend(outcomes) {
  return { markers: { width: 0, fill: (_, index) => key(outcomes[index - 1]) } };
}

// The highest of what came before the loads that close the round, which come as fast as they can:
// what a fault did would be flat beside them.
function highest(rates, step, closing) {
  const until = closing == null ? Infinity : Math.floor(closing / 1e9 / step);
  return Math.max(0, ...rates.flatMap((one) => one.slice(0, until)));
}

function course(place, { series, faults, closing_ns: closing }) {
  const outcomes = Object.keys(series.answers);
  const steps = outcomes.length ? series.answers[outcomes[0]].length : 0;
  const step = series.step_ms / 1000;
  const times = Array.from({ length: steps }, (_, index) => (index + 0.5) * step);
  const rates = outcomes.map((one) => series.answers[one].map((count) => count / step));
  const top = highest(rates, step, closing);
  const rate = (_, value) => (value == null ? '–' : Math.round(value) + '/s');
  const seconds = (_, value) => (value == null ? '–' : value.toFixed(2) + ' s');
  return new uPlot({
    ...size(place),
    scales: {
      x: { time: false, range: [0, Math.max(steps, 1) * step] },
      ...(top > 0 && { y: { range: [0, top * 1.1] } }),
    },
    legend: legend(outcomes),
    axes: [axis({ values: (_, marks) => marks.map((mark) => mark + ' s') }), axis({ size: 56 })],
    series: [{ label: t('time'), value: seconds }, ...outcomes.map((one) => line(one, rate))],
    hooks: { drawClear: [shade(faults), close(closing)] },
  }, [times, ...rates], place);
}

function duration(ms) {
  if (ms == null) return '';
  return ms < 1000 ? ms + ' ms' : ms / 1000 + ' s';
}

// Percentiles stand where 1 / (1 - part) is on a logarithmic scale, as HDR histograms are drawn:
// each step to the right asks for one more nine.
function latency(place, { latency: curves }) {
  const outcomes = Object.keys(curves);
  const parts = [...new Set(outcomes.flatMap((one) => curves[one].map((point) => point.part)))];
  parts.sort((a, b) => a - b);
  const told = parts.filter((part) => part < 1);
  const last = 1 / (1 - (told.at(-1) ?? 0));
  const at = (part) => (part < 1 ? 1 / (1 - part) : last * 2);
  const curve = (one) => {
    const known = new Map(curves[one].map((point) => [point.part, point.ms]));
    return parts.map((part) => known.get(part) ?? null);
  };
  const percent = (x) => (x > last * 1.5 ? t('longest') : +(100 - 100 / x).toFixed(3) + ' %');
  const ms = (_, value) => (value == null ? '–' : value.toFixed(1) + ' ms');
  const marks = [2, 10, 100, 1000, 10000].filter((mark) => mark <= last).concat([last * 2]);
  return new uPlot({
    ...size(place),
    scales: { x: { time: false, distr: 3, range: [1, last * 2.2] }, y: { distr: 3 } },
    legend: legend(outcomes),
    axes: [
      axis({ splits: () => marks, values: (_, xs) => xs.map(percent), filter: (_, xs) => xs }),
      axis({ size: 64, values: (_, ys) => ys.map(duration) }),
    ],
    series: [
      { label: t('percentile'), value: (_, x) => (x == null ? '–' : percent(x)) },
      ...outcomes.map((one) => ({ ...line(one, ms), spanGaps: true })),
    ],
  }, [parts.map(at), ...outcomes.map(curve)], place);
}
