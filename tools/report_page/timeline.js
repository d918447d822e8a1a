// Decodes the data, draws the timeline, and handles the pointer and the keys.
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const element = id => document.getElementById(id);
const texts = data.texts;
// A bar is a span, or a time in which a custom operator's own code ran.
const nameOf = bar => texts[data.names[data.name[bar]][0]];
const isCustom = bar => texts[data.names[data.name[bar]][1]] === 'Custom Operators';

// ---- data: columns of all bars, sorted by thread and begin

const count = data.name.length;
const begin = sums(data.begin), id = sums(data.id);
const end = Float64Array.from(begin, (time, bar) => time + data.length[bar]);
const self = Float64Array.from(data.length);
const parentOf = bar => data.parent[bar] ? bar - data.parent[bar] : -1;
{
  const open = [], ownCode = entries(data.user_code, 0);
  for (let bar = 0; bar < count; ++bar) {
    const depth = data.depth[bar];
    if (depth > 0 && !ownCode.has(bar)) self[open[depth - 1]] -= data.length[bar];
    open[depth] = bar;
  }
}
const completed = entries(data.completed, 1), pushed = entries(data.pushed, 1);
// Facts that some bars have, by name: the same as in traces.
const facts = data.facts.map(({name, kind, bars}) => ({name: texts[name], kind, of: entries(bars, 1)}));
const counters = data.counters.map(({name, time, value}) => ({
  name: texts[name], time: sums(time), value,
  low: value.reduce((low, one) => Math.min(low, one), 0),
  high: value.reduce((high, one) => Math.max(high, one), 0),
}));
const lastTime = Math.max(data.duration, 1, end.reduce((last, time) => Math.max(last, time), 0),
                          [...completed].reduce((last, [bar, [time]]) =>
                              Math.max(last, begin[bar] + time), 0));

const threadName = thread =>
    `${texts[data.thread_names[thread]] || 'thread'} (${data.thread_ids[thread]})`;

// ---- rows: the bars of a row do not overlap and are sorted by time

const rows = [];  // {thread, bars, ends, y, asynchronous, marked}
const groups = [];  // {title, y, height} of each thread and of each counter
const kBarHeight = 18, kCounterHeight = 42, kGutter = 150, kRuler = 42, kGap = 8;
let contentHeight = kRuler;
const counterTop = counters.map(({name}) => {
  groups.push({title: name, y: contentHeight, height: kCounterHeight});
  return (contentHeight += kCounterHeight) - kCounterHeight;
});
{
  const addRow = (thread, bars, ends, asynchronous) => {
    rows.push({thread, bars: Uint32Array.from(bars), ends: Float64Array.from(ends), asynchronous,
               marked: null, y: contentHeight});
    contentHeight += kBarHeight;
  };
  let bar = 0;
  for (let thread = 0; thread < data.thread_ids.length; ++thread) {
    const depths = [], lanes = [];
    for (; bar < count && data.thread[bar] === thread; ++bar) {
      (depths[data.depth[bar]] ??= []).push(bar);
      if (!completed.has(bar)) continue;
      const done = begin[bar] + completed.get(bar)[0];
      let lane = lanes.find(({ends}) => ends.at(-1) <= begin[bar]);
      if (!lane) lanes.push(lane = {bars: [], ends: []});
      lane.bars.push(bar);
      lane.ends.push(done);
    }
    if (depths.length === 0) continue;
    contentHeight += kGap;
    const y = contentHeight;
    for (const bars of depths) addRow(thread, bars, bars.map(one => end[one]), false);
    for (const {bars, ends} of lanes) addRow(thread, bars, ends, true);
    groups.push({title: threadName(thread), y, height: contentHeight - y});
  }
}
const rowOf = new Uint32Array(count);
rows.forEach((row, index) => row.asynchronous || row.bars.forEach(bar => rowOf[bar] = index));

// ---- colours: cool ones, and warm ones for custom operators

const colours = {};
let palette = [];
function readColours() {
  const style = getComputedStyle(document.documentElement);
  const names = ['back', 'panel', 'line', 'text', 'faint', 'custom', 'choice', 'frame', 'plot'];
  for (const name of names) colours[name] = style.getPropertyValue(`--${name}`);
  const dark = matchMedia('(prefers-color-scheme: dark)').matches;
  palette = data.names.map(([text, domain]) => {
    let hash = 0;
    for (const letter of texts[text]) hash = (Math.imul(hash, 31) + letter.codePointAt(0)) >>> 0;
    const custom = texts[domain] === 'Custom Operators';
    const spread = Math.imul(hash, 2654435761) >>> 0;
    const hue = custom ? 12 + spread % 36 : 85 + spread % 230;
    const light = (dark ? 34 : 70) + (spread >>> 8) % 12;
    const full = `hsl(${hue} ${custom ? 85 : dark ? 38 : 48}% ${light}%)`;
    return {full, faint: `hsl(${hue} 12% ${dark ? 22 : 91}%)`};
  });
}

// ---- drawing

const canvas = document.querySelector('canvas'), pen = canvas.getContext('2d', {alpha: false});
const view = {from: 0, to: lastTime, top: 0};
let width = 0, height = 0, selected = -1, hovered = null, marked = null, drawn = 0, frame = 0;
const xOf = time => kGutter + (time - view.from) / (view.to - view.from) * (width - kGutter);
const timeOf = x => view.from + (x - kGutter) / (width - kGutter) * (view.to - view.from);
const redraw = () => frame ||= requestAnimationFrame(draw);

const letter = {};  // width: mean width of a letter
const kFont = '11px system-ui, "DejaVu Sans", sans-serif';
function fitted(text, space) {
  letter.width ??= pen.measureText('abcdefghijklmnopqrstuvwxyz_:AEO').width / 31;
  const letters = Math.floor(space / letter.width);
  return text.length <= letters ? text : letters < 3 ? '' : text.slice(0, letters - 1) + '…';
}

// Draws bars that are narrower than a pixel, and that end in the same pixel, as one bar.
function drawBars(row, bars, ends, faint) {
  const y = row.y - view.top, tall = kBarHeight - (row.asynchronous ? 7 : 2);
  for (let i = firstAbove(ends, view.from); i < bars.length; ++drawn) {
    const bar = bars[i], left = Math.max(xOf(begin[bar]), kGutter - 4), right = xOf(ends[i]);
    if (left > width) break;
    const pair = palette[data.name[bar]];
    pen.fillStyle = faint ? pair.faint : pair.full;
    const wide = right - left;
    if (wide < 1) {
      const pixel = Math.floor(left);
      pen.fillRect(pixel, y, 1, tall);
      if (isCustom(bar) && !faint) stripe(pixel, y + tall, 1);
      i = Math.max(i + 1, firstAbove(ends, timeOf(pixel + 1), i));
      continue;
    }
    const shown = Math.min(right, width + 4) - left - (wide > 3 ? 1 : 0);  // leaves a gap
    pen.fillRect(left, y, shown, tall);
    if (isCustom(bar) && !faint) stripe(left, y + tall, shown);
    const space = Math.min(right, width) - Math.max(left, kGutter) - 8;
    if (space > 18 && !row.asynchronous) {
      pen.fillStyle = faint ? colours.faint : colours.text;
      pen.fillText(fitted(nameOf(bar), space), Math.max(left, kGutter) + 4, y + tall / 2);
    }
    ++i;
  }
}
function stripe(left, bottom, wide) {
  pen.fillStyle = colours.custom;
  pen.fillRect(left, bottom - 2, wide, 2);
}

function outline(bar) {
  for (const row of rows) {
    const i = row.thread === data.thread[bar] ? row.bars.indexOf(bar) : -1;
    if (i < 0) continue;
    const left = Math.max(xOf(begin[bar]), kGutter - 4);
    const right = Math.min(xOf(row.ends[i]), width + 4);
    pen.strokeStyle = colours.choice;
    pen.lineWidth = 2;
    if (right >= kGutter && left <= width)
      pen.strokeRect(left - 1, row.y - view.top - 1, Math.max(right - left, 1) + 2,
                     kBarHeight - (row.asynchronous ? 5 : 0));
  }
  if (!pushed.has(bar) || pushed.get(bar)[1] < 0) return;
  const [wait, pusher] = pushed.get(bar);  // draw a line from the push to the run
  const source = rows.find(row => row.thread === pusher);
  if (!source) return;
  pen.beginPath();
  pen.moveTo(xOf(begin[bar] - wait), source.y - view.top + kBarHeight / 2);
  pen.lineTo(xOf(begin[bar]), rows[rowOf[bar]].y - view.top + kBarHeight / 2);
  pen.stroke();
}

// Draws the smallest and the largest value of a counter in each pixel, and the line between pixels.
function drawCounter({time, value, low, high}, top) {
  const bottom = top + kCounterHeight - 6, tall = kCounterHeight - 12, range = high - low || 1;
  const yOf = one => bottom - (one - low) / range * tall;
  pen.strokeStyle = pen.fillStyle = colours.plot;
  pen.lineWidth = 1;
  pen.beginPath();
  let i = Math.max(firstAbove(time, view.from) - 1, 0), last = null;
  while (i < time.length) {
    const x = Math.max(xOf(time[i]), kGutter), next = timeOf(Math.floor(x) + 1);
    if (x > width) break;
    let least = Infinity, most = -Infinity, value_ = last;
    const before = last;
    for (; i < time.length && (time[i] < next || least === Infinity); ++i) {
      value_ = value[i];
      if (value_ === null) continue;
      least = Math.min(least, value_);
      most = Math.max(most, value_);
      if (time[i] >= next) { ++i; break; }
    }
    if (before !== null) pen.lineTo(x, yOf(before));
    if (least <= most) {
      if (before === null) pen.moveTo(x, yOf(least));
      pen.lineTo(x, yOf(least));
      pen.lineTo(x, yOf(most));
    }
    if (value_ !== null) pen.lineTo(x, yOf(value_));
    last = value_;
  }
  if (last !== null) pen.lineTo(Math.min(xOf(lastTime), width), yOf(last));
  pen.stroke();
}

function drawRuler() {
  pen.fillStyle = colours.panel;
  pen.fillRect(0, 0, width, kRuler);
  const goal = (view.to - view.from) / Math.max((width - kGutter) / 110, 1);
  const power = 10 ** Math.floor(Math.log10(goal));
  const step = Math.max(power * [1, 2, 5, 10].find(factor => factor * power >= goal), 1);
  pen.fillStyle = colours.faint;
  pen.strokeStyle = colours.line;
  pen.lineWidth = 1;
  pen.beginPath();
  for (let time = Math.ceil(view.from / step) * step; time <= view.to; time += step) {
    const x = Math.round(xOf(time)) + 0.5;
    pen.moveTo(x, 22);
    pen.lineTo(x, height);
    pen.fillText(duration(time), x + 4, 12);
  }
  pen.stroke();
}

function drawMarkers() {
  let lastPixel = -1, free = kGutter;
  const first = firstAbove(data.marker_time, view.from - 1);
  for (let i = first; i < data.marker_time.length; ++i) {
    const x = xOf(data.marker_time[i]), pixel = Math.round(x);
    if (x > width) break;
    if (x < kGutter || pixel === lastPixel) continue;
    lastPixel = pixel;
    pen.fillStyle = colours[data.marker_frame[i] ? 'frame' : 'choice'];
    pen.globalAlpha = 0.55;
    pen.fillRect(pixel, 22, 1, height);
    pen.globalAlpha = 1;
    if (pixel < free) continue;
    const text = texts[data.marker_name[i]].slice(0, 30);
    pen.fillText(text, pixel + 3, 32);
    free = pixel + 12 + pen.measureText(text).width;
  }
}

function draw() {
  frame = 0;
  drawn = 0;
  pen.font = kFont;
  pen.textBaseline = 'middle';
  pen.fillStyle = colours.back;
  pen.fillRect(0, 0, width, height);
  drawRuler();
  pen.save();
  pen.beginPath();
  pen.rect(0, kRuler, width, height - kRuler);
  pen.clip();
  counters.forEach((counter, i) => drawCounter(counter, counterTop[i] - view.top));
  for (const row of rows) {
    if (row.y + kBarHeight < view.top + kRuler || row.y > view.top + height) continue;
    drawBars(row, row.bars, row.ends, marked !== null);
    if (row.marked) drawBars(row, row.marked.bars, row.marked.ends, false);
  }
  if (selected >= 0) outline(selected);
  for (const {title, y, height: tall} of groups) {
    const top = y - view.top;
    pen.fillStyle = colours.panel;
    pen.fillRect(0, top - kGap / 2, kGutter, tall + kGap);
    pen.fillStyle = colours.line;
    pen.fillRect(0, top - kGap / 2, width, 1);
    pen.fillStyle = colours.text;
    pen.fillText(fitted(title, kGutter - 12), 8, Math.max(top, kRuler) + kBarHeight / 2);
  }
  pen.restore();
  drawMarkers();
}

// ---- moving

function show(from, to) {
  const length = Math.min(Math.max(to - from, 20), lastTime * 1.02);
  const start = Math.min(Math.max(from, -0.01 * lastTime), lastTime * 1.01 - length);
  view.from = start;
  view.to = start + length;
  redraw();
}
function scrollTo(top) {
  view.top = Math.max(0, Math.min(top, contentHeight + kGap - height));
  redraw();
}
function zoom(factor, x = (width + kGutter) / 2) {
  const time = timeOf(x);
  show(time - (time - view.from) * factor, time + (view.to - time) * factor);
}
function pan(part) {
  const shift = part * (view.to - view.from);
  show(view.from + shift, view.to + shift);
}
const showAll = () => show(-0.005 * lastTime, lastTime * 1.005);
function zoomTo(bar) {
  const length = Math.max(data.length[bar], 20);
  show(begin[bar] - length / 4, end[bar] + length / 4);
}
// Moves the view so that the bar is visible.
function reveal(bar) {
  const x = xOf(begin[bar]), {y} = rows[rowOf[bar]], visible = view.to - view.from;
  if (xOf(end[bar]) - x < 2) zoomTo(bar);
  else if (x < kGutter || x > width - 40)
    show(begin[bar] - visible / 4, begin[bar] + visible * 3 / 4);
  if (y - view.top < kRuler || y - view.top > height - kBarHeight) scrollTo(y - height / 2);
}
function resize() {
  const scale = window.devicePixelRatio || 1, box = canvas.getBoundingClientRect();
  width = box.width;
  height = box.height;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  scrollTo(view.top);
}

// Returns the bar at a point, or within two pixels of it; -1 for none.
function barAt(x, y) {
  if (x < kGutter || y < kRuler) return -1;
  const row = rows.find(({y: top}) => y + view.top >= top && y + view.top < top + kBarHeight);
  for (const slack of row ? [0, 2] : []) {
    const bar = row.bars[firstAbove(row.ends, timeOf(x - slack))];
    if (begin[bar] <= timeOf(x + slack)) return bar;
  }
  return -1;
}

// ---- selection, hover and marks

function addTerm(list, term, value) {
  const dt = document.createElement('dt'), dd = document.createElement('dd');
  dt.textContent = term;
  dd.append(value);
  list.append(dt, dd);
}
function button(text, action) {
  const made = document.createElement('button');
  made.textContent = text;
  made.onclick = action;
  return made;
}
function select(bar) {
  selected = bar;
  const details = element('details');
  details.replaceChildren();
  redraw();
  if (bar < 0) return;
  const title = document.createElement('h2'), list = document.createElement('dl');
  title.textContent = nameOf(bar);
  const [, domain] = data.names[data.name[bar]];
  addTerm(list, 'domain', texts[domain]);
  if (texts[data.node[bar]]) addTerm(list, 'node', texts[data.node[bar]]);
  addTerm(list, 'start', duration(begin[bar]));
  addTerm(list, 'duration', duration(data.length[bar]));
  addTerm(list, 'self time', duration(self[bar]));
  if (completed.has(bar)) addTerm(list, 'completed after', duration(completed.get(bar)[0]));
  addTerm(list, 'thread', threadName(data.thread[bar]));
  if (pushed.has(bar)) addTerm(list, 'pushed by', threadName(pushed.get(bar)[0]));
  const time = completed.has(bar) ? completed.get(bar)[0] : data.length[bar];
  for (const {name, kind, of} of facts) {
    const text = of.has(bar) ? factText(name, kind, of.get(bar)[0], texts, time) : '';
    if (text) addTerm(list, kFactTitles[name] || name, text);
  }
  addTerm(list, 'id', String(id[bar]));
  const parent = parentOf(bar);
  addTerm(list, 'parent', parent < 0 ? 'none' : button(nameOf(parent), () => choose(parent)));
  details.append(title, list, button('Zoom to it', () => zoomTo(bar)));
}
function choose(bar) {
  if (bar < 0) return;
  select(bar);
  reveal(bar);
}

// Marks the bars whose name passes the test; with `nodes` also those whose node does. null removes all marks.
function mark(test, nodes) {
  marked = null;
  let total = 0;
  if (test) {
    const hits = texts.map(test);
    marked = bar => hits[data.names[data.name[bar]][0]] || (nodes && hits[data.node[bar]]);
  }
  for (const row of rows) {
    row.marked = null;
    if (!test) continue;
    const places = [];
    row.bars.forEach((bar, i) => marked(bar) && places.push(i));
    row.marked = {bars: places.map(i => row.bars[i]), ends: places.map(i => row.ends[i])};
    if (!row.asynchronous) total += places.length;
  }
  element('found').textContent = test ? `${total.toLocaleString('en')} found` : '';
  redraw();
}
// Selects the next marked bar, by thread and begin; if no bar is marked, the next of all bars.
function step(by) {
  let bar = selected < 0 && by < 0 ? count : selected;
  do bar += by; while (bar >= 0 && bar < count && marked && !marked(bar));
  if (bar >= 0 && bar < count) choose(bar);
}

function tipText(x, y) {
  const time = timeOf(x);
  if (x >= kGutter && y < kRuler) {
    const i = firstAbove(data.marker_time, timeOf(x - 4)), at = data.marker_time[i];
    return at <= timeOf(x + 4) ? `${texts[data.marker_name[i]]}\n${duration(at)}` : '';
  }
  const group = groups.find(({y: top, height: tall}) =>
      y >= kRuler && y + view.top >= top && y + view.top < top + tall);
  if (x < kGutter) return group ? group.title : '';
  const index = groups.indexOf(group);
  if (index >= 0 && index < counters.length) {
    const {name, time: times, value} = counters[index], i = firstAbove(times, time) - 1;
    return i < 0 ? '' : `${name}: ${amount(value[i])}\n${duration(time)}`;
  }
  const bar = barAt(x, y);
  if (bar < 0) return '';
  const node = texts[data.node[bar]];
  return `${nameOf(bar)}${node ? `\n${node}` : ''}\n${duration(data.length[bar])}` +
      (self[bar] < data.length[bar] ? `, self ${duration(self[bar])}` : '') +
      (completed.has(bar) ? `, completed after ${duration(completed.get(bar)[0])}` : '') +
      `\nat ${duration(begin[bar])}`;
}
function showTip(x, y) {
  const tip = element('tip'), text = tipText(x, y);
  tip.hidden = !text;
  tip.textContent = text;
  tip.style.left = `${Math.max(0, Math.min(x + 14, width - tip.offsetWidth - 4))}px`;
  tip.style.top = `${y + 22 + tip.offsetHeight > height ? y - tip.offsetHeight - 8 : y + 18}px`;
}

// ---- input of the user

let drag = null;
const point = event => {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
};
canvas.onpointerdown = event => {
  const [x, y] = point(event);
  drag = {x, y, from: view.from, to: view.to, top: view.top, moved: false};
  canvas.setPointerCapture(event.pointerId);
};
canvas.onpointermove = event => {
  const [x, y] = point(event);
  if (!drag) return showTip(x, y);
  drag.moved ||= Math.hypot(x - drag.x, y - drag.y) > 3;
  if (!drag.moved) return;
  element('tip').hidden = true;
  const shift = (drag.x - x) / (width - kGutter) * (drag.to - drag.from);
  show(drag.from + shift, drag.to + shift);
  scrollTo(drag.top + drag.y - y);
};
canvas.onpointerup = event => {
  if (drag && !drag.moved) select(barAt(...point(event)));
  drag = null;
};
canvas.onpointercancel = () => drag = null;
canvas.onpointerleave = () => element('tip').hidden = true;
canvas.ondblclick = () => selected >= 0 && zoomTo(selected);
canvas.addEventListener('wheel', event => {
  event.preventDefault();
  const [x] = point(event), unit = event.deltaMode === 0 ? 1 : 33;
  if (event.shiftKey) scrollTo(view.top + (event.deltaY || event.deltaX) * unit);
  else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX * unit / width);
  else zoom(Math.exp(event.deltaY * unit * 0.002), Math.max(x, kGutter));
  element('tip').hidden = true;
}, {passive: false});

const clear = () => {
  element('search').value = '';
  mark(null);
  select(-1);
};
const keys = {
  ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15),
  ArrowUp: () => scrollTo(view.top - 40), ArrowDown: () => scrollTo(view.top + 40),
  '+': () => zoom(0.6), '=': () => zoom(0.6), '-': () => zoom(1 / 0.6), '0': showAll,
  n: () => step(1), p: () => step(-1), u: () => selected >= 0 && choose(parentOf(selected)),
  Enter: () => selected >= 0 && zoomTo(selected), Escape: clear,
};
canvas.onkeydown = event => {
  if (!keys[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  keys[event.key]();
};
element('search').oninput = event => {
  const part = event.target.value.toLowerCase();
  mark(part ? text => text.toLowerCase().includes(part) : null, true);
};
element('search').onkeydown = event => {
  if (event.key === 'Enter') step(event.shiftKey ? -1 : 1);
  if (event.key === 'Escape') clear();
};
element('closer').onclick = () => zoom(0.6);
element('wider').onclick = () => zoom(1 / 0.6);
element('whole').onclick = showAll;
