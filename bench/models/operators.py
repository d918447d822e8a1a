#!/usr/bin/env python3
"""Single operators in opkit and in ONNX Runtime, in sizes of real models, as a table on stdout.

usage: operators.py --opkit PROGRAM [--only NAME]... [--threads N]... [--rounds N] [--seconds S]

Runs in a Python that has onnxruntime, onnx and numpy, and measures as models.py does: the same inputs, each run in a
process of its own, in turns. `ratio` is opkit's median divided by ONNX Runtime's. `error` is the largest
|a - b| / (1e-5 + 1e-4 |b|); sums that cancel may make it more than 1.
"""
import argparse
import pathlib
import sys
import tempfile

import numpy
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import models


def attention(queries, keys, heads=12, kv_heads=12, past=0, **attributes):
    """Heads of 64 numbers; `past` keys lie in a cache."""
    inputs = {"q": [1, heads, queries, 64], "k": [1, kv_heads, keys, 64], "v": [1, kv_heads, keys, 64]}
    cache = {"past_k": [1, kv_heads, past, 64], "past_v": [1, kv_heads, past, 64]} if past else {}
    node = helper.make_node("Attention", [*inputs, "", *cache] if past else [*inputs],
                            ["y", "present_k", "present_v"] if past else ["y"], **attributes)
    return node, {**inputs, **cache}, {}, 23


def dft(lines, length, parts, **attributes):
    return (helper.make_node("DFT", ["x", "", "axis"], ["y"], **attributes), {"x": [lines, length, parts]},
            {"axis": numpy.int64(1)}, 20)


def stft(steps, frame, step):
    return (helper.make_node("STFT", ["x", "step", "window"], ["y"]), {"x": [1, steps, 1]},
            {"step": numpy.int64(step), "window": numpy.hanning(frame).astype(numpy.float32)}, 17)


# Name: the node, the shapes of its inputs, its constants, the opset.
OPERATORS = {
    "Attention, 512 queries and keys": attention(512, 512),
    "Attention, 512 queries and keys, causal": attention(512, 512, is_causal=1),
    "Attention, 1 query, a past of 2,048": attention(1, 1, past=2048),
    "Attention, 32 heads share 8, 2,048 keys": attention(1, 2048, 32, 8),
    "DFT, 1,000 real lines of 512": dft(1000, 512, 1),
    "DFT, 1,000 real lines of 512, onesided": dft(1000, 512, 1, onesided=1),
    "DFT, 100 complex lines of 4,096": dft(100, 4096, 2),
    "STFT, 30 s at 16 kHz, frames of 400": stft(480_000, 400, 160),
}


def save(folder, node, shapes, constants, opset):
    """Returns the path of the model, and those of its inputs by name."""
    graph = helper.make_graph(
        [node], "operator",
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items()],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in node.output],
        [numpy_helper.from_array(numpy.asarray(value), name) for name, value in constants.items()])
    model, inputs, random = folder / "model.onnx", {}, numpy.random.default_rng(0)
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", opset)]), model)
    for name, shape in shapes.items():
        inputs[name] = folder / f"{name}.npy"
        numpy.save(inputs[name], random.uniform(-0.5, 0.5, shape).astype(numpy.float32))
    return model, inputs


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--opkit", type=pathlib.Path, required=True)
    parser.add_argument("--only", action="append", help="operators whose name holds this")
    parser.add_argument("--threads", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1)
    options = parser.parse_args()
    print("| operator | threads | opkit | ONNX Runtime | ratio | error |\n| --- | --- | --- | --- | --- | --- |")
    for name, operator in OPERATORS.items():
        if options.only and not any(part in name for part in options.only):
            continue
        with tempfile.TemporaryDirectory() as folder:
            model, inputs = save(pathlib.Path(folder), *operator)
            error = models.compare(str(model), inputs, options, onnxruntime)["error"]
            for threads in options.threads or (1, 2):
                sides = models.measure(model, inputs, threads, options, sys.executable)
                ours, theirs = (sides[side]["median_ms"] for side in ("opkit", "onnxruntime"))
                print(f"| {name} | {threads} | {ours:.3g} ms | {theirs:.3g} ms | {ours / theirs:.2f} | {error:.2g} |",
                      flush=True)


if __name__ == "__main__":
    try:
        main()
    except models.Failure as failure:
        sys.exit(f"operators.py: {failure}")
