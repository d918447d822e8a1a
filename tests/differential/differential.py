#!/usr/bin/env python3
"""Compares opkit with ONNX Runtime and onnx's reference evaluator on random models.

usage: differential.py --runner PROGRAM --folder FOLDER [--seed S]
                       [--cases N | --minutes M | --case I] [--only OPERATOR]

Case I of a seed is the same on every machine. Every backend must give what one of the two peers
gives, and may refuse a model only if both do. A difference is written to FOLDER with its inputs and
the peers' outputs, in the layout of onnx's test data, and fails the run, unless known.txt names it.
"""
import argparse
import collections
import pathlib
import re
import shutil
import sys
import time

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper

import cases
import domains
import graphs
import operators
import peers

MAKERS = {**operators.MAKERS, **domains.MAKERS}
KNOWN = pathlib.Path(__file__).with_name("known.txt")


def known_differences(path):
    """Paragraphs of `difference: REGEX`, `reason: TEXT` and `standard: TEXT`, the sentence."""
    found = []
    for paragraph in re.split(r"\n\s*\n", path.read_text()):
        lines = [line for line in paragraph.splitlines() if line and not line.startswith("#")]
        if lines:
            fields = dict(line.split(": ", 1) for line in lines)
            if sorted(fields) != ["difference", "reason", "standard"]:
                raise ValueError(f"{path}: {lines[0]}: expected difference, reason and standard")
            found.append(re.compile(fields["difference"]))
    return found


def attribute_text(attribute):
    value = onnx.helper.get_attribute_value(attribute)
    text = value.decode() if isinstance(value, bytes) else getattr(value, "name", value)
    if isinstance(value, list) and len(value) > 12:
        text = f"{len(value)} values"
    return f"{attribute.name}={text}"


def differs(found, expected, kind):
    """A sentence, or None."""
    if found.shape != expected.shape:
        return f"has shape {list(found.shape)}, expected {list(expected.shape)}"
    expected = expected.astype(found.dtype)  # the reference's may be a wider type
    if found.dtype.kind in "iu" and kind == "unit":
        same = np.abs(found.astype(np.int64) - expected.astype(np.int64)) <= 1
    elif found.dtype.kind in "biu" or kind == "exact":
        same = found == expected
        if found.dtype.kind not in "biu":
            same |= (found != found) & (expected != expected)
    else:
        epsilon = (2048 if kind == "graph" else 64) * float(ml_dtypes.finfo(found.dtype).eps)
        least = float(ml_dtypes.finfo(found.dtype).smallest_subnormal)
        f, e = found.astype(np.float64), expected.astype(np.float64)
        finite = np.abs(e[np.isfinite(e)])
        scale = max(1.0, float(finite.max(initial=0))) if kind != "close" else 0
        if kind == "single":
            epsilon = max(epsilon, 64 * 2.0 ** -23)
        if kind == "coarse":
            epsilon = 0.03
        with np.errstate(all="ignore"):
            same = (f == e) | (np.isnan(f) & np.isnan(e))
            same |= np.abs(f - e) <= epsilon * (np.abs(e) + scale) + 4 * least
    if np.all(same):
        return None
    at = tuple(int(i) for i in np.argwhere(~np.asarray(same).reshape(found.shape))[0])
    return f"element {list(at)} is {found[at]}, expected {expected[at]}"


def all_differ(found, expected, kind):
    if isinstance(expected, str):
        return expected
    for i, (f, e) in enumerate(zip(found, expected, strict=True)):
        difference = differs(f, e, kind)
        if difference:
            return f"output {i} {difference}"
    return None


class Comparison:
    def __init__(self, options):
        self.options, self.known = options, known_differences(KNOWN)
        self.runner = peers.Runner(options.runner)
        self.peers = {name: peers.Peer(name) for name in peers.PEERS}
        self.counts = collections.Counter()
        self.per_operator = collections.defaultdict(collections.Counter)
        self.differences = collections.Counter()

    def run(self):
        options = self.options
        names = [options.only if options.only != "graph" else None] if options.only else [*sorted(MAKERS), *[None] * 12]
        shutil.rmtree(options.folder, ignore_errors=True)
        end = time.monotonic() + options.minutes * 60 if options.minutes else None
        index = options.case or 0
        while (time.monotonic() < end) if end else (index < (options.cases if options.case is None
                                                             else options.case + 1)):
            self.try_case(index, names[index % len(names)])
            index += 1
            if end and index % 5000 == 0:
                print(f"{index} cases, {self.counts['difference']} differences", flush=True)
        return self.summary()

    def try_case(self, index, op):
        draw = cases.Draw(self.options.seed, index)
        if op in domains.MAKERS:
            case = operators.operator_case(draw, op, domains.MAKERS[op], lambda: domains.domain_maker(op, draw))
        else:
            case = operators.operator_case(draw, op) if op else graphs.graph_case(draw)
        model = case.model().SerializeToString()
        self.runner.start(model, [numpy_helper.from_array(v).SerializeToString()
                                  for v in case.inputs.values()])
        for peer in self.peers.values():
            peer.start(model, case.inputs)
        expected = {name: peer.answer() for name, peer in self.peers.items()}
        found = self.runner.answers()
        self.counts["cases"] += 1
        self.judge(index, op or "graph", case, found, expected)

    def judge(self, index, op, case, found, expected):
        answers = {name: e for name, e in expected.items() if not isinstance(e, str)}
        counts = self.per_operator[op]
        counts["cases"] += 1
        crashed = [b for b, f in found.items() if isinstance(f, str) and f.startswith(peers.CRASHED)]
        if not answers and not crashed:
            accepted = [b for b, f in found.items() if not isinstance(f, str)]
            if accepted and case.spoiled and all(map(peers.refuses, expected.values())):
                says = [f"runs what {name} refuses: {e[:150]}" for name, e in expected.items()]
                self.difference(index, op, case, accepted[0], says, expected)
            counts["refused by all" if not accepted else "not compared"] += 1
            return
        agreed, differs_from_all = set(answers), False
        for backend, outputs in found.items():
            if isinstance(outputs, str) and case.spoiled and not outputs.startswith(peers.CRASHED):
                agreed.clear()  # the peers are more lenient
                continue
            if isinstance(outputs, str):
                says = [f"fails: {outputs}"]
            elif [cases.PROTO[o.dtype] for o in outputs] != [t for _, t in case.outputs]:
                says = [f"has outputs of types {[o.dtype for o in outputs]}, not as declared"]
            else:
                why = {name: all_differ(outputs, e, case.kind) for name, e in answers.items()}
                agreed &= {name for name, w in why.items() if not w}
                if not all(why.values()):
                    continue
                says = [f"differs from {name}: {w}" for name, w in why.items()]
            differs_from_all = True
            self.difference(index, op, case, backend, says, expected)
        if differs_from_all:
            counts["differ"] += 1
        elif len(answers) == 2:
            counts["both peers" if len(agreed) == 2 else "peers differ"] += 1
        else:
            counts[f"{[*answers][0]} alone"] += 1

    def difference(self, index, op, case, backend, says, expected):
        types = ",".join(str(v.dtype) for v in [*case.inputs.values(), *case.constants.values()])
        nodes = " ".join(f"{n.op_type}{{{', '.join(map(attribute_text, n.attribute))}}}" for n in case.nodes)
        line = f"{op}-{case.opset} of {types}, {nodes}: {backend} " + " ".join("; ".join(says).split())
        for pattern in self.known:
            if pattern.search(line):
                self.counts["known"] += 1
                self.differences[pattern.pattern] += 1
                return
        self.counts["difference"] += 1
        folder = self.options.folder / f"{self.options.seed}_{index}_{op}"
        self.write(folder, case, expected)
        print(f"case {index} of seed {self.options.seed}: {line[:700]}\n  {folder}/model.onnx", flush=True)

    @staticmethod
    def write(folder, case, expected):
        data = folder / "test_data_set_0"
        data.mkdir(parents=True, exist_ok=True)
        (folder / "model.onnx").write_bytes(case.model().SerializeToString())
        answers = {name: e for name, e in expected.items() if not isinstance(e, str)}
        for prefix, values in {"input": case.inputs.values(),
                               **{f"{name}_output": e for name, e in answers.items()}}.items():
            for i, value in enumerate(values):
                (data / f"{prefix}_{i}.pb").write_bytes(
                    numpy_helper.from_array(np.asarray(value)).SerializeToString())

    def summary(self):
        total = collections.Counter()
        for counts in self.per_operator.values():
            total.update(counts)
        if self.options.verbose:
            for op, counts in sorted(self.per_operator.items()):
                print(f"{op}: {dict(counts)}")
        for pattern, count in self.differences.items():
            print(f"known, {count} times: {pattern}")
        print(f"seed {self.options.seed}: {total['cases']} cases: {total['both peers']} agree with both peers, "
              f"{total['peers differ']} with one of two that differ, "
              f"{total['onnxruntime alone']} compared with ONNX Runtime alone, "
              f"{total['reference alone']} with onnx's reference alone, "
              f"{total['refused by all']} refused by all, {total['not compared']} run by no peer; "
              f"{self.counts['known']} known differences, {self.counts['difference']} differences")
        return self.counts["difference"] > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runner", required=True)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--case", type=int, help="this case of the seed alone")
    parser.add_argument("--only", choices=[*sorted(MAKERS), "graph"], help="cases of one operator")
    parser.add_argument("--verbose", action="store_true", help="counts of each operator")
    sys.exit(Comparison(parser.parse_args()).run())


if __name__ == "__main__":
    main()
