// Functions that need no page, so that tests can call them in Node.js.
'use strict';

// Decodes a list that has, for each of a few bars, the distance from the bar before and `width` values.
function entries(list, width) {
  const found = new Map();
  for (let i = 0, bar = 0; i < list.length; i += width + 1)
    found.set(bar += list[i], list.slice(i + 1, i + 1 + width));
  return found;
}
const sums = list => {
  let sum = 0;
  return Float64Array.from(list, value => sum += value);
};

// Returns the first index from `from` on whose value is above `limit`, in an ascending list.
function firstAbove(list, limit, from = 0) {
  let to = list.length;
  while (from < to) {
    const middle = (from + to) >> 1;
    if (list[middle] > limit) to = middle; else from = middle + 1;
  }
  return from;
}

const threeDigits = value => value.toFixed(value < 10 ? 3 : value < 100 ? 2 : 1);
const duration = ns => {
  const size = Math.abs(ns);
  if (size < 1e3) return `${Math.round(ns)} ns`;
  if (size < 1e6) return `${threeDigits(ns / 1e3)} µs`;
  if (size < 1e9) return `${threeDigits(ns / 1e6)} ms`;
  return `${threeDigits(ns / 1e9)} s`;
};
const amount = value => {
  if (value === null) return 'no number';
  const size = Math.abs(value);
  for (const [unit, letter] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']])
    if (size >= unit) return `${+(value / unit).toFixed(2)} ${letter}`;
  return `${+value.toFixed(3)}`;
};
const byteText = bytes => {
  const [unit, letters] = [[2 ** 30, ' GiB'], [2 ** 20, ' MiB'], [2 ** 10, ' KiB']]
      .find(([size]) => bytes >= size) || [1, ' B'];
  return `${+(bytes / unit).toPrecision(4)}${letters}`;
};

// Returns the text of a fact about a span that took `ns`. Work gets its rate; an amount of 0 gets no text.
const kFactTitles = {wait: 'waited', shapes: 'inputs', flops: 'operations', bytes: 'traffic'};
function factText(name, kind, value, texts, ns) {
  if (kind === 'text') return texts[value];
  if (kind === 'time') return duration(value);
  if (kind === 'flag') return 'yes';
  const unit = {flops: 'FLOP', bytes: 'B'}[name];
  if (!unit) return value.toLocaleString('en');
  if (!value) return '';
  return `${amount(value)}${unit}` + (ns > 0 ? `, ${amount(value / ns * 1e9)}${unit}/s` : '');
}

const kMostListed = 20;
const countText = (count, one) => `${count.toLocaleString('en')} ${one}${count === 1 ? '' : 's'}`;
const listText = names => names.slice(0, kMostListed).join(', ') +
    (names.length > kMostListed ? `, and ${(names.length - kMostListed).toLocaleString('en')} more` : '');

// Gives each node its layer, and its x: the number of places to the right of the middle.
function placeInLayers(nodes) {
  const layers = [], followers = nodes.map(() => []);
  nodes.forEach((node, i) => {
    node.layer = node.after.reduce((most, one) => Math.max(most, nodes[one].layer + 1), 0);
    node.after.forEach(one => followers[one].push(i));
    (layers[node.layer] ??= []).push(i);
  });
  const number = layer => layer.forEach((node, i) => nodes[node].x = i - (layer.length - 1) / 2);
  layers.forEach(number);
  const sort = (layer, neighbours) => {
    for (const i of layer) {
      const around = neighbours(i);
      nodes[i].middle = around.length === 0 ? nodes[i].x
          : around.reduce((sum, one) => sum + nodes[one].x, 0) / around.length;
    }
    layer.sort((a, b) => nodes[a].middle - nodes[b].middle);
    number(layer);
  };
  for (let sweep = 0; sweep < 4; ++sweep) {
    for (const layer of layers) sort(layer, i => nodes[i].after);
    for (const layer of [...layers].reverse()) sort(layer, i => followers[i]);
  }
}

// Returns the share of the machine's peak that a row reached, such as "71 % of L2".
function peakShare({of_peak, ceiling}) {
  const percent = of_peak * 100, text = `${percent.toFixed(percent < 1 ? 2 : percent < 10 ? 1 : 0)} % of ${ceiling}`;
  if (percent < 100.5) return text;
  return text + (ceiling === 'FMA' ? ' (fewer or narrower operations)' : ' (data nearer or unused)');
}

// Returns [time, bytes in use from then on] for each change, and the bytes and first time of the peak.
function memoryOver(buffers) {
  const changes = new Map();
  const add = (time, bytes) => changes.set(time, (changes.get(time) || 0) + bytes);
  for (const {bytes, from, to} of buffers) if (to > from) add(from, bytes), add(to, -bytes);
  const steps = [], peak = {bytes: 0, time: 0};
  let live = 0;
  for (const time of [...changes.keys()].sort((a, b) => a - b)) {
    live += changes.get(time);
    steps.push([time, live]);
    if (live > peak.bytes) peak.bytes = live, peak.time = time;
  }
  return {steps, peak};
}
