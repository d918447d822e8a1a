// Calls the functions of tools/report_page/functions.js, as scripts of the page do.
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import test from 'node:test';
import vm from 'node:vm';

const file = new URL('../../tools/report_page/functions.js', import.meta.url);
vm.runInThisContext(readFileSync(file, 'utf8'), {filename: file.pathname});
const of = name => vm.runInThisContext(name);

test('entries are found by the sum of their distances', () => {
  assert.deepEqual([...of('entries')([2, 10, 11, 3, 20, 21], 2)], [[2, [10, 11]], [5, [20, 21]]]);
  assert.deepEqual([...of('entries')([4, 1], 0)], [[4, []], [5, []]]);
  assert.deepEqual([...of('sums')([5, -2, 0])], [5, 3, 3]);
});

test('the first number above a limit', () => {
  const firstAbove = of('firstAbove');
  assert.equal(firstAbove([1, 2, 2, 5], 2), 3);
  assert.equal(firstAbove([1, 2, 2, 5], 0), 0);
  assert.equal(firstAbove([1, 2, 2, 5], 5), 4);
  assert.equal(firstAbove([1, 2, 2, 5], 0, 2), 2);
});

test('times and amounts have a unit that fits', () => {
  const duration = of('duration'), amount = of('amount'), byteText = of('byteText');
  assert.deepEqual([999, 1500, 12e6, 3.5e9, -2e3].map(duration),
                   ['999 ns', '1.500 µs', '12.00 ms', '3.500 s', '-2.000 µs']);
  assert.deepEqual([null, 12, 1234, 5e9].map(amount), ['no number', '12', '1.23 k', '5 G']);
  assert.deepEqual([100, 1536, 2 ** 30].map(byteText), ['100 B', '1.5 KiB', '1 GiB']);
  assert.equal(of('countText')(1, 'node'), '1 node');
  assert.equal(of('countText')(1200, 'node'), '1,200 nodes');
  assert.ok(of('listText')(Array.from({length: 25}, (_, i) => i)).endsWith('19, and 5 more'));
});

test('a fact is shown by its kind, work with its rate', () => {
  const factText = of('factText'), texts = ['', 'cuda:1'];
  assert.equal(factText('device', 'text', 1, texts, 10), 'cuda:1');
  assert.equal(factText('backend', 'text', 0, texts, 10), '');
  assert.equal(factText('wait', 'time', 2500, texts, 10), '2.500 µs');
  assert.equal(factText('open', 'flag', 1, texts, 10), 'yes');
  assert.equal(factText('cycles', 'count', 12345, texts, 10), '12,345');
  assert.equal(factText('flops', 'count', 1000, texts, 500), '1 kFLOP, 2 GFLOP/s');
  assert.equal(factText('bytes', 'count', 64, texts, 0), '64B');
  assert.equal(factText('flops', 'count', 0, texts, 10), '');
});

test('a node is in the layer below the last node that it waits for, and between its neighbours', () => {
  const nodes = [[], [], [0, 1], [2], [0, 3]].map(after => ({after}));
  of('placeInLayers')(nodes);
  assert.deepEqual(nodes.map(({layer}) => layer), [0, 0, 1, 2, 3]);
  assert.deepEqual(nodes.map(({x}) => Math.abs(x)), [0.5, 0.5, 0, 0, 0]);
});

test('a share of the peak names its ceiling, and says why it may be above it', () => {
  const shares = [[0.0007, 'memory'], [0.041, 'L1'], [0.714, 'L2'], [1.004, 'L3'], [1.18, 'L2'], [1.3, 'FMA']]
      .map(([of_peak, ceiling]) => of('peakShare')({of_peak, ceiling}));
  assert.deepEqual(shares, ['0.07 % of memory', '4.1 % of L1', '71 % of L2', '100 % of L3',
                            '118 % of L2 (data nearer or unused)',
                            '130 % of FMA (fewer or narrower operations)']);
});

test('memory over time, and its first peak', () => {
  const {steps, peak} = of('memoryOver')([{bytes: 64, from: 0, to: 30}, {bytes: 32, from: 10, to: 20},
                                          {bytes: 8, from: 5, to: 5}]);
  assert.deepEqual(steps, [[0, 64], [10, 96], [20, 64], [30, 0]]);
  assert.deepEqual(peak, {bytes: 96, time: 10});
});
