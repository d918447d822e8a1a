#!/usr/bin/env python3
"""Runs `opkit run --pipeline` as a job of two processes, which write one trace, one report and one text of all ranks.

Usage: cli_test.py MPIRUN ARGUMENT... PROGRAM
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "cli"))
from onnx_file import FLOAT, model, node, value_info  # noqa: E402

mpirun, program = sys.argv[1:-1], sys.argv[-1]


class Pipeline(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        shape = [256, 256]
        (self.folder / "products.onnx").write_bytes(model(
            [node("MatMul", ["x", "x"], ["first"]), node("MatMul", ["first", "x"], ["y"])],
            [value_info("x", FLOAT, shape)], [value_info(name, FLOAT, shape) for name in ("y", "first")]))

    def job(self, *options):
        return subprocess.run([*mpirun, "-n", "2", program, "run", "products.onnx", "--random", "--pipeline", "2",
                               *options], cwd=self.folder, capture_output=True, text=True, timeout=60)

    def test_the_ranks_write_one_trace_one_report_and_one_text(self):
        run = self.job("--repeat", "3", "--profile", "trace.json", "--report", "report.html", "--critical-path",
                       "--output-dir", "out")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                         ["out", "products.onnx", "report.html", "trace.json"])
        self.assertEqual(sorted(path.name for path in (self.folder / "out").iterdir()), ["first.npy", "y.npy"])
        # Rank 1 writes its output, then rank 0 its own and the path.
        self.assertRegex(run.stdout, r"\Ay  float32\[256, 256\]  out/y\.npy\nfirst  float32\[256, 256\]  "
                         r"out/first\.npy\n\nrun of [\d.]+ us on 2 processes; critical path of \d+ nodes")
        for once in ("run of ", "waited us", "longest waits", "first.npy", "y.npy"):
            self.assertEqual(run.stdout.count(once), 1, run.stdout)
        self.assertEqual(re.findall(r"3 runs on 2 ranks: median", run.stderr), ["3 runs on 2 ranks: median"])
        trace = json.loads((self.folder / "trace.json").read_text())["traceEvents"]
        self.assertEqual([event["args"]["name"] for event in trace if event["name"] == "process_name"],
                         ["process 0", "process 1"])
        arrows = [event for event in trace if event.get("cat") == "communication"]
        self.assertEqual([event["pid"] for event in arrows if event.get("flow_out")], [0, 0, 0])
        self.assertEqual([event["pid"] for event in arrows if event.get("flow_in")], [1, 1, 1])
        self.assertIn("process 1: ", (self.folder / "report.html").read_text())

    def test_a_trace_that_cannot_be_written_is_said_once(self):
        run = self.job("--profile", "absent/trace.json")
        self.assertEqual(run.returncode, 3, run.stderr)
        self.assertEqual(len(re.findall(r"opkit: error: .*absent/trace\.json", run.stderr)), 1, run.stderr)
        self.assertEqual(run.stderr.count("opkit: error"), 1, run.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
