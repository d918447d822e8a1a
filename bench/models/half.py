#!/usr/bin/env python3
"""Real models in float16 and bfloat16 beside their float32 twins, and in ONNX Runtime.

usage: half.py --opkit PROGRAM --data FOLDER --json RESULT [--only NAME]... [--threads N]...
               [--rounds N] [--seconds S]

Runs in the Python of models.py. A twin has the weights, inputs and outputs of the model in the shorter type. All
contenders take turns, each run in a process of its own; a figure is the median over the rounds. ONNX Runtime has no
bfloat16 for most operators of the CPU. `error` is the largest difference of an output of float16 to that of float32,
in units of the largest element of the output.
"""
import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

import models
from models import Failure, HERE, find, run, write

KINDS = {"float16": (TensorProto.FLOAT16, numpy.float16), "bfloat16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16)}
# Inputs that are float32 whatever the type of the data.
FIXED = {"Resize": (1, 2), "Upsample": (1,)}
# Without the OCR's detector: in float16 its weights lose so much that all outputs are 0, in ONNX Runtime too.
CHOSEN = ("magika", "ocr recognition", "ocr direction", "light densenet121", "light resnet50", "light squeezenet")


def transformer(layers=4, width=384, heads=6, tokens=128):
    """The layers of a BERT, as PyTorch exports them for opset 17."""
    random = numpy.random.default_rng(0)
    constants, nodes = [], []

    def constant(name, value):
        constants.append(numpy_helper.from_array(numpy.asarray(value), name))
        return name

    def node(op, inputs, output, **attributes):
        nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def linear(x, name, rows, columns):
        weight = random.standard_normal((rows, columns)) / rows ** 0.5
        product = node("MatMul", [x, constant(name + ".weight", weight.astype(numpy.float32))], name + ".product")
        return node("Add", [product, vector(name + ".bias", columns, 0)], name)

    def vector(name, size, around):
        return constant(name, (around + 0.01 * random.standard_normal(size)).astype(numpy.float32))

    def split(x, name, order):
        return node("Transpose", [node("Reshape", [x, "heads"], name + ".heads")], name + ".split", perm=order)

    def normalized(x, name):
        return node("LayerNormalization", [x, vector(name + ".scale", width, 1), vector(name + ".shift", width, 0)],
                    name, axis=-1, epsilon=1e-5)

    constant("heads", numpy.array([0, 0, heads, width // heads], numpy.int64))
    constant("joined", numpy.array([0, 0, width], numpy.int64))
    for name, value in {"half": 0.5, "one": 1, "root": 2 ** 0.5, "scale": (width // heads) ** -0.5}.items():
        constant(name, numpy.float32(value))
    x = "x"
    for layer in map(str, range(layers)):
        query, value = (split(linear(x, layer + name, width, width), layer + name, [0, 2, 1, 3])
                        for name in (".query", ".value"))
        key = split(linear(x, layer + ".key", width, width), layer + ".key", [0, 2, 3, 1])
        scores = node("Mul", [node("MatMul", [query, key], layer + ".raw"), "scale"], layer + ".scores")
        mixed = node("MatMul", [node("Softmax", [scores], layer + ".softmax", axis=-1), value], layer + ".mixed")
        joined = node("Reshape", [node("Transpose", [mixed], layer + ".turned", perm=[0, 2, 1, 3]), "joined"],
                      layer + ".joined")
        x = normalized(node("Add", [x, linear(joined, layer + ".out", width, width)], layer + ".sum"), layer + ".norm")
        up = linear(x, layer + ".up", width, 4 * width)
        erf = node("Erf", [node("Div", [up, "root"], layer + ".divided")], layer + ".erf")
        gated = node("Mul", [up, node("Add", [erf, "one"], layer + ".erf1")], layer + ".gated")
        gelu = node("Mul", [gated, "half"], layer + ".gelu")
        x = normalized(node("Add", [x, linear(gelu, layer + ".down", 4 * width, width)], layer + ".sum2"),
                       layer + ".norm2")
    node("Identity", [x], "y")
    graph = helper.make_graph(nodes, "transformer",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, tokens, width])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def twin(model, kind):
    """The model with `kind` in place of float32."""
    number, dtype = KINDS[kind]
    limit = numpy.float32(ml_dtypes.finfo(dtype).max)  # exporters clip larger numbers to it
    made = onnx.ModelProto()
    made.CopyFrom(model)
    fixed = {node.input[i] for node in made.graph.node for i in FIXED.get(node.op_type, ()) if i < len(node.input)}

    def convert(tensor):
        if tensor.data_type == TensorProto.FLOAT:
            values = numpy_helper.to_array(tensor).clip(-limit, limit)
            tensor.CopyFrom(helper.make_tensor(tensor.name, number, values.shape, values.astype(dtype).tobytes(),
                                               raw=True))
    for tensor in made.graph.initializer:
        if tensor.name not in fixed:
            convert(tensor)
    for node in made.graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR and node.output[0] not in fixed:
                convert(attribute.t)
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = number
    for value in (*made.graph.input, *made.graph.output, *made.graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = number
    return made


def outputs_of(opkit, model, inputs, folder):
    folder.mkdir()
    subprocess.run([opkit, "run", model, "--output-dir", folder, *inputs], check=True, capture_output=True)
    return {path.name: numpy.load(path).astype(numpy.float64) for path in sorted(folder.iterdir())}


def difference(one, other):
    return max(float(numpy.max(numpy.abs(other[name] - one[name])) / max(numpy.max(numpy.abs(one[name])), 1e-30))
               for name in one if one[name].size)


def measure(files, inputs, threads, options):
    """{contender: {"median_ms", "range"}}; nothing for a contender that fails."""
    rounds = {}
    commands = {kind: ([options.opkit, "bench", path], kind) for kind, path in files.items()}
    commands["ONNX Runtime"] = ([sys.executable, HERE / "onnxruntime_bench.py", files["float16"]], "float16")
    for _ in range(options.rounds):
        for contender, (command, kind) in commands.items():
            more = ["--threads", threads, "--seconds", options.seconds, *inputs[kind]]
            try:
                rounds.setdefault(contender, []).append(run([*command, *more])["median_ms"])
            except Failure as failure:
                print(f"{contender}: {failure}", file=sys.stderr)
    return {contender: {"median_ms": statistics.median(found), "range": [min(found), max(found)]}
            for contender, found in rounds.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--opkit", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--only", action="append", help="models whose name holds this")
    parser.add_argument("--threads", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1)
    options = parser.parse_args()
    import onnxruntime
    rows = []
    contenders = {name: models.MODELS[name] for name in CHOSEN}
    contenders["transformer"] = (None, {"x": lambda random: random.standard_normal((1, 128, 384), numpy.float32)})
    for name, (path, makers) in contenders.items():
        if options.only and not any(part in name for part in options.only):
            continue
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            model = onnx.load(find(options.data, path)) if path else transformer()
            random = numpy.random.default_rng(0)
            made = {input_name: make(random) for input_name, make in makers.items()}
            files, inputs = {}, {}
            for kind in ("float32", *KINDS):
                files[kind], inputs[kind] = folder / f"{kind}.onnx", []
                onnx.save(model if kind == "float32" else twin(model, kind), files[kind])
                for input_name, value in made.items():
                    if value.dtype == numpy.float32 and kind == "bfloat16":  # NumPy's files do not have it
                        inputs[kind] += ["--shape", f"{input_name}={'x'.join(map(str, value.shape))}"]
                        continue
                    file = folder / f"{kind}{len(inputs[kind])}.npy"
                    numpy.save(file, value.astype(kind) if value.dtype == numpy.float32 else value)
                    inputs[kind] += ["--input", f"{input_name}={file}"]
            error = difference(*(outputs_of(options.opkit, files[kind], inputs[kind], folder / f"{kind} out")
                                 for kind in ("float32", "float16")))
            for threads in options.threads or (1, 2):
                rows.append({"model": name, "threads": threads, "error": error,
                             "runs": measure(files, inputs, threads, options)})
                print(name, threads, {key: round(value["median_ms"], 3) for key, value in rows[-1]["runs"].items()},
                      flush=True)
    command = f"./dev bench half ({options.rounds} rounds of {options.seconds:g} s)"
    write(options.json, {"head": {**models.head(command), "ONNX Runtime": onnxruntime.__version__}, "models": rows})


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"half.py: {failure}")
