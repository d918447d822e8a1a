#!/usr/bin/env python3
"""Prints the curves of docs/cluster.md: the efficiency of a model's training step on 1 to 4,096 ranks.

usage: curves.py OPKIT MODEL.onnx TOPOLOGY.json [OPTION...]

`opkit simulate` measures the model here, with these options, and predicts a step for each number of
ranks: replicas of the whole model, and replicas of pipelines. The result is a table in Markdown.
"""
import subprocess
import sys

RANKS = [2 ** i for i in range(13)]
COLUMNS = [(1, 1), (1, 8), (2, 8), (4, 8)]  # stages and micro-batches

opkit, model, topology, *options = sys.argv[1:]
out = subprocess.run([opkit, "simulate", model, "--topology", topology,
                      "--ranks", ",".join(map(str, RANKS)),
                      "--micro-batches", ",".join(sorted({str(m) for _, m in COLUMNS})), *options],
                     check=True, text=True, capture_output=True).stdout
print(out.splitlines()[0])
efficiency = {}
for line in out.splitlines()[3:]:
    ranks, _, stages, micro_batches, *_, part = line.split()
    efficiency[int(ranks), int(stages), int(micro_batches)] = float(part)
heads = [f"{'1 stage' if s == 1 else f'{s} stages'}, {'1 micro-batch' if m == 1 else f'{m} micro-batches'}"
         for s, m in COLUMNS]
print("\n| ranks | " + " | ".join(heads) + " |")
print("| --- |" + " --- |" * len(COLUMNS))
for ranks in RANKS:
    cells = [f"{100 * efficiency[ranks, s, m]:.1f} %" if (ranks, s, m) in efficiency else ""
             for s, m in COLUMNS]
    print(f"| {ranks:,} | " + " | ".join(cells) + " |")
