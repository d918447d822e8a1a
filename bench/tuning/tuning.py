#!/usr/bin/env python3
r"""Tuned plans of real models beside untuned ones, each backend alone, and ONNX Runtime: milliseconds of a run.

usage: tuning.py --opkit PROGRAM --data FOLDER --json RESULT [--models DIR] [--only NAME]... [--threads N]...
                 [--rounds N] [--seconds S] [--budget SECONDS] [--tuned-selection DIR]
                 [--other PROGRAM [--other-isa NAME]]

Runs in a Python that has onnxruntime, numpy and pillow (./dev bench tuning makes one). The models are those of
bench/models/models.py and every .onnx file below DIR. Beside such a file, NAME.json may give the shapes of its inputs
({"x": [1, 3, 224, 224]}); extents that nobody gives are 1. Each model is tuned first, by `opkit tune` for --budget
seconds at most, or has the file DIR/NAME-THREADS.selection of --tuned-selection. Then each variant is one process that
has its model loaded, and the processes take turns: in every round each of them, in a new order, runs for a slice of
time while the others sleep. So what else the machine does hits all of them. A figure is the median of its slices, a
slice the median of its runs. A ratio is the median of the rounds' ratios, its spread their middle half.

With --other the models are also tuned by another build of opkit, while oneDNN uses no instructions beyond --other-isa
(AVX2), and the result says how many nodes each pair of backend and layout has. Such a build is made in the
repository's folder by

    cmake --preset release -B build/release-avx2 -DOPKIT_NATIVE=OFF -DCMAKE_CXX_FLAGS=-march=x86-64-v3 \
          -DOPKIT_ONEDNN_DATA_DIR=build/data
    cmake --build build/release-avx2 --target opkit_cli     # --other build/release-avx2/tools/opkit/opkit
"""
import argparse
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent), str(HERE.parent / "models")]
import turns  # noqa: E402
from models import MODELS, Failure, compare, find  # noqa: E402
from record import head, write  # noqa: E402
from turns import ratio  # noqa: E402

# Variant: the arguments of `opkit bench`. A backend alone has the plain kernels for the nodes that it lacks.
UNTUNED = {"default": [], "eigen": ["--backends", "eigen,reference"], "onednn": ["--backends", "onednn,reference"]}
TUNED, PEER = "tuned", "onnxruntime"


def input_arguments(inputs):
    return [part for name, path in inputs.items() for part in ("--input", f"{name}={path}")]


def plain_name(name):
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)


def tune(opkit, name, model, inputs, threads, options, isa=None):
    """The file of the tuned selection and the seconds that tuning took; None for those that there are not."""
    file_name = f"{plain_name(name)}-{threads}.selection"
    if options.tuned_selection and not isa:
        path = options.tuned_selection / file_name
        return (path if path.exists() else None), None
    path = options.json.parent / "selections" / (isa or "") / file_name
    path.parent.mkdir(parents=True, exist_ok=True)
    cache = path.with_suffix(".cache")
    for old in (path, cache):  # so that the seconds are those of a first tuning
        old.unlink(missing_ok=True)
    command = [opkit, "tune", model, "--threads", threads, *input_arguments(inputs), "-o", path, "--cache", cache,
               *(["--budget", options.budget] if options.budget else [])]
    begin = time.perf_counter()
    ran = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                         env={**os.environ, **({"ONEDNN_MAX_CPU_ISA": isa} if isa else {})})
    if ran.returncode != 0:
        raise Failure(f"opkit tune: {(ran.stderr.strip().splitlines() or ['it said nothing'])[-1]}")
    return path, time.perf_counter() - begin


def row_of(times):
    """The figures of a model: medians, and the ratios of them that bench/results shows."""
    medians = {variant: statistics.median(rounds) for variant, rounds in times.items()}
    best = min((variant for variant in UNTUNED if variant in medians), key=medians.get, default=None)
    return {"median_ms": medians, "rounds_ms": times, "best": best,
            "tuned_over_best": ratio(times, TUNED, best), "tuned_over_onnxruntime": ratio(times, TUNED, PEER),
            "best_over_onnxruntime": ratio(times, best, PEER),
            "default_over_onnxruntime": ratio(times, "default", PEER)}


def choices(opkit, model, inputs, threads, selection, isa=None):
    """{"onednn aBcd16b": number of nodes} of a plan with a selection: the backend, and the layout of the output."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "explanation.json"
        ran = subprocess.run([str(part) for part in (
            opkit, "run", model, "--threads", threads, *input_arguments(inputs), "--selection", selection,
            "--explain", path)], capture_output=True, text=True,
            env={**os.environ, **({"ONEDNN_MAX_CPU_ISA": isa} if isa else {})})
        if ran.returncode != 0:
            raise Failure(ran.stderr.strip())
        explanation = json.loads(path.read_text())
    counts = {}
    for node in explanation["nodes"]:
        key = "conversions"
        if "candidates" in node:
            chosen = node["candidates"][node["chosen"]]
            layout = chosen.get("layouts", "").partition(" -> ")[2].split(", ")[0] or "standard"
            key = f"{chosen['backend']} {layout.removeprefix(chosen['backend'] + ' ')}"
        counts[key] = counts.get(key, 0) + 1
    return counts


def known_models(options):
    """(name, file, {input: function of a random generator})."""
    for name, (path, makers) in MODELS.items():
        yield name, find(options.data, path), makers


def models_below(folder, onnxruntime):
    """The same of every .onnx file below a folder."""
    dtypes = {"float": "float32", "double": "float64"}
    for path in sorted(folder.rglob("*.onnx")):
        shapes = json.loads(path.with_suffix(".json").read_text()) if path.with_suffix(".json").exists() else {}
        session_options = onnxruntime.SessionOptions()
        session_options.log_severity_level = 3
        try:
            session = onnxruntime.InferenceSession(path, session_options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime has no class for all of its errors
            yield path.stem, path, str(error).splitlines()[0]
            continue
        makers = {}
        for wanted in session.get_inputs():
            shape = shapes.get(wanted.name) or [size if isinstance(size, int) else 1 for size in wanted.shape]
            dtype = wanted.type.removeprefix("tensor(").removesuffix(")")
            makers[wanted.name] = maker(shape, numpy.dtype(dtypes.get(dtype, dtype)))
        yield path.stem, path, makers


def maker(shape, dtype):
    """Numbers in [0, 1), integers 0 or 1, as opkit's own random inputs."""
    if dtype.kind == "f":
        return lambda generator: generator.random(shape).astype(dtype)
    return lambda generator: (generator.random(shape) >= 0.5).astype(dtype)


def measure_model(name, model, inputs, threads, options, onnxruntime, shuffle):
    selection, tuning_seconds, tuning_failed = None, None, {}
    try:
        selection, tuning_seconds = tune(options.opkit, name, model, inputs, threads, options)
    except Failure as failure:
        tuning_failed = {TUNED: str(failure)}
    more = ["--threads", threads, "--serve", "--warmup", 1, *input_arguments(inputs)]
    commands = {variant: [options.opkit, "bench", model, *arguments, *more] for variant, arguments in UNTUNED.items()}
    if selection:
        commands[TUNED] = [options.opkit, "bench", model, "--selection", selection, *more]
    commands[PEER] = [sys.executable, HERE.parent / "models" / "onnxruntime_bench.py", model, *more]
    times, failed = turns.measure(commands, options.rounds, options.seconds, shuffle)
    row = {"model": name, "threads": threads, **row_of(times), "tuning_seconds": tuning_seconds,
           "failed": {**tuning_failed, **failed}}
    if selection:
        row["outputs"] = compare(model, inputs, options, onnxruntime, ["--selection", selection])
    if selection and options.other:
        other, _ = tune(options.other, name, model, inputs, threads, options, options.other_isa)
        row["choices"] = {"this CPU": choices(options.opkit, model, inputs, threads, selection)}
        if other:
            row["choices"][options.other_isa] = choices(options.other, model, inputs, threads, other,
                                                        options.other_isa)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--opkit", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--models", type=pathlib.Path, help="a folder with more models")
    parser.add_argument("--only", action="append", help="models whose name holds this")
    parser.add_argument("--threads", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.25, help="of a slice")
    parser.add_argument("--budget", type=float, help="seconds of tuning a model; default: opkit's own")
    parser.add_argument("--tuned-selection", type=pathlib.Path, help="a folder of selections instead of opkit tune")
    parser.add_argument("--other", type=pathlib.Path, help="another build of opkit, to compare its selections")
    parser.add_argument("--other-isa", default="AVX2", help="ONEDNN_MAX_CPU_ISA of the other build")
    options = parser.parse_args()
    import onnxruntime
    shuffle = random.Random(0)
    results, failures = [], []
    sources = list(known_models(options))
    if options.models:
        sources += models_below(options.models, onnxruntime)
    for name, model, makers in sources:
        if options.only and not any(part in name for part in options.only):
            continue
        if isinstance(makers, str):
            failures.append(f"{name}: ONNX Runtime: {makers}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            generator = numpy.random.default_rng(0)
            inputs = {}
            for input_name, make in makers.items():
                inputs[input_name] = pathlib.Path(folder) / f"{len(inputs)}.npy"
                numpy.save(inputs[input_name], make(generator))
            for threads in options.threads or (1, 2):
                try:
                    row = measure_model(name, model, inputs, threads, options, onnxruntime, shuffle)
                except Failure as failure:
                    failures.append(f"{name}, {threads} threads: {failure}")
                    continue
                results.append(row)
                failures += [f"{name}, {threads} threads, {variant}: {why}" for variant, why in row["failed"].items()]
                outputs = row.get("outputs", {"error": 0, "same_argmax": True})
                if outputs["error"] > 1 or not outputs["same_argmax"]:
                    failures.append(f"{name}, {threads} threads: the tuned outputs differ from ONNX Runtime's")
                print(f"{name}, {threads} threads: " + ", ".join(
                    f"{variant} {ms:.3f} ms" for variant, ms in row["median_ms"].items()), flush=True)
    write(options.json, {
        "head": {**head(f"./dev bench tuning ({options.rounds} rounds of {options.seconds:g} s)"),
                 "ONNX Runtime": onnxruntime.__version__},
        "models": results, "failures": failures})
    if failures:
        raise Failure("\n".join(failures))


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"tuning.py: {failure}")
