#!/usr/bin/env python3
"""Writes expected.txt: what ONNX Runtime computes for the real models on inputs made by rule.

usage: expected.py DATA_FOLDER     (needs numpy, onnx 1.22.0 and onnxruntime 1.31.1)

inputs.hpp holds the same rules in C++. A line is `case output shape argmax values`: of every row of
the last axis longer than 1 the index of its largest element ("-" where another one is as large
within twice the tolerance), and elements `index:value` of the flat output, as hex floats: each
row's largest, and some at even distances.
"""
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime

HERE = pathlib.Path(__file__).resolve().parent
DATA = pathlib.Path(sys.argv[1])
SPREAD = 24  # elements at even distances


def unit(count, seed):
    """count numbers in [0, 1): multiples of 2^-24, by SplitMix64."""
    z = np.arange(count, dtype=np.uint64) + np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(40)).astype(np.float64) / 2**24


def file_bytes(rows):
    """As magika prepares a file: its first and its last 1024 bytes. The first row is noise, the
    others are of the license."""
    text = np.frombuffer((HERE.parents[1] / "LICENSE").read_bytes(), np.uint8).astype(np.int32)
    out = [np.floor(unit(2048, 1) * 256).astype(np.int32)]
    for row in range(1, rows):
        begin = 1024 * (row - 1)
        out.append(np.concatenate([text[begin:begin + 1024], text[-1024:]]))
    return {"bytes": np.stack(out)}


def picture(batch, height, width):
    """Dark strokes of 3 by 6 pixels on light ground, in [-1, 1]."""
    ink = unit(batch * height * width, 2).reshape(batch, 1, height, width)
    strokes = unit(batch * 64 * 512, 3).reshape(batch, 1, 64, 512)
    strokes = np.repeat(np.repeat(strokes, 6, 2), 3, 3)[:, :, :height, :width]
    values = np.where(strokes < 0.3, -0.875, 0.875) + (ink - 0.5) / 8
    return {"x": np.repeat(values, 3, 1).astype(np.float32)}


def sound(rows, samples):
    """A saw tooth under noise."""
    at = np.arange(rows * samples)
    values = (at * 7 % 256 / 128.0 - 1) / 4 + (unit(rows * samples, 4) - 0.5) / 8
    return values.astype(np.float32).reshape(rows, samples)


def state(batch):
    return (unit(2 * batch * 128, 5) - 0.5).astype(np.float32).reshape(2, batch, 128)


def sequence(length):
    """Frames of one voice, one after the other, with the state as two inputs."""
    return {"input": sound(length, 576), "h": state(1)[:1], "c": state(1)[1:]}


def voices(batch, rate=16000, rate_input=True):
    """A frame of each of several voices."""
    feeds = {"input": sound(batch, 576 if rate == 16000 else 288), "state": state(batch)}
    return feeds | ({"sr": np.array(rate, np.int64)} if rate_input else {})


def ramp(name):
    """The corpus's own input of the light models."""
    count = 3 * 224 * 224
    return {name: (np.arange(count) / count).astype(np.float32).reshape(1, 3, 224, 224)}


def seed_of(name):
    seed = 0
    for byte in name.encode():
        seed = (31 * seed + byte) % 2**32
    return seed


def before_squashing(model):
    """What a last Softmax or Sigmoid reads is the output instead: it says more."""
    last = next(n for n in model.graph.node if model.graph.output[0].name in n.output)
    if last.op_type in ("Softmax", "Sigmoid"):
        model.graph.node.remove(last)
        del model.graph.output[:]
        model.graph.output.append(onnx.helper.make_empty_tensor_value_info(last.input[0]))
    return model


def with_weights(model):
    """A light model, its equal weights replaced by others, drawn by rule: those of convolutions and
    matrices are scaled by their fan-in, the rest is in [0.5, 1)."""
    shapes = {i.name: onnx.numpy_helper.to_array(i) for i in model.graph.initializer}
    for node in [n for n in model.graph.node if n.op_type == "ConstantOfShape"]:
        shape = tuple(int(extent) for extent in shapes[node.input[0]])
        values = unit(int(np.prod(shape)), seed_of(node.output[0]))
        if len(shape) > 1:
            values = (2 * values - 1) * np.sqrt(6.0 / np.prod(shape[1:]))
        else:
            values = 0.5 + values / 2
        model.graph.initializer.append(onnx.numpy_helper.from_array(
            values.astype(np.float32).reshape(shape), node.output[0]))
        model.graph.node.remove(node)
    return model


def line(case, name, value):
    row = max([extent for extent in value.shape if extent > 1][-1:], default=1)
    rows = value.reshape(-1, row)
    largest = rows.argmax(1)
    top = np.sort(rows, 1)[:, -2:]
    tied = top[:, -1] - top[:, 0] <= 2 * (1e-5 + 1e-4 * np.abs(top[:, -1]))
    tied &= rows.shape[1] > 1
    argmax = ",".join("-" if tie else str(at) for at, tie in zip(largest, tied))
    chosen = {int(row * rows.shape[1] + at) for row, at in enumerate(largest)}
    chosen |= {int(i) for i in np.linspace(0, value.size - 1, min(SPREAD, value.size))}
    flat = value.reshape(-1)
    values = " ".join(f"{i}:{float(flat[i]).hex()}" for i in sorted(chosen))
    shape = "x".join(map(str, value.shape)) or "scalar"
    return f"{case} {name} {shape} {argmax} {values}\n"


def run(case, model, feeds):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    if isinstance(model, onnx.ModelProto):
        model = model.SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    for name, value in zip(names, session.run(names, feeds)):
        assert np.isfinite(value).all(), (case, name)
        print(f"  {name} {value.shape} {value.min():.3g} to {value.max():.3g}")
        yield line(case, name, value)


def cases():
    magika = DATA / "magika-1.0.3/magika/models/standard_v3_3/model.onnx"
    for rows in (1, 3):
        yield f"magika_{rows}", magika, file_bytes(rows)
    ocr = DATA / "rapidocr_onnxruntime-1.4.4/rapidocr_onnxruntime/models"
    for width in (100, 320, 501):
        yield f"rec_{width}", ocr / "ch_PP-OCRv4_rec_infer.onnx", picture(1, 48, width)
    yield "rec_batch_2", ocr / "ch_PP-OCRv4_rec_infer.onnx", picture(2, 48, 100)
    for batch in (1, 2):
        yield f"cls_{batch}", ocr / "ch_ppocr_mobile_v2.0_cls_infer.onnx", picture(batch, 48, 192)
    for height, width in ((64, 160), (96, 96)):
        model = before_squashing(onnx.load(ocr / "ch_PP-OCRv4_det_infer.onnx"))
        yield f"det_{height}x{width}", model, picture(1, height, width)
    vad = DATA / "silero_vad-6.2.3/silero_vad/data"
    for length in (1, 7, 40):
        yield f"silero_{length}", vad / "silero_vad_16k_sequence.onnx", sequence(length)
    for name in ("silero_vad", "silero_vad_op18_ifless"):
        for batch, rate in ((1, 16000), (3, 16000), (2, 8000)):
            yield f"{name}_{batch}_{rate}", vad / f"{name}.onnx", voices(batch, rate)
    for batch in (1, 3):
        yield f"silero_vad_16k_op15_{batch}", vad / "silero_vad_16k_op15.onnx", voices(batch)
        feeds = voices(batch, rate_input=False)
        yield f"silero_vad_half_{batch}", vad / "silero_vad_half.onnx", feeds
    feeds = voices(1, rate_input=False)
    yield "silero_vad_openvino_16k", vad / "silero_vad_openvino_16k.onnx", feeds
    light = DATA / "onnx-1.22.0/onnx/backend/test/data/light"
    for path in sorted(light.glob("*.onnx")):
        model = with_weights(before_squashing(onnx.load(path)))
        made = {i.name for i in model.graph.initializer}
        yield path.stem, model, ramp(next(i.name for i in model.graph.input if i.name not in made))


def main():
    onnxruntime.set_default_logger_severity(3)
    out = [f"# Written by expected.py with onnxruntime {onnxruntime.__version__}: case, output,\n"
           "# shape, argmax of each row, elements of the flat output.\n"]
    for case in cases():
        print(case[0], flush=True)
        out.extend(run(*case))
    (HERE / "expected.txt").write_text("".join(out))


if __name__ == "__main__":
    main()
