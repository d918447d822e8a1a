"""Tests the real models as opkit saves them: onnx's checker accepts them, and ONNX Runtime computes the
same results.

usage: saved_test.py RESAVE DATA_FOLDER     (needs numpy, onnx 1.22.0 and onnxruntime 1.31.1)
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

NUMPY = {"tensor(float)": np.float32, "tensor(int32)": np.int32, "tensor(int64)": np.int64}


def session(model):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def inputs_of(name, model):
    """Inputs made by rule; unknown extents of the model are those of a small picture or frame."""
    random = np.random.default_rng(1)
    fed = {}
    for tensor in model.get_inputs():
        shape = [extent if isinstance(extent, int) else 64 for extent in tensor.shape]
        if "ch_" in name:
            shape = [1, 3, 48 if "rec" in name else 64, 64]
        elif "silero" in name and tensor.name in ("input", "state"):
            frame = [1, 576] if "sequence" in name or "openvino" in name else [1, 512]
            shape = frame if tensor.name == "input" else [2, 1, 128]
        if tensor.name == "sr":
            fed["sr"] = np.array(16000, dtype=np.int64)
        elif NUMPY[tensor.type] == np.float32:
            fed[tensor.name] = random.standard_normal(shape).astype(np.float32)
        else:
            fed[tensor.name] = random.integers(0, 100, shape).astype(NUMPY[tensor.type])
    return fed


def without_unknown_ranks(path):
    """The checker wants the rank of every output, which no inference finds behind some If."""
    model = onnx.load(path)
    for output in model.graph.output:
        if not output.type.tensor_type.HasField("shape"):
            output.type.tensor_type.shape.SetInParent()
    return model


def main():
    resave, data = sys.argv[1:]
    onnxruntime.set_default_logger_severity(4)
    models = sorted(path for path in pathlib.Path(data).glob("[!o]*/**/*.onnx"))
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        saved = folder + "/saved.onnx"
        for path in models:
            subprocess.run([resave, path, saved], check=True)
            onnx.checker.check_model(without_unknown_ranks(saved), full_check=False)
            first, second = session(path), session(saved)
            fed = inputs_of(path.name, first)
            for output, a, b in zip(first.get_outputs(), first.run(None, fed),
                                    second.run(None, fed)):
                if a.shape != b.shape or not np.allclose(a, b, rtol=1e-5, atol=1e-6):
                    failed.append(f"{path}: output {output.name} differs")
    print("\n".join(failed) or f"{len(models)} models are the same after they were saved")
    sys.exit(bool(failed) or len(models) != 10)


main()
