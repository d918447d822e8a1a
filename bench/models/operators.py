#!/usr/bin/env python3
"""Single operators, trees and quantised models in opkit and in ONNX Runtime.

usage: operators.py --opkit PROGRAM --data FOLDER --json RESULT [--only NAME]... [--threads N]...
                    [--rounds N] [--seconds S]

Runs in the Python of models.py, and measures as it does: the same inputs, each run in a process of its own, in turns.
The operators have sizes of real models. onnxruntime.quantization makes the quantised models: int8 weights with a scale
for each channel, uint8 activations, QuantizeLinear and DequantizeLinear around each operator. `error` is the mean
difference of an output to ONNX Runtime's, in units of the largest element of the output; more than 1e-2 is a failure.
In a quantised model a rounding to the other neighbour is a difference that later layers enlarge.
"""
import argparse
import logging
import pathlib
import sys
import tempfile

import numpy
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnxruntime import quantization

import models
from half import outputs_of
from models import Failure, find, head, write


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


LIMIT = 1e-2  # of the error
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


def trees(rows, count, classes=0, depth=7, features=20):
    """Whole trees of `depth` comparisons with columns of the inputs: a regressor, or a classifier of `classes`."""
    splits, leaves = 2 ** depth - 1, 2 ** depth
    nodes, total = splits + leaves, count * (splits + leaves)
    ids = numpy.tile(numpy.arange(nodes), count)
    leaf = ids >= splits
    attributes = {
        "nodes_treeids": numpy.repeat(numpy.arange(count), nodes), "nodes_nodeids": ids,
        "nodes_featureids": numpy.where(leaf, 0, RANDOM.integers(0, features, total)),
        "nodes_truenodeids": numpy.where(leaf, 0, 2 * ids + 1), "nodes_falsenodeids": numpy.where(leaf, 0, 2 * ids + 2),
    }
    votes = {"treeids": numpy.repeat(numpy.arange(count), leaves), "nodeids": ids[leaf],
             "ids": RANDOM.integers(0, classes or 1, count * leaves), "weights": RANDOM.uniform(0, 1, count * leaves)}
    kind, prefix, more, outputs = (
        ("Classifier", "class", {"classlabels_int64s": list(range(classes))}, ["label", "y"]) if classes else
        ("Regressor", "target", {"n_targets": 1}, ["y"]))
    node = helper.make_node(
        f"TreeEnsemble{kind}", ["x"], outputs, domain="ai.onnx.ml",
        nodes_modes=["LEAF" if is_leaf else "BRANCH_LEQ" for is_leaf in leaf],
        nodes_values=numpy.where(leaf, 0, RANDOM.uniform(-0.4, 0.4, total)).tolist(),
        **{name: numbers.tolist() for name, numbers in attributes.items()},
        **{f"{prefix}_{name}": numbers.tolist() for name, numbers in votes.items()}, **more)
    return node, {"x": [rows, features]}, {}, 17


def body_of(nodes, inputs, outputs, constants):
    """A graph inside a node. A value is a type, or float32 numbers of a shape."""
    def described(values):
        return [helper.make_tensor_value_info(name, *((onnx.TensorProto.FLOAT, value) if isinstance(value, list)
                                                      else (value, []))) for name, value in values.items()]

    return helper.make_graph(nodes, "body", described(inputs), described(outputs),
                             [numpy_helper.from_array(value, name) for name, value in constants.items()])


def loop(iterations, size=8):
    ones = numpy.ones(size, numpy.float32)
    go = onnx.TensorProto.BOOL
    body = body_of(
        [helper.make_node("Mul", ["x", "half"], ["a"]), helper.make_node("Add", ["a", "one"], ["b"]),
         helper.make_node("Sub", ["b", "a"], ["y"]), helper.make_node("Identity", ["go"], ["still"])],
        {"i": onnx.TensorProto.INT64, "go": go, "x": [size]}, {"still": go, "y": [size]}, {"half": ones / 2, "one": ones})
    return (helper.make_node("Loop", ["times", "", "x0"], ["out"], body=body), {"x0": [size]},
            {"times": numpy.int64(iterations)}, 17)


def lstm_by_scan(units, steps):
    """The equations of an LSTM, its gates as slices of one product, in the body of a Scan."""
    nodes = [helper.make_node("MatMul", ["h", "R"], ["hR"]), helper.make_node("Add", ["hR", "x"], ["gates"])]
    constants = {"R": numpy.full((units, 4 * units), 0.01, numpy.float32), "axes": numpy.array([1])}
    constants |= {f"at{gate}": numpy.array([gate * units]) for gate in range(5)}
    for gate, function in enumerate(["Sigmoid", "Sigmoid", "Sigmoid", "Tanh"]):
        nodes += [helper.make_node("Slice", ["gates", f"at{gate}", f"at{gate + 1}", "axes"], [f"s{gate}"]),
                  helper.make_node(function, [f"s{gate}"], [f"g{gate}"])]
    nodes += [helper.make_node(op, inputs, [output]) for op, inputs, output in (
        ("Mul", ["g0", "g3"], "in"), ("Mul", ["g2", "c"], "kept"), ("Add", ["in", "kept"], "c_next"),
        ("Tanh", ["c_next"], "squashed"), ("Mul", ["g1", "squashed"], "h_next"), ("Identity", ["h_next"], "row"))]
    state = [1, units]
    body = body_of(nodes, {"h": state, "c": state, "x": [1, 4 * units]},
                   {"h_next": state, "c_next": state, "row": state}, constants)
    return (helper.make_node("Scan", ["h0", "c0", "xs"], ["h1", "c1", "y"], num_scan_inputs=1, body=body),
            {"h0": state, "c0": state, "xs": [steps, 1, 4 * units]}, {}, 17)


def filter_by_scan(channels, steps):
    """y = 0.5 * y + x for each channel."""
    body = body_of([helper.make_node("Mul", ["y", "half"], ["decayed"]), helper.make_node("Add", ["decayed", "x"], ["next"])],
                   {"y": [channels], "x": [channels]}, {"next": [channels]}, {"half": numpy.full(1, 0.5, numpy.float32)})
    return (helper.make_node("Scan", ["y0", "xs"], ["last"], num_scan_inputs=1, body=body),
            {"y0": [channels], "xs": [steps, channels]}, {}, 17)


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
    "Loop, 1,000 iterations of three operators": loop(1000),
    "Scan, an LSTM of 16 units over 100 steps": lstm_by_scan(16, 100),
    "Scan, a filter of 4,096 channels over 100 steps": filter_by_scan(4096, 100),
    "QLinearMatMul, 128 x 384 x 1,536": static_product(128, 384, 1536),
    "DynamicQuantizeMatMul, 128 x 384 x 1,536": dynamic_product(128, 384, 1536),
    "MatMulNBits, 4 bits, 1 x 1,536 x 384": blocked_product(1, 1536, 384),
    "MatMulNBits, 4 bits, 8 x 1,536 x 384": blocked_product(8, 1536, 384),
    "MatMulNBits, 4 bits, 128 x 384 x 1,536": blocked_product(128, 384, 1536),
    "QLinearConv, three of an image of 224": convolutions(224),
    **{f"TreeEnsembleRegressor, {count} trees, {rows:,} rows": trees(rows, count)
       for count in (100, 500) for rows in (1, 8, 50, 1000)},
    **{f"TreeEnsembleClassifier, 100 trees, 10 classes, {rows:,} rows": trees(rows, 100, 10) for rows in (1, 1000)},
}


def operator_model(nodes, shapes, constants, opset):
    """The model of a row of OPERATORS, and its inputs by name."""
    nodes = nodes if isinstance(nodes, list) else [nodes]
    graph = helper.make_graph(
        nodes, "operator",
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items()],
        [helper.make_tensor_value_info(
            name, onnx.TensorProto.INT64 if name == "label" else onnx.TensorProto.FLOAT, None)
         for name in nodes[-1].output],
        [numpy_helper.from_array(numpy.asarray(value), name) for name, value in constants.items()])
    opsets = {"": opset, "com.microsoft": 1, "ai.onnx.ml": 3}
    model = helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid(domain, version) for domain, version in opsets.items()])
    random = numpy.random.default_rng(0)
    return model, {name: random.uniform(-0.5, 0.5, shape).astype(numpy.float32) for name, shape in shapes.items()}


def depthwise_net(blocks=((32, 1), (64, 2), (128, 1), (128, 2), (256, 1), (256, 2), (512, 1)), classes=100):
    """A net of blocks, each a 3 x 3 convolution of each channel and one of 1 x 1 that mixes them."""
    constants, nodes = {}, []

    def convolution(x, name, shape, **attributes):
        constants[name + ".weight"] = RANDOM.normal(0, (2 / numpy.prod(shape[1:])) ** 0.5, shape).astype(numpy.float32)
        constants[name + ".bias"] = RANDOM.normal(0, 0.1, shape[0]).astype(numpy.float32)
        nodes.extend([
            helper.make_node("Conv", [x, name + ".weight", name + ".bias"], [name + ".sum"], **attributes),
            helper.make_node("Relu", [name + ".sum"], [name])])
        return name

    x, channels = convolution("x", "stem", (32, 3, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1]), 32
    for number, (width, stride) in enumerate(blocks):
        x = convolution(x, f"{number}.each", (channels, 1, 3, 3), group=channels, strides=[stride, stride],
                        pads=[1, 1, 1, 1])
        x, channels = convolution(x, f"{number}.mix", (width, channels, 1, 1)), width
    constants["weight"] = RANDOM.normal(0, channels ** -0.5, (channels, classes)).astype(numpy.float32)
    nodes += [helper.make_node("GlobalAveragePool", [x], ["mean"]), helper.make_node("Flatten", ["mean"], ["flat"]),
              helper.make_node("MatMul", ["flat", "weight"], ["y"])]
    graph = helper.make_graph(
        nodes, "depthwise", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 224, 224])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, classes])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()])
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)])


class OneSample(quantization.CalibrationDataReader):
    """Ranges of the activations come from one input, the one that is measured."""

    def __init__(self, inputs):
        self.samples = iter([inputs])

    def get_next(self):
        return next(self.samples, None)


def quantized_model(folder, data, name):
    path, makers = models.MODELS[name] if name in models.MODELS else (None, {"x": models.floats(1, 3, 224, 224)})
    random = numpy.random.default_rng(0)
    inputs = {input_name: make(random) for input_name, make in makers.items()}
    whole, made = folder / "float32.onnx", folder / "quantized.onnx"
    onnx.save(onnx.load(find(data, path)) if path else depthwise_net(), whole)
    logging.disable(logging.WARNING)  # it asks for a preparation that these models do not need
    quantization.quantize_static(
        whole, made, OneSample(inputs), quant_format=quantization.QuantFormat.QDQ, per_channel=True,
        activation_type=quantization.QuantType.QUInt8, weight_type=quantization.QuantType.QInt8)
    logging.disable(logging.NOTSET)
    return onnx.load(made), inputs


def contenders(folder, data):
    """Name: a function that returns a model and its inputs."""
    made = {name: lambda row=row: operator_model(*row) for name, row in OPERATORS.items()}
    for name in ("ocr recognition", "ocr direction", "ocr detection", "depthwise net"):
        made[f"quantised {name}"] = lambda name=name: quantized_model(folder, data, name)
    return made


def error_of(model, inputs, files, options, folder):
    session_options = onnxruntime.SessionOptions()
    session_options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, session_options, providers=["CPUExecutionProvider"])
    expected = session.run(None, inputs)
    arguments = [part for name, path in files.items() for part in ("--input", f"{name}={path}")]
    ours = outputs_of(options.opkit, model, arguments, folder / "outputs")
    found = [ours[models.file_name(output.name)] for output in session.get_outputs()]
    return max(float(numpy.mean(numpy.abs(value - theirs)) / max(numpy.max(numpy.abs(theirs)), 1e-30))
               for value, theirs in zip(found, expected))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--opkit", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--only", action="append", help="rows whose name holds this")
    parser.add_argument("--threads", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.1)
    options = parser.parse_args()
    rows, failures = [], []
    with tempfile.TemporaryDirectory() as temporary:
        for name, make in contenders(pathlib.Path(temporary), options.data).items():
            if options.only and not any(part in name for part in options.only):
                continue
            folder = pathlib.Path(temporary) / str(len(rows))
            folder.mkdir()
            model, inputs = make()
            files = {input_name: folder / f"{number}.npy" for number, input_name in enumerate(inputs)}
            for input_name, value in inputs.items():
                numpy.save(files[input_name], value)
            onnx.save(model, folder / "model.onnx")
            try:
                error = error_of(folder / "model.onnx", inputs, files, options, folder)
                if error > LIMIT:
                    failures.append(f"{name}: its outputs differ from ONNX Runtime's")
                for threads in options.threads or (1, 2):
                    sides = models.measure(folder / "model.onnx", files, threads, options, sys.executable)
                    rows.append({"operator": name, "threads": threads, **sides, "error": error})
                    print(f"{name}, {threads} threads: {sides['opkit']['median_ms']:.3g} ms, ONNX Runtime "
                          f"{sides['onnxruntime']['median_ms']:.3g} ms", flush=True)
            except Failure as failure:
                failures.append(f"{name}: {failure}")
    command = f"./dev bench operators ({options.rounds} rounds of {options.seconds:g} s)"
    write(options.json, {"head": {**head(command), "ONNX Runtime": onnxruntime.__version__}, "operators": rows,
                         "failures": failures})
    if failures:
        raise Failure("\n".join(failures))


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"operators.py: {failure}")
