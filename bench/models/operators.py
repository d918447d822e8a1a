#!/usr/bin/env python3
"""Single operators, or a few of them, in opkit and in ONNX Runtime, in sizes of real models, as a table on stdout.

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


RANDOM = numpy.random.default_rng(1)


def integers(low, high, shape, dtype):
    return RANDOM.integers(low, high, shape).astype(dtype)


def quantize(x, y, number):
    """Quantises x to uint8 with the scale s<number> and the zero point z<number>."""
    return helper.make_node("QuantizeLinear", [x, f"s{number}", f"z{number}"], [y])


def dequantize(x, y, number):
    return helper.make_node("DequantizeLinear", [x, f"s{number}", f"z{number}"], [y])


def static_product(m, k, n):
    constants = {"s0": numpy.float32(0.004), "z0": numpy.uint8(128), "s1": numpy.float32(0.05), "z1": numpy.uint8(128),
                 "b": integers(-127, 128, (k, n), "int8"), "sb": numpy.float32(0.005), "zb": numpy.int8(0)}
    nodes = [quantize("a", "qa", 0),
             helper.make_node("QLinearMatMul", ["qa", "s0", "z0", "b", "sb", "zb", "s1", "z1"], ["qy"]),
             dequantize("qy", "y", 1)]
    return nodes, {"a": [m, k]}, constants, 17


def dynamic_product(m, k, n):
    constants = {"b": integers(-127, 128, (k, n), "int8"), "sb": numpy.float32(0.005)}
    return (helper.make_node("DynamicQuantizeMatMul", ["a", "b", "sb"], ["y"], domain="com.microsoft"), {"a": [m, k]},
            constants, 17)


def blocked_product(m, k, n, bits=4, block=32):
    constants = {"b": integers(0, 256, (n, k // block, block * bits // 8), "uint8"),
                 "s": RANDOM.uniform(0.01, 0.05, n * k // block).astype(numpy.float32)}
    return (helper.make_node("MatMulNBits", ["a", "b", "s"], ["y"], domain="com.microsoft", N=n, K=k, bits=bits,
                             block_size=block), {"a": [m, k]}, constants, 17)


def convolutions(size):
    """A stem of 3 x 3 that halves an image, one of 3 x 3 for each channel, and one of 1 x 1, in uint8 and int8."""
    constants, nodes = {}, [quantize("x", "q0", 0)]
    for number, scale in enumerate((0.004, 0.02, 0.05, 0.2)):
        constants |= {f"s{number}": numpy.float32(scale), f"z{number}": numpy.uint8(128)}
    for number, (shape, attributes) in enumerate([
            ((32, 3, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
            ((32, 1, 3, 3), {"group": 32, "pads": [1, 1, 1, 1]}), ((64, 32, 1, 1), {})]):
        constants |= {f"w{number}": integers(-127, 128, shape, "int8"), f"sw{number}": numpy.float32(0.005),
                      f"zw{number}": numpy.int8(0)}
        nodes.append(helper.make_node(
            "QLinearConv", [f"q{number}", f"s{number}", f"z{number}", f"w{number}", f"sw{number}", f"zw{number}",
                            f"s{number + 1}", f"z{number + 1}"], [f"q{number + 1}"], **attributes))
    nodes.append(dequantize("q3", "y", 3))
    return nodes, {"x": [1, 3, size, size]}, constants, 17


def trees(rows, count=100, depth=7, features=20):
    """Whole trees of `depth` comparisons, whose thresholds are those of the inputs."""
    splits, leaves = 2 ** depth - 1, 2 ** depth
    nodes, total = splits + leaves, count * (splits + leaves)
    ids = numpy.tile(numpy.arange(nodes), count)
    leaf = ids >= splits
    attributes = {
        "nodes_treeids": numpy.repeat(numpy.arange(count), nodes), "nodes_nodeids": ids,
        "nodes_featureids": numpy.where(leaf, 0, RANDOM.integers(0, features, total)),
        "nodes_truenodeids": numpy.where(leaf, 0, 2 * ids + 1), "nodes_falsenodeids": numpy.where(leaf, 0, 2 * ids + 2),
        "target_treeids": numpy.repeat(numpy.arange(count), leaves),
        "target_nodeids": ids[leaf], "target_ids": numpy.zeros(count * leaves, int)}
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1,
        nodes_modes=["LEAF" if is_leaf else "BRANCH_LEQ" for is_leaf in leaf],
        nodes_values=numpy.where(leaf, 0, RANDOM.uniform(-0.4, 0.4, total)).tolist(),
        target_weights=RANDOM.uniform(0, 1, count * leaves).tolist(),
        **{name: numbers.tolist() for name, numbers in attributes.items()})
    return node, {"x": [rows, features]}, {}, 17


# Name: the node or nodes, the shapes of the inputs, the constants, the opset.
OPERATORS = {
    "Attention, 512 queries and keys": attention(512, 512),
    "Attention, 512 queries and keys, causal": attention(512, 512, is_causal=1),
    "Attention, 1 query, a past of 2,048": attention(1, 1, past=2048),
    "Attention, 32 heads share 8, 2,048 keys": attention(1, 2048, 32, 8),
    "DFT, 1,000 real lines of 512": dft(1000, 512, 1),
    "DFT, 1,000 real lines of 512, onesided": dft(1000, 512, 1, onesided=1),
    "DFT, 100 complex lines of 4,096": dft(100, 4096, 2),
    "STFT, 30 s at 16 kHz, frames of 400": stft(480_000, 400, 160),
    "QLinearMatMul, 128 x 384 x 1,536": static_product(128, 384, 1536),
    "DynamicQuantizeMatMul, 128 x 384 x 1,536": dynamic_product(128, 384, 1536),
    "MatMulNBits, 4 bits, 1 x 1,536 x 384": blocked_product(1, 1536, 384),
    "MatMulNBits, 4 bits, 8 x 1,536 x 384": blocked_product(8, 1536, 384),
    "MatMulNBits, 4 bits, 128 x 384 x 1,536": blocked_product(128, 384, 1536),
    "QLinearConv, three of an image of 224": convolutions(224),
    **{f"TreeEnsembleRegressor, 100 trees, {rows:,} rows": trees(rows) for rows in (1, 8, 50, 1000)},
}


def save(folder, nodes, shapes, constants, opset):
    """Returns the path of the model, and those of its inputs by name."""
    nodes = nodes if isinstance(nodes, list) else [nodes]
    graph = helper.make_graph(
        nodes, "operator",
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items()],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in nodes[-1].output],
        [numpy_helper.from_array(numpy.asarray(value), name) for name, value in constants.items()])
    model, inputs, random = folder / "model.onnx", {}, numpy.random.default_rng(0)
    opsets = {"": opset, "com.microsoft": 1, "ai.onnx.ml": 3}
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid(domain, version) for domain, version in opsets.items()]), model)
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
