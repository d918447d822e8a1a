#!/usr/bin/env python3
"""Real models in opkit and in ONNX Runtime: latency, memory, time to the first result, outputs.

usage: models.py --opkit PROGRAM --data FOLDER --json RESULT [--only NAME]... [--threads N]...
                 [--rounds N] [--seconds S] [--backends NAME,...]

Runs in a Python that has onnxruntime, numpy and pillow (./dev bench models makes one). Both sides
take the same inputs and number of threads, each run in a process of its own that does nothing else,
and take turns, so that what else the machine does hits both. A figure is the median over the rounds.
ONNX Runtime has all its optimisations on; its memory includes Python's, so the growth since the
imports is reported beside the whole. Outputs are compared element by element: `error` is the largest of
|a - b| / (1e-5 + 1e-4 |b|); more than 1, or another place of a row's largest element, is a failure.
"""
import argparse
import io
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import wave

import numpy

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
from record import head, write  # noqa: E402

LIGHT = {"bvlc_alexnet": "data_0", "densenet121": "data_0", "inception_v1": "data_0",
         "inception_v2": "data_0", "resnet50": "gpu_0/data_0", "shufflenet": "gpu_0/data_0",
         "squeezenet": "data_0", "vgg19": "data_0", "zfnet512": "gpu_0/data_0"}
OCR = "rapidocr_onnxruntime/rapidocr_onnxruntime/models"


def floats(*shape):
    return lambda random: random.random(shape, dtype=numpy.float32)


def files(count):
    """Files of the repository as magika prepares them: their first and last 1024 bytes, without the
    white space around, 256 where there are fewer."""
    def make(_):
        rows = numpy.full((count, 2048), 256, numpy.int32)
        for row, path in zip(rows, sorted(HERE.parents[1].glob("include/opkit/op/*.hpp"))):
            content = numpy.frombuffer(path.read_bytes().strip(), numpy.uint8)
            row[:min(1024, content.size)] = content[:1024]
            row[2048 - min(1024, content.size):] = content[-1024:]
        return rows
    return make


def voice(random):
    """A spoken sentence as silero takes it: 16 kHz, frames of 512 after the last 64 before."""
    spoken = subprocess.run(["espeak-ng", "--stdout", "Define an operator once, and run it."],
                            capture_output=True, check=True).stdout
    with wave.open(io.BytesIO(spoken)) as sound:
        rate = sound.getframerate()
        samples = numpy.frombuffer(sound.readframes(1 << 24), numpy.int16) / 32768
    at = numpy.arange(0, samples.size, rate / 16000)
    samples = numpy.interp(at, numpy.arange(samples.size), samples).astype(numpy.float32)
    samples = numpy.concatenate([numpy.zeros(64, numpy.float32), samples])
    return numpy.stack([samples[frame * 512:frame * 512 + 576] for frame in range(32)])


def picture(height, width, lines, mean, scale, turned=False):
    """Lines of text, dark on light with some noise, as the models of PP-OCR take pictures."""
    def make(random):
        from PIL import Image, ImageDraw, ImageFont
        image = Image.new("RGB", (width, height), (236, 232, 221))
        font = ImageFont.truetype("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf", 30)
        for number, line in enumerate(lines):
            ImageDraw.Draw(image).text((8, 6 + 60 * number), line, (32, 30, 41), font)
        pixels = numpy.asarray(image.rotate(180) if turned else image, numpy.float32)
        pixels = pixels + random.normal(0, 6, pixels.shape)
        pixels = (pixels.clip(0, 255) / 255 - mean) / scale
        return pixels.transpose(2, 0, 1)[None].astype(numpy.float32)
    return make


def zeros(*shape):
    return lambda random: numpy.zeros(shape, numpy.float32)


# Name: file under the data folder (without the package's version), and its inputs.
MODELS = {
    "magika": ("magika/magika/models/standard_v3_3/model.onnx", {"bytes": files(1)}),
    "magika x16": ("magika/magika/models/standard_v3_3/model.onnx",
                   {"bytes": files(16)}),
    "ocr recognition": (f"{OCR}/ch_PP-OCRv4_rec_infer.onnx",
                        {"x": picture(48, 320, ["Define it once, run"], 0.5, 0.5)}),
    "ocr direction": (f"{OCR}/ch_ppocr_mobile_v2.0_cls_infer.onnx",
                      {"x": picture(48, 192, ["upside down"], 0.5, 0.5, turned=True)}),
    "ocr detection": (f"{OCR}/ch_PP-OCRv4_det_infer.onnx",
                      {"x": picture(320, 320,
                                    ["Define it once,", "run it often,", "see why it", "is fast."],
                                    numpy.array([0.485, 0.456, 0.406]),
                                    numpy.array([0.229, 0.224, 0.225]))}),
    "silero vad": ("silero_vad/silero_vad/data/silero_vad_16k_sequence.onnx",
                   {"input": voice, "h": zeros(1, 1, 128), "c": zeros(1, 1, 128)}),
    **{f"light {name}": (f"onnx/onnx/backend/test/data/light/light_{name}.onnx",
                         {input_name: floats(1, 3, 224, 224)})
       for name, input_name in LIGHT.items()},
}
FIGURES = ("median_ms", "min_ms", "load_ms", "first_result_ms", "peak_memory_bytes",
           "memory_growth_bytes")


class Failure(Exception):
    """A sentence for the user."""


def find(data, path):
    package, _, rest = path.partition("/")
    found = sorted(data.glob(f"{package}-*/{rest}"))
    if not found:
        raise Failure(f"there is no {package}-*/{rest} in {data}: run data/fetch.py {package}")
    return found[-1]


def run(command):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if result.returncode != 0:
        raise Failure((result.stderr.strip().splitlines() or ["it said nothing"])[-1])
    return json.loads(result.stdout)


def measure(model, inputs, threads, options, python):
    """{"opkit": figures, "onnxruntime": figures}: the medians of the rounds, and how far apart the
    rounds' medians of a run lie."""
    more = ["--threads", threads, "--seconds", options.seconds,
            *(part for name, path in inputs.items() for part in ("--input", f"{name}={path}"))]
    commands = {"opkit": [options.opkit, "bench", model, *more],
                "onnxruntime": [python, HERE / "onnxruntime_bench.py", model, *more]}
    rounds = {side: [] for side in commands}
    for _ in range(options.rounds):
        for side, command in commands.items():
            report = run(command)
            report["memory_growth_bytes"] = (report["peak_memory_bytes"] -
                                             report["memory_before_bytes"])
            rounds[side].append(report)
    result = {}
    for side, reports in rounds.items():
        result[side] = {key: statistics.median(report[key] for report in reports)
                        for key in FIGURES}
        medians = [report["median_ms"] for report in reports]
        result[side]["median_ms_range"] = [min(medians), max(medians)]
    return result


def file_name(output):
    """The name of the file into which `opkit run --output-dir` writes an output."""
    return "".join(c if c.isascii() and c.isalnum() or c in "_.-" else "_" for c in output) + ".npy"


def compare(model, inputs, options, onnxruntime, more=()):
    """How far the outputs of `opkit run` with the arguments `more` are apart, and whether the largest elements of
    rows are the same."""
    session_options = onnxruntime.SessionOptions()
    session_options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, session_options,
                                           providers=["CPUExecutionProvider"])
    expected = session.run(None, {name: numpy.load(path) for name, path in inputs.items()})
    error, same_argmax = 0.0, True
    with tempfile.TemporaryDirectory() as folder:
        command = [options.opkit, "run", model, "--output-dir", folder, *more,
                   *(part for name, path in inputs.items()
                     for part in ("--input", f"{name}={path}"))]
        result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        if result.returncode != 0:
            raise Failure(result.stderr.strip())
        for output, theirs in zip(session.get_outputs(), expected):
            ours = numpy.load(pathlib.Path(folder) / file_name(output.name))
            if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
                raise Failure(f"output {output.name} is {ours.dtype}{ours.shape}, "
                              f"expected {theirs.dtype}{theirs.shape}")
            if ours.size == 0 or ours.ndim == 0:
                continue
            allowed = 1e-5 + 1e-4 * numpy.abs(theirs)
            error = max(error, float(numpy.max(numpy.abs(ours - theirs) / allowed)))
            # Where two elements are as large as each other, either may be said to be the largest.
            found = numpy.take_along_axis(theirs, ours.argmax(-1)[..., None], -1)[..., 0]
            same_argmax &= bool(numpy.all(theirs.max(-1) - found <= allowed.max(-1)))
    return {"error": error, "same_argmax": same_argmax}


def machine_peak(opkit, threads):
    """{threads: the rates of arithmetic, memory and caches} that `opkit` measures and keeps in a file."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([str(opkit), "bench-op", "Relu", "--input", "float32:8", "--seconds", "0.01", "--measure-peak",
                        "--threads", ",".join(map(str, threads))], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "OPKIT_TUNING_CACHE": f"{folder}/tuning.json"})
        found = json.loads((pathlib.Path(folder) / "peak.json").read_text())
    return {entry["key"]["threads"]: entry for entry in found["peaks"]}


def operators(model, inputs, threads, options):
    report = run([options.opkit, "bench", model, "--threads", threads, "--runs", 5, "--nodes",
                  *(part for name, path in inputs.items()
                    for part in ("--input", f"{name}={path}"))])
    backends = {}
    for row in report["nodes"]:
        backends.setdefault(row["op"], set()).add(row["backend"])
    for row in report["operators"]:
        row["backends"] = sorted(backends[row["op"]])
    return report["operators"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--opkit", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--only", action="append", help="models whose name holds this")
    parser.add_argument("--threads", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--backends", help="opkit's kernels, in the order of preference")
    options = parser.parse_args()
    import onnxruntime
    command = f"./dev bench {options.json.stem} ({options.rounds} rounds of {options.seconds:g} s)"
    if options.backends:
        os.environ["OPKIT_BACKENDS"] = options.backends
    peaks = machine_peak(options.opkit, options.threads or (1, 2))
    results, failures = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name, (path, makers) in MODELS.items():
            if options.only and not any(part in name for part in options.only):
                continue
            model = find(options.data, path)
            random = numpy.random.default_rng(0)
            inputs = {}
            for input_name, make in makers.items():
                inputs[input_name] = pathlib.Path(folder) / f"{len(inputs)}.npy"
                numpy.save(inputs[input_name], make(random))
            outputs = compare(model, inputs, options, onnxruntime)
            if outputs["error"] > 1 or not outputs["same_argmax"]:
                failures.append(f"{name}: its outputs differ from ONNX Runtime's")
            for threads in options.threads or (1, 2):
                try:
                    sides = measure(model, inputs, threads, options, sys.executable)
                    rows = operators(model, inputs, threads, options)
                except Failure as failure:
                    failures.append(f"{name}, {threads} threads: {failure}")
                    continue
                results.append({"model": name, "threads": threads, **sides, "outputs": outputs,
                                "operators": rows})
                print(f"{name}, {threads} threads: {sides['opkit']['median_ms']:.3f} ms, ONNX "
                      f"Runtime {sides['onnxruntime']['median_ms']:.3f} ms", flush=True)
    write(options.json, {
        "head": {**head(command), "ONNX Runtime": onnxruntime.__version__},
        "machine_peak": peaks,
        "models": results, "failures": failures})
    if failures:
        raise Failure("\n".join(failures))


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"models.py: {failure}")
