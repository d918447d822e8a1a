#!/usr/bin/env python3
"""Tests that differential.py finds wrong results, with a runner that gives wrong results."""
import pathlib
import re
import stat
import subprocess
import sys
import tempfile
import unittest

import domains
import operators
import peers

HERE = pathlib.Path(__file__).resolve().parent

# Answers each request with one float32 scalar; `crash` ends it instead.
RUNNER = """#!{python}
import struct, sys
def number(): return struct.unpack("<q", sys.stdin.buffer.read(8))[0]
def write(*numbers): sys.stdout.buffer.write(struct.pack(f"<{{len(numbers)}}q", *numbers))
while sys.stdin.buffer.peek(1):
    for _ in range(1): sys.stdin.buffer.read(number())
    for _ in range(number()): sys.stdin.buffer.read(number())
    if "{mode}" == "crash": sys.exit(3)
    write(1, 9); sys.stdout.buffer.write(b"reference"); write(1, 7)
    sys.stdout.buffer.write(b"float32"); write(0, 4); sys.stdout.buffer.write(b"    ")
    sys.stdout.buffer.flush()
"""


class Differential(unittest.TestCase):
    def run_with(self, mode, *options):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.found = pathlib.Path(folder.name) / "found"
        runner = pathlib.Path(folder.name) / "runner"
        runner.write_text(RUNNER.format(python=sys.executable, mode=mode))
        runner.chmod(runner.stat().st_mode | stat.S_IXUSR)
        run = subprocess.run([sys.executable, HERE / "differential.py", "--runner", runner, "--folder",
                              self.found, *options], capture_output=True, text=True, timeout=300)
        return run.returncode, run.stdout + run.stderr

    def test_writes_what_differs(self):
        code, output = self.run_with("wrong", "--seed", "7", "--case", "0")  # results of Abs
        self.assertEqual(code, 1, output)
        self.assertIn("case 0 of seed 7: Abs-", output)
        self.assertIn(f"{self.found}/7_0_Abs/model.onnx", output)
        self.assertTrue((self.found / "7_0_Abs/model.onnx").is_file())
        self.assertTrue((self.found / "7_0_Abs/test_data_set_0/input_0.pb").is_file() or
                        not list((self.found / "7_0_Abs/test_data_set_0").glob("input*")))
        self.assertTrue(list((self.found / "7_0_Abs/test_data_set_0").glob("*_output_0.pb")))
        self.assertIn("1 cases: 0 agree with both peers", output)
        self.assertIn("1 differences", output)

    def test_names_the_model_that_ends_the_program(self):
        code, output = self.run_with("crash", "--cases", "2")
        self.assertEqual(code, 1, output)
        self.assertEqual(output.count("fails: crashed: it ended, exit status 3"), 2)

    def test_a_type_that_a_peer_cannot_hand_over_is_no_refusal(self):
        self.assertFalse(peers.refuses("RuntimeError: No corresponding Numpy type for Tensor Type. bfloat16"))
        self.assertTrue(peers.refuses("ValueError: cannot reshape array of size 0 into shape (0,newaxis)"))

    def test_makes_every_operator(self):
        reference = (HERE.parents[1] / "docs" / "operators.md").read_text()
        # ONNX has no Subgraph and no MapBytes, and random numbers are the peers' own. RE2 is not in every program.
        # SequenceMap has cases in the corpus alone, as Loop and Scan have. No peer knows opset 28 yet.
        own = {"SwiGLU", "Subgraph", "opkit.MapBytes", "RegexFullMatch", "com.microsoft.Tokenizer", "SequenceMap",
               "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
               "RandomUniformLike"}
        documented = set(re.findall(r"^## ([\w.]+)$", reference, re.M)) - own
        # The reader rewrites most of com.microsoft's operators, so that they are not documented.
        made = set(operators.MAKERS) | set(domains.MAKERS)
        self.assertEqual(documented - made, set())
        self.assertEqual({op for op in made - documented if not op.startswith("com.microsoft.")}, set())

    def test_a_seed_gives_the_same_cases(self):
        first, second = (self.run_with("wrong", "--seed", "5", "--cases", "40")[1] for _ in range(2))
        strip = lambda text: [line for line in text.splitlines() if line.startswith("case ")]
        self.assertGreater(len(strip(first)), 20)
        self.assertEqual(strip(first), strip(second))


if __name__ == "__main__":
    unittest.main()
