// Draws the run of a graph: its nodes coloured by time, and its memory over time. A node's layer is the
// length of the longest path to it from a first node. Within a layer, nodes are placed at the mean of their
// neighbours (barycentre heuristic: Sugiyama, Tagawa, Toda 1981).
'use strict';
const kMostDrawn = 2000;

// Adds an SVG element to the element with this id.
function drawIn(id, kind, attributes, text) {
  const made = document.createElementNS(element(id).namespaceURI, kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  element(id).append(made);
  return made;
}

function chooseNode(node) {
  for (let bar = 0; bar < count; ++bar)
    if (begin[bar] === node.begin && node.name.startsWith(`${texts[data.names[data.name[bar]][0]]} (`))
      return choose(bar);
}

function makeGraph(nodes) {
  const longest = nodes.reduce((most, node) => Math.max(most, node.end - node.begin), 1);
  const whole = nodes.reduce((sum, node) => sum + node.end - node.begin, 0) || 1;
  const share = node => Math.round((node.end - node.begin) / longest * 100);
  const tipOf = node => `${node.name}\n${duration(node.end - node.begin)}, ` +
      `${((node.end - node.begin) / whole * 100).toFixed(1)} % of all nodes\n` +
      `waited ${duration(node.begin - node.ready)} when it was ready`;
  let shown = nodes;
  const note = 'The darker, the longer; a blue frame: on the critical path. A click selects the run.';
  element('graph_note').textContent = note;
  if (nodes.length > kMostDrawn) {
    shown = [...nodes].sort((a, b) => b.end - b.begin - (a.end - a.begin)).slice(0, 100);
    shown = shown.map(node => ({...node, after: []}));
    element('graph_note').textContent =
        `Of ${nodes.length.toLocaleString('en')} nodes the 100 that took longest, without edges. ${note}`;
  }
  const wide = 150, tall = 26, gap = 14, down = 48;
  if (shown === nodes) placeInLayers(shown);
  else shown.forEach((node, i) => { node.layer = i >> 2; node.x = i % 4 - 1.5; });
  const most = shown.reduce((far, node) => Math.max(far, Math.abs(node.x)), 0);
  const across = (2 * most + 1) * (wide + gap) + gap;
  const deep = (shown.reduce((last, node) => Math.max(last, node.layer), 0) + 1) * down + gap;
  element('graph').setAttribute('viewBox', `0 0 ${across} ${deep}`);
  element('graph').setAttribute('width', across);
  element('graph').setAttribute('height', deep);
  const left = node => across / 2 + node.x * (wide + gap) - wide / 2;
  const top = node => gap + node.layer * down;
  for (const node of shown)
    for (const one of node.after) {
      const from = shown[one], x0 = left(from) + wide / 2, y0 = top(from) + tall;
      const x1 = left(node) + wide / 2, y1 = top(node), bend = (y1 - y0) / 2;
      const path = drawIn('graph', 'path',
                           {d: `M${x0} ${y0}C${x0} ${y0 + bend} ${x1} ${y1 - bend} ${x1} ${y1}`});
      if (from.critical && node.critical) path.classList.add('critical');
    }
  for (const node of shown) {
    const box = drawIn('graph', 'rect', {x: left(node), y: top(node), width: wide, height: tall,
                                          rx: 4, 'data-heat': share(node)});
    box.style.fill = `color-mix(in srgb, var(--custom) ${10 * Math.sqrt(share(node))}%, var(--panel))`;
    if (node.critical) box.classList.add('critical');
    const title = document.createElementNS(box.namespaceURI, 'title');
    title.textContent = tipOf(node);
    box.append(title);
    box.onclick = () => chooseNode(node);
    const name = node.name.length > 22 ? `${node.name.slice(0, 21)}…` : node.name;
    drawIn('graph', 'text', {x: left(node) + 6, y: top(node) + tall / 2 + 4}, name);
  }
}

function makePlan({begin: first, end: last, arena}, buffers) {
  const {steps, peak} = memoryOver(buffers);
  element('plan_section').hidden = peak.bytes === 0;
  if (peak.bytes === 0) return;
  const left = 70, right = 606, top = 10, bottom = 172, most = Math.max(peak.bytes, arena);
  const px = time => left + (time - first) / Math.max(last - first, 1) * (right - left);
  const py = bytes => bottom - bytes / most * (bottom - top);
  let path = `M${px(first)} ${bottom}`;
  for (const [time, live] of steps) path += `H${px(time)}V${py(live)}`;
  drawIn('plan', 'path', {class: 'area', d: `${path}H${right}V${bottom}Z`});
  if (arena > 0)
    drawIn('plan', 'line', {class: 'arena', x1: left, x2: right, y1: py(arena), y2: py(arena)});
  drawIn('plan', 'line', {class: 'axis', x1: left, x2: right, y1: bottom, y2: bottom});
  for (const [bytes, y] of [[peak.bytes, py(peak.bytes) + 4], [0, bottom]])
    drawIn('plan', 'text', {class: 'axis-text', x: left - 6, y, 'text-anchor': 'end'}, byteText(bytes));
  for (const [time, anchor] of [[first, 'start'], [last, 'end']])
    drawIn('plan', 'text', {class: 'axis-text', x: px(time), y: bottom + 18, 'text-anchor': anchor},
            duration(time - first));
  drawIn('plan', 'circle', {cx: px(peak.time), cy: py(peak.bytes), r: 4});
  element('peak').textContent = `The most is ${byteText(peak.bytes)} at ` +
      `${duration(peak.time - first)} of the run, in an arena of ${byteText(arena)} (dashed):`;
  const owners = buffers.filter(one => one.from <= peak.time && one.to > peak.time && one.bytes > 0);
  makeTable(element('owners'), owners, [
    {title: 'value', of: row => row.name, text: true},
    {title: 'made by', of: row => row.owner, text: true},
    {title: 'bytes', of: row => row.bytes, show: row => byteText(row.bytes)},
    {title: 'share', of: row => row.bytes,
     show: row => `${Math.round(row.bytes / peak.bytes * 100)} %`}], 2);
}

// Shows how long each process waited for others, and in which nodes.
function makeWaits(processes, waits) {
  element('processes_section').hidden = element('waits_section').hidden = processes.length === 0;
  if (processes.length === 0) return;
  makeTable(element('processes'), processes, [
    numberColumn('process', 'process'), timeColumn('run', 'ns'), timeColumn('waited', 'waited'),
    {title: 'share', of: row => row.waited / (row.ns || 1),
     show: row => `${Math.round(row.waited / (row.ns || 1) * 100)} %`}], 2);
  makeTable(element('waits'), waits, [
    textColumn('node', 'node'), numberColumn('process', 'process'),
    numberColumn('for process', 'peer'), timeColumn('waited', 'ns'),
    timeColumn('before it came', 'late')], 3);
}

if (data.run) {
  element('graph_section').hidden = false;
  makeGraph(data.run.nodes.map(([name, ready, from, to, critical, after]) =>
      ({name: texts[name], ready, begin: from, end: to, critical: critical === 1, after})));
  makePlan(data.run, data.run.buffers.map(([name, owner, bytes, from, to]) =>
      ({name: texts[name], owner: texts[owner], bytes, from, to})));
  makeWaits(data.run.processes.map(([ns, waited], process) => ({process, ns, waited})),
            data.run.waits.map(([node, process, peer, ns, late]) =>
                ({node: texts[node], process, peer, ns, late})));
}
