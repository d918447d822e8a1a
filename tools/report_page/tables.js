// Makes the tables and the roofline under the timeline.
'use strict';

// A column is {title, of(row), show(row), text}; rows are sorted by `of`, first by column `sorted`.
function makeTable(table, rowList, columns, sorted, onRow) {
  const head = table.createTHead().insertRow(), body = table.createTBody();
  let falling = true, all = [...rowList];
  const fill = () => {
    const {of} = columns[sorted];
    const order = (a, b) => typeof a === 'string' ? a.localeCompare(b) : a - b;
    all.sort((a, b) => order(of(a), of(b)) * (falling ? -1 : 1));
    body.replaceChildren();
    for (const row of all) {
      const line = body.insertRow();
      for (const {of: value, show: shown, text, custom} of columns) {
        const cell = line.insertCell();
        cell.append(shown ? shown(row) : value(row));
        if (text) cell.className = 'text';
        if (text) cell.title = cell.textContent;
        if (custom && row.domain === 'Custom Operators') cell.classList.add('custom');
      }
      if (!onRow) continue;
      const pick = () => {
        const off = line.ariaSelected === 'true';
        for (const other of body.rows) other.ariaSelected = 'false';
        line.ariaSelected = String(!off);
        onRow(off ? null : row);
      };
      line.tabIndex = 0;
      line.onclick = pick;
      line.onkeydown = event => event.key === 'Enter' && pick();
    }
    [...head.cells].forEach((cell, i) =>
      cell.ariaSort = i !== sorted ? 'none' : falling ? 'descending' : 'ascending');
  };
  columns.forEach(({title, text}, i) => {
    const cell = document.createElement('th');
    cell.scope = 'col';
    if (text) cell.className = 'text';
    cell.append(button(title, () => {
      falling = sorted === i ? !falling : !text;
      sorted = i;
      fill();
    }));
    head.append(cell);
  });
  fill();
}
const timeColumn = (title, key) => ({title, of: row => row[key], show: row => duration(row[key])});
const numberColumn = (title, key) =>
    ({title, of: row => row[key], show: row => row[key].toLocaleString('en')});
const textColumn = (title, key) => ({title, of: row => row[key], text: true, custom: true});

// Draws the roofline: each operator by operations per byte and by rate, under the machine's limits.
function makeRoofline() {
  const {flops, bytes, caches} = data.peak, left = 52, right = 606, top = 10, bottom = 292;
  const points = data.table.rows.filter(row => row.flops > 0 && row.bytes > 0 && row.total_ns > 0)
      .map(row => ({row, x: row.flops / row.bytes, y: row.flops / row.total_ns * 1e9}));
  element('roofline_section').hidden = !(flops > 0 && bytes > 0 && points.length > 0);
  if (element('roofline_section').hidden) return;
  const log = Math.log10, ridge = flops / bytes;
  const range = values => [Math.floor(log(Math.min(...values))), Math.ceil(log(Math.max(...values)))];
  const [x0, x1] = range([ridge / 10, ridge * 10, ...points.map(point => point.x)]);
  const [y0, y1] = range([flops / 1000, flops, ...points.map(point => point.y)]);
  const px = x => left + (log(x) - x0) / (x1 - x0) * (right - left);
  const py = y => bottom - (log(y) - y0) / (y1 - y0) * (bottom - top);
  const add = (kind, attributes, text) => {
    const made = document.createElementNS(element('roofline').namespaceURI, kind);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text) made.textContent = text;
    element('roofline').append(made);
    return made;
  };
  const line = (xa, ya, xb, yb) => add('line', {class: 'axis', x1: xa, y1: ya, x2: xb, y2: yb});
  for (let x = x0; x <= x1; ++x) {
    line(px(10 ** x), top, px(10 ** x), bottom);
    add('text', {class: 'axis-text', x: px(10 ** x), y: bottom + 15, 'text-anchor': 'middle'},
        String(+(10 ** x).toPrecision(1)));
  }
  for (let y = y0; y <= y1; ++y) {
    line(left, py(10 ** y), right, py(10 ** y));
    add('text', {class: 'axis-text', x: left - 6, y: py(10 ** y) + 4, 'text-anchor': 'end'},
        String(+(10 ** (y - 9)).toPrecision(1)));
  }
  add('text', {class: 'axis-text', x: (left + right) / 2, y: bottom + 32, 'text-anchor': 'middle'},
      'operations for each byte');
  add('text', {class: 'axis-text', x: 12, y: (top + bottom) / 2, 'text-anchor': 'middle',
               transform: `rotate(-90 12 ${(top + bottom) / 2})`}, 'GFLOP/s');
  const levels = [...caches, {name: 'memory', bytes}].filter(level => level.bytes > 0);
  levels.forEach((level, i) => {
    const low = Math.max(10 ** x0, 10 ** y0 / level.bytes);
    const end = Math.max(low, flops / level.bytes), first = Math.min(low * level.bytes, flops);
    // The first level's line goes on along the rate of arithmetic.
    add('path', {class: 'roof', d: `M${px(low)} ${py(first)}L${px(end)} ${py(flops)}` +
                                   (i === 0 ? `L${right} ${py(flops)}` : '')});
    if (caches.length && first < flops)
      add('text', {class: 'axis-text', x: px(low) + 10, y: py(first) + 12}, level.name);
  });
  const longest = Math.max(...points.map(({row}) => row.total_ns));
  points.sort((a, b) => b.row.total_ns - a.row.total_ns);
  points.forEach(({row, x, y}, i) => {
    const size = 3 + 9 * Math.sqrt(row.total_ns / longest);
    const circle = add('circle', {cx: px(x), cy: py(y), r: size});
    if (row.domain === 'Custom Operators') circle.classList.add('custom');
    const title = document.createElementNS(circle.namespaceURI, 'title');
    title.textContent = `${row.name}: ${(y / 1e9).toPrecision(3)} GFLOP/s, ` +
        `${(row.bytes / row.total_ns).toPrecision(3)} GB/s, ${peakShare(row)}`;
    circle.append(title);
    const end = px(x) > right - 90;
    if (i < 6) add('text', {x: px(x) + (end ? -size - 3 : size + 3), y: py(y) + 4,
                            'text-anchor': end ? 'end' : 'start'}, row.name);
  });
}

function makeTables() {
  const {rows: names, domains, memory} = data.table;
  const columns = [
    textColumn('name', 'name'),
    ...[['node', 'node'], ['inputs', 'shapes'], ['backend', 'backend']]
        .filter(([, key]) => names.some(row => row[key])).map(column => textColumn(...column)),
    textColumn('domain', 'domain'), numberColumn('count', 'count'),
    timeColumn('total', 'total_ns'), timeColumn('self', 'self_ns'), timeColumn('mean', 'mean_ns'),
    timeColumn('min', 'min_ns'), timeColumn('p50', 'p50_ns'), timeColumn('p90', 'p90_ns'),
    timeColumn('p99', 'p99_ns'), timeColumn('max', 'max_ns')];
  const rate = (row, key) => row.total_ns > 0 ? row[key] / row.total_ns : 0;
  for (const [title, key] of [['GFLOP/s', 'flops'], ['GB/s', 'bytes']])
    if (names.some(row => row[key] > 0))
      columns.push({title, of: row => rate(row, key),
                    show: row => row[key] ? String(+rate(row, key).toPrecision(3)) : ''});
  if (names.some(row => row.of_peak > 0))
    columns.push({title: 'of peak', of: row => row.of_peak,
                  show: row => row.of_peak ? peakShare(row) : ''});
  if (names.some(row => row.allocated > 0)) columns.push(numberColumn('allocated', 'allocated'));
  makeTable(element('rows'), names, columns, columns.findIndex(({title}) => title === 'total'), row => {
    element('search').value = '';
    mark(row ? text => text === row.name : null, false);
  });
  const whole = domains.reduce((sum, row) => sum + row.self_ns, 0) || 1;
  makeTable(element('domains'), domains, [
    textColumn('domain', 'domain'), numberColumn('count', 'count'), timeColumn('self', 'self_ns'),
    {title: 'share', of: row => row.self_ns,
     show: row => `${(row.self_ns / whole * 100).toFixed(1)} %`},
    {title: '', of: row => row.self_ns, text: true, show: row => {
      const share = document.createElement('span');
      share.className = 'share';
      share.style.width = `${row.self_ns / whole * 120}px`;
      return share;
    }}], 2);
  element('memory_section').hidden = memory.length === 0;
  makeTable(element('memory'), memory, [
    textColumn('allocator', 'allocator'), numberColumn('allocations', 'allocations'),
    ...['allocated', 'peak', 'live'].map(key => numberColumn(`${key} bytes`, key))], 2);
}
