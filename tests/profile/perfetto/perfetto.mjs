// Asks Perfetto's trace processor about a trace:
//   node perfetto.mjs ENGINE TRACE
// ENGINE is the folder of engine_bundle.js, a web worker, and of its trace_processor.wasm. Each line
// of standard input is an SQL query, as a JSON string; standard output answers it by a line
// {"rows": [[…], …]} or {"error": "…"}. What the worker logs goes to standard error.
import {readFileSync} from "node:fs";
import {join} from "node:path";
import {createInterface} from "node:readline";

// --- the wire format of protocol buffers

const varint = (value) => {
  const bytes = [];
  for (let rest = BigInt.asUintN(64, BigInt(value)); ; rest >>= 7n) {
    if (rest < 128n) return Buffer.from([...bytes, Number(rest)]);
    bytes.push(Number(rest & 127n) | 128);
  }
};
const integerField = (number, value) => Buffer.concat([varint(number << 3), varint(value)]);
const bytesField = (number, bytes) =>
    Buffer.concat([varint((number << 3) | 2), varint(bytes.length), bytes]);

class Reader {
  constructor(bytes) {
    this.bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at = 0;
  }
  get ended() { return this.at >= this.bytes.length; }
  varint() {
    let value = 0n;
    for (let shift = 0n;; shift += 7n) {
      const byte = this.bytes[this.at++];
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return BigInt.asIntN(64, value);
    }
  }
  double() {
    this.at += 8;
    return this.bytes.readDoubleLE(this.at - 8);
  }
  take(length) {
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }
  // [number, value] of each field; the value is a BigInt or bytes.
  *fields() {
    while (!this.ended) {
      const tag = Number(this.varint());
      const type = tag & 7;
      if (type === 0) yield [tag >> 3, this.varint()];
      else yield [tag >> 3, this.take(type === 1 ? 8 : type === 5 ? 4 : Number(this.varint()))];
    }
  }
}

// --- trace_processor.proto: the numbers of its fields and methods

const RPC = {seq: 1, request: 2, response: 3, fatalError: 5, appendTraceData: 101,
             queryArgs: 103, appendResult: 201, queryResult: 203};
const APPEND = 1, FINALIZE = 2, QUERY = 3;

// The cells of a batch, in the order of rows; each type has its values in a field of its own.
function cellsOf(batch) {
  const fields = new Map(new Reader(batch).fields());
  const of = (number) => fields.get(number) ?? Buffer.alloc(0);
  const integers = new Reader(of(2)), doubles = new Reader(of(3));
  const strings = of(5).toString().split("\0");
  return [...of(1)].map((type) => {
    if (type === 1) return null;
    if (type === 2) return Number(integers.varint());
    if (type === 3) return doubles.double();
    if (type === 4) return strings.shift();
    throw new Error(`a cell of type ${type}`);
  });
}

// --- the worker

// Runs the script as the web worker that it was made to be; returns a function that sends it one
// request and returns the replies to it, which come before the request returns.
async function startWorker(folder) {
  let replies = [];
  const port = {postMessage: (bytes) => replies.push(bytes)};
  const worker = {location: {href: "http://localhost/"}};
  const log = (...words) => console.error(...words);
  const globals = {
    self: worker,
    WorkerGlobalScope: class {},
    process: undefined,  // no sign of Node
    console: {log, warn: log, error: log},
    XMLHttpRequest: class {
      open(method, name) { this.name = name; }
      send() { this.response = readFileSync(join(folder, this.name)); }
    },
  };
  const script = readFileSync(join(folder, "engine_bundle.js"), "utf8");
  new Function(...Object.keys(globals), script)(...Object.values(globals));
  await new Promise(setImmediate);  // what the worker's promises do by now is its preparation
  worker.onmessage({data: port});
  let sent = 0;
  return (method, ...parts) => {
    replies = [];
    const message =
        Buffer.concat([integerField(RPC.seq, sent++), integerField(RPC.request, method), ...parts]);
    port.onmessage({data: new Uint8Array(bytesField(1, message))});
    return replies.flatMap((bytes) => [...new Reader(bytes).fields()].map(([, reply]) => {
      const fields = new Map(new Reader(reply).fields());
      if (fields.has(RPC.fatalError)) throw new Error(fields.get(RPC.fatalError).toString());
      if (Number(fields.get(RPC.response)) !== method) throw new Error(`no reply to ${method}`);
      return fields;
    }));
  };
}

function load(send, trace) {
  const kBlock = 16 << 20;
  for (let at = 0; at < trace.length; at += kBlock)
    for (const reply of send(APPEND, bytesField(RPC.appendTraceData, trace.subarray(at, at + kBlock))))
      for (const [number, value] of new Reader(reply.get(RPC.appendResult)).fields())
        if (number === 2) throw new Error(`the trace does not load: ${value}`);
  send(FINALIZE);
}

function query(send, sql) {
  let width = 0;
  const cells = [], rows = [];
  for (const reply of send(QUERY, bytesField(RPC.queryArgs, bytesField(1, Buffer.from(sql)))))
    for (const [number, value] of new Reader(reply.get(RPC.queryResult)).fields()) {
      if (number === 1) ++width;  // the name of a column
      if (number === 2 && value.length > 0) return {error: value.toString()};
      if (number === 3) cells.push(...cellsOf(value));
    }
  while (cells.length > 0) rows.push(cells.splice(0, width));
  return {rows};
}

const [engine, trace] = process.argv.slice(2);
const send = await startWorker(engine);
load(send, readFileSync(trace));
for await (const line of createInterface({input: process.stdin}))
  console.log(JSON.stringify(query(send, JSON.parse(line))));
