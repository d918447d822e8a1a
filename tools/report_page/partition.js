// Shows what partitioners took: a table of subgraphs, and a table of the reasons why other nodes stay. Comes last: if
// the program's partition text is not JSON, only this script fails, and the rest of the page is complete.
'use strict';

function makeSubgraphs(subgraphs, nameOfNode) {
  const remarks = ({rejected, open_values: open, unknown_costs: unknown, own_ns: own, flat_ns: flat}) =>
      [rejected, open > 0 ? `${countText(open, 'value')} of open shape` : '',
       unknown > 0 ? `${countText(unknown, 'node')} of unknown cost` : '',
       own > 0 ? `measured: ${duration(own)}, ${duration(flat)} as the nodes` : '']
          .filter(text => text !== '').join('; ');
  const rows = subgraphs.map((one, number) => ({
    ...one, number, count: one.nodes.length, which: listText(one.nodes.map(nameOfNode)),
    node: one.name === '' ? one.op : `${one.op} (${one.name})`, reads: listText(one.inputs),
    makes: listText(one.outputs), remarks: remarks(one)}));
  const bytesColumn = (title, key) =>
      ({title, of: row => row[key], show: row => byteText(row[key])});
  const columns = [
    numberColumn('subgraph', 'number'), textColumn('operator', 'node'),
    textColumn('taken by', 'partitioner'), numberColumn('nodes', 'count'),
    textColumn('which', 'which'), textColumn('inputs', 'reads'), textColumn('outputs', 'makes'),
    bytesColumn('bytes in', 'input_bytes'), bytesColumn('bytes out', 'output_bytes'),
    numberColumn('flops', 'flops')];
  if (rows.some(row => row.remarks !== '')) columns.push(textColumn('remarks', 'remarks'));
  makeTable(element('subgraphs'), rows, columns, 9);
}

// Fills a table with a row for each reason of each partitioner, and the nodes that stay for it.
function makeStaying(nodes, nameOfNode) {
  const groups = new Map();
  nodes.forEach(({refused}, i) => {
    if (!refused) return;
    const reasons = Object.entries(refused);
    for (const [partitioner, why] of reasons.length > 0 ? reasons : [['', 'no partitioner took it']]) {
      const key = JSON.stringify([partitioner, why]);
      if (!groups.has(key)) groups.set(key, {partitioner, why, names: []});
      groups.get(key).names.push(nameOfNode(i));
    }
  });
  const rows = [...groups.values()].map(
      row => ({...row, count: row.names.length, which: listText(row.names)}));
  makeTable(element('staying'), rows, [
    textColumn('partitioner', 'partitioner'), textColumn('why', 'why'),
    numberColumn('nodes', 'count'), textColumn('which', 'which')], 2);
}

if (data.partition) {
  const {taken, of, subgraphs, nodes} = JSON.parse(data.partition);
  const nameOfNode = i => nodes[i].name === '' ? `${nodes[i].op} ${i}` : `${nodes[i].op} (${nodes[i].name})`;
  const accepted = subgraphs.filter(one => one.rejected === '').length;
  element('partition_note').textContent = `${taken.toLocaleString('en')} of ${countText(of, 'node')} taken, ` +
      `in ${countText(accepted, 'subgraph')}`;
  makeSubgraphs(subgraphs, nameOfNode);
  makeStaying(nodes, nameOfNode);
  element('partition_section').hidden = false;
}
