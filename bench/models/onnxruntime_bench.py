#!/usr/bin/env python3
"""What `opkit bench` measures, of ONNX Runtime: the same keys as JSON on stdout.

usage: onnxruntime_bench.py MODEL --threads N [--seconds S | --serve] [--input NAME=FILE.npy]...

With --serve it measures for the seconds that each line of standard input says, as `opkit bench --serve`.
"""
import argparse
import json
import sys
import time

import numpy
import onnxruntime


def resident_bytes(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(key + ":"))


def measure(run, seconds, warmup):
    """The milliseconds of the runs, at least five."""
    for _ in range(warmup):
        run()
    times = []
    started = time.perf_counter()
    while len(times) < 5 or time.perf_counter() - started < seconds:
        begin = time.perf_counter()
        run()
        times.append((time.perf_counter() - begin) * 1e3)
    return times


def serve(run, first_result_ms, warmup):
    print(json.dumps({"first_result_ms": first_result_ms}), flush=True)
    for line in sys.stdin:
        times = measure(run, float(line), warmup)
        print(json.dumps({"runs": len(times), "median_ms": float(numpy.median(times)), "min_ms": min(times)}),
              flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--input", action="append", default=[])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--serve", action="store_true")
    arguments = parser.parse_args()
    inputs = {name: numpy.load(path)
              for name, path in (text.split("=", 1) for text in arguments.input)}
    before = resident_bytes("VmRSS")

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = arguments.threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    begin = time.perf_counter()
    session = onnxruntime.InferenceSession(arguments.model, options,
                                           providers=["CPUExecutionProvider"])
    loaded = time.perf_counter()
    session.run(None, inputs)
    first = time.perf_counter()
    if arguments.serve:
        return serve(lambda: session.run(None, inputs), (first - begin) * 1e3, arguments.warmup)
    times = measure(lambda: session.run(None, inputs), arguments.seconds, arguments.warmup)
    percentiles = {f"p{p}_ms": float(numpy.percentile(times, p)) for p in (10, 90, 99)}
    print(json.dumps({
        "runs": len(times), "median_ms": float(numpy.median(times)), "min_ms": min(times),
        **percentiles, "load_ms": (loaded - begin) * 1e3, "first_result_ms": (first - begin) * 1e3,
        "peak_memory_bytes": resident_bytes("VmHWM"), "memory_before_bytes": before}))


main()
