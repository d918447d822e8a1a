#!/usr/bin/env python3
"""Drives the command-line program as a user does: cli_test.py PROGRAM LIBRARIES MXNET_LIBRARIES
[unittest's arguments]. The folders hold what libraries/ and ../interop/mxnet/libraries/ are compiled to.

Every way to use it wrongly gets one line that says what was expected, and its documented exit code.
"""
import concurrent.futures
import json
import os
import pathlib
import pty
import random
import re
import struct
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom

from onnx_file import (BOOL, DOUBLE, FLOAT, INT32, INT64, STRING, UINT8, field, model, node,
                       read_npy, sequence_info, tensor, value_info, write_npy)

DONE, RUN_FAILED, USAGE, BAD_FILE, BAD_MODEL, BAD_INPUT, NO_PLAN = range(7)
program = libraries = mxnet_libraries = None
caches = None  # the folder of what the program keeps for later runs


class Cli(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def opkit(self, *arguments, code=DONE, environment=None):
        """Runs it in the test's folder; returns what it wrote to stdout."""
        environment = {**os.environ, "TERM": "xterm", "OPKIT_TUNING_CACHE": str(caches / "tuning.json"),
                       "OPKIT_BUILD_CACHE": str(caches / "build"),
                       **(environment or {})}
        run = subprocess.run([program, *map(str, arguments)], cwd=self.folder, env=environment,
                             capture_output=True, text=True, timeout=120)
        self.assertEqual(run.returncode, code, f"{arguments}: {run.stdout}\n{run.stderr}")
        # Beside what it says, AddressSanitizer tells of an allocation that cannot be.
        self.stderr = re.sub(r"(?m)^==\d+==WARNING: AddressSanitizer failed to allocate .*\n", "",
                             run.stderr)
        self.assertNotIn("\033", run.stdout + run.stderr, "colours where there is no terminal")
        return run.stdout

    def refuses(self, code, arguments, *sentences):
        """It ends with this code and one line that holds these sentences."""
        out = self.opkit(*arguments, code=code)
        self.assertEqual(out, "")
        self.assertRegex(self.stderr, r"\Aopkit: error: [^\n]+\n\Z")
        for sentence in sentences:
            self.assertIn(sentence, self.stderr)

    def write(self, name, data):
        (self.folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
        return name

    def affine(self):
        """y = relu(w * x + b), and the sum before the relu under a name that is no file's."""
        return self.write("affine.onnx", model(
            [node("Mul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["dir/sum:0"], "adds"),
             node("Relu", ["dir/sum:0"], ["y"])],
            [value_info("x", FLOAT, ["N", 3])],
            [value_info("y", FLOAT, ["N", 3]), value_info("dir/sum:0", FLOAT, ["N", 3])],
            [tensor("w", FLOAT, [3], [2, -1, 0.5]), tensor("b", FLOAT, [], [1])]))

    def pair(self):
        """sum = left + right, which have one symbol between them."""
        return self.write("pair.onnx", model(
            [node("Add", ["left", "right"], ["sum"])],
            [value_info("left", FLOAT, ["N", 2]), value_info("right", FLOAT, ["N", 2])],
            [value_info("sum", FLOAT, ["N", 2])]))

    def npy(self, name, dtype, shape, values):
        write_npy(self.folder / name, dtype, shape, values)
        return name


class Run(Cli):
    def test_writes_each_output_to_a_file_of_its_name(self):
        self.npy("x.npy", FLOAT, [2, 3], [1, 2, 3, -4, 5, -6])
        out = self.opkit("run", self.affine(), "--input", "x=x.npy", "--output-dir", "new/out")
        sums = [3, -1, 2.5, -7, -4, -2]
        out_dir = self.folder / "new/out"
        self.assertEqual(read_npy(out_dir / "dir_sum_0.npy"), ("<f4", (2, 3), sums))
        self.assertEqual(read_npy(out_dir / "y.npy"),
                         ("<f4", (2, 3), [max(0, value) for value in sums]))
        self.assertEqual(sorted(os.listdir(out_dir)), ["dir_sum_0.npy", "y.npy"])
        self.assertIn("float32[2, 3]", out)
        self.assertIn("new/out/y.npy", out)

    def test_outputs_whose_names_differ_in_other_characters_get_two_files(self):
        path = self.write("m.onnx", model(
            [node("Neg", ["x"], ["a:b"]), node("Abs", ["x"], ["a/b"])],
            [value_info("x", FLOAT, [1])],
            [value_info("a:b", FLOAT, [1]), value_info("a/b", FLOAT, [1])]))
        self.npy("x.npy", FLOAT, [1], [-3])
        self.opkit("run", path, "--input", "x=x.npy", "--output-dir", "out")
        self.assertEqual(read_npy(self.folder / "out/a_b.npy")[2], [3])
        self.assertEqual(read_npy(self.folder / "out/a_b_2.npy")[2], [3])

    def test_an_output_whose_name_a_file_can_have_gets_that_file(self):
        path = self.write("m.onnx", model(
            [node("Neg", ["x"], ["a:b"]), node("Reciprocal", ["x"], ["a_b"]),
             node("Sign", ["x"], ["a_b_2"])],
            [value_info("x", FLOAT, [1])],
            [value_info(name, FLOAT, [1]) for name in ("a:b", "a_b", "a_b_2")]))
        self.npy("x.npy", FLOAT, [1], [-4])
        self.opkit("run", path, "--input", "x=x.npy", "--output-dir", "out")
        for name, value in (("a_b", -0.25), ("a_b_2", -1), ("a_b_3", 4)):
            self.assertEqual(read_npy(self.folder / f"out/{name}.npy")[2], [value])
        self.assertEqual(len(os.listdir(self.folder / "out")), 3)

    def test_dumps_what_every_node_makes(self):
        long = "v" * 300
        path = self.write("m.onnx", model(
            [node("Neg", ["x"], ["a:b"]), node("Neg", ["a:b"], ["a_b"]), node("Abs", ["a_b"], [long]),
             node("Reciprocal", [long], ["y"])],
            [value_info("x", FLOAT, [2])], [value_info("y", FLOAT, [2])]))
        self.npy("x.npy", FLOAT, [2], [-4, 2])
        out = self.opkit("run", path, "--input", "x=x.npy", "--dump", "new/values")
        self.assertRegex(out, r"(?m)^y +float32\[2\] +0\.25 0\.5$")
        self.assertEqual(self.stderr, "wrote 4 values to new/values\n")
        values = self.folder / "new/values"
        for name, expected in (("a_b", [-4, 2]), ("a_b_2", [4, -2]), ("v" * 200, [4, 2]),
                               ("y", [0.25, 0.5])):
            self.assertEqual(read_npy(values / f"{name}.npy"), ("<f4", (2,), expected))
        self.assertEqual(len(os.listdir(values)), 4)
        self.refuses(BAD_FILE, ["run", path, "--random", "--dump", "x.npy"], "folder 'x.npy'")

    def test_an_input_with_a_default_may_be_left_out(self):
        path = self.write("m.onnx", model(
            [node("Add", ["x", "b"], ["y"])],
            [value_info("b", FLOAT, [2]), value_info("x", FLOAT, [2])],
            [value_info("y", FLOAT, [2])], [tensor("b", FLOAT, [2], [10, 20])]))
        self.npy("x.npy", FLOAT, [2], [1, 2])
        self.npy("b.npy", FLOAT, [2], [5, 6])
        for given, expected in (([], "11 22"), (["b=b.npy"], "6 8")):
            out = self.opkit("run", path, "--input", "x=x.npy", *given)
            self.assertRegex(out, r"(?m)^y +float32\[2\] +" + expected + "$")
        self.assertRegex(self.opkit("inspect", path), r"(?m)^  b +float32\[2\] +has a default$")
        self.refuses(BAD_INPUT, ["run", path, "--fix-defaults", "--input", "x=x.npy", "b=b.npy"],
                     "'b' is a constant of the model, not an input; --fix-defaults")

    def test_random_strings_are_words(self):
        path = self.write("words.onnx", model([node("Identity", ["words"], ["same"])],
                                              [value_info("words", STRING, [2])],
                                              [value_info("same", STRING, [2])]))
        self.assertRegex(self.opkit("run", path, "--random"), r'"[a-z]{2,5}" "[a-z]{2,5}"')
        self.opkit("run", path, "--random", "--output-dir", "out")
        self.opkit("run", path, "--input", "words=out/same.npy", "--output-dir", "again")
        self.assertEqual((self.folder / "out/same.npy").read_bytes(),
                         (self.folder / "again/same.npy").read_bytes())

    def test_a_sequence_is_several_files(self):
        path = self.write("parts.onnx", model(
            [node("Identity", ["parts"], ["same"]), node("SequenceLength", ["parts"], ["length"])],
            [sequence_info("parts", FLOAT)],
            [sequence_info("same", FLOAT), value_info("length", INT64, [])]))
        files = ",".join([self.npy("a.npy", FLOAT, [2], [1, 2]), self.npy("b.npy", FLOAT, [1], [3])])
        self.opkit("run", path, "--input", f"parts={files}", "--output-dir", "out")
        self.assertEqual(read_npy(self.folder / "out/same.0.npy")[1:], ((2,), [1, 2]))
        self.assertEqual(read_npy(self.folder / "out/same.1.npy")[1:], ((1,), [3]))
        self.assertEqual(read_npy(self.folder / "out/length.npy")[1:], ((), [2]))
        self.opkit("run", path, "--input", "parts=", "--output-dir", "none")
        self.assertEqual(read_npy(self.folder / "none/length.npy")[1:], ((), [0]))
        self.npy("c.npy", INT64, [1], [3])
        self.refuses(BAD_INPUT, ["run", path, "--input", "parts=c.npy"], "sequence<float32>",
                     "the files are sequence<int64>")
        self.refuses(BAD_INPUT, ["run", path, "--random"], "--random makes no sequence<float32>")

    def test_the_columns_of_a_zipmap(self):
        path = self.write("classes.onnx", model(
            [node("ZipMap", ["scores"], ["maps"], domain="ai.onnx.ml", lists=[("classlabels_int64s", [7, 9])])],
            [value_info("scores", FLOAT, [2, 2])], [value_info("maps", FLOAT, [2, 2])], domains=["ai.onnx.ml"]))
        self.npy("scores.npy", FLOAT, [2, 2], [0.25, 0.75, 1, 0])
        arguments = ["run", path, "--input", "scores=scores.npy", "--output-dir", "out"]
        self.opkit(*arguments)
        self.assertIn("columns are those of the labels [7, 9]", self.stderr)
        self.assertEqual(read_npy(self.folder / "out/maps.npy")[1:], ((2, 2), [0.25, 0.75, 1, 0]))
        self.opkit(*arguments, "--zipmap-columns")
        self.assertEqual(self.stderr, "")
        self.assertEqual(read_npy(self.folder / "out/maps.7.npy")[1:], ((2,), [0.25, 1]))
        self.assertEqual(read_npy(self.folder / "out/maps.9.npy")[1:], ((2,), [0.75, 0]))

    def test_a_default_that_is_fixed_is_no_input(self):
        path = self.affine()
        self.npy("w.npy", FLOAT, [3], [1, 1, 1])
        self.refuses(BAD_INPUT, ["run", path, "--random", "--fix-defaults", "--input", "w=w.npy"],
                     "'w' is a constant of the model", "--fix-defaults makes constants")

    def test_denormal_numbers_are_zeros_if_asked(self):
        path = self.write("m.onnx", model([node("Add", ["x", "x"], ["y"])],
                                          [value_info("x", FLOAT, [1])],
                                          [value_info("y", FLOAT, [1])]))
        self.npy("x.npy", FLOAT, [1], [1e-39])
        for flags, expected in ((["--flush-denormals"], "0"), ([], "2.0+[0-9]*e-39")):
            out = self.opkit("run", path, "--input", "x=x.npy", *flags)
            self.assertRegex(out, r"(?m)^y +float32\[1\] +" + expected + "$")

    def test_inputs_in_any_order_and_before_the_model(self):
        self.npy("l.npy", FLOAT, [1, 2], [1, 2])
        self.npy("r.npy", FLOAT, [1, 2], [10, 20])
        path = self.pair()
        for arguments in ([path, "--input", "right=r.npy", "--input", "left=l.npy"],
                          [path, "--input", "right=r.npy", "left=l.npy"],
                          ["--input", "right=r.npy", "left=l.npy", path],
                          ["--input=left=l.npy", "--input=right=r.npy", path]):
            self.opkit("run", *arguments, "--output-dir", "out")
            self.assertEqual(read_npy(self.folder / "out/sum.npy"), ("<f4", (1, 2), [11, 22]))

    def test_an_input_whose_name_has_an_equals_sign(self):
        path = self.write("m.onnx", model([node("Neg", ["a=b"], ["y"])],
                                          [value_info("a=b", INT64, [1])],
                                          [value_info("y", INT64, [1])]))
        self.npy("x=y.npy", INT64, [1], [7])
        self.opkit("run", path, "--input", "a=b=x=y.npy", "--output-dir", "out")
        self.assertEqual(read_npy(self.folder / "out/y.npy"), ("<i8", (1,), [-7]))

    def test_without_a_folder_the_first_values_are_printed(self):
        self.npy("x.npy", FLOAT, [1, 3], [1, 2, 4])
        out = self.opkit("run", self.affine(), "--input", "x=x.npy")
        self.assertRegex(out, r"(?m)^y +float32\[1, 3\] +3 0 3$")

    def test_random_inputs_are_those_of_the_seed_and_open_extents_are_1(self):
        outs = [self.opkit("run", self.affine(), "--random", "--seed", seed) for seed in (1, 1, 2)]
        self.assertEqual(outs[0], outs[1])
        self.assertNotEqual(outs[0], outs[2])
        self.assertIn("float32[1, 3]", outs[0])

    def test_a_shape_for_an_open_extent_holds_for_its_symbol(self):
        out = self.opkit("run", self.pair(), "--random", "--shape", "right=5x2")
        self.assertIn("float32[5, 2]", out)
        self.npy("l.npy", FLOAT, [4, 2], range(8))
        out = self.opkit("run", self.pair(), "--random", "--input", "left=l.npy")
        self.assertIn("float32[4, 2]", out)

    def test_threads_backends_and_repetition_change_no_value(self):
        plain = self.opkit("run", self.affine(), "--random")
        for more in (["--threads", 1], ["--threads", 3], ["--backends", "reference"],
                     ["--backends", "eigen,reference"], ["--repeat", 5]):
            self.assertEqual(self.opkit("run", self.affine(), "--random", *more), plain)
        self.assertRegex(self.stderr, r"\A5 runs on (1 thread|\d\d* threads): median [\d.]+ ms")

    def test_run_writes_a_profile(self):
        self.opkit("run", self.affine(), "--random", "--repeat", 3, "--profile", "trace.json")
        trace = json.loads((self.folder / "trace.json").read_text())
        names = [event["name"] for event in trace["traceEvents"] if event["ph"] == "X"]
        self.assertEqual(names.count("Executor::Run"), 3)
        self.assertGreaterEqual(len(names), 6)
        self.opkit("run", self.affine(), "--random", "--profile", "trace.pftrace")
        self.assertIn(b"Executor::Run", (self.folder / "trace.pftrace").read_bytes())
        self.refuses(BAD_FILE, ["run", self.affine(), "--random", "--profile", "no/trace.json"],
                     "no/trace.json")
        for option in "--profile", "--report":
            self.refuses(USAGE, ["run", self.affine(), "--random", option, "-"],
                         option + ": expected the name of a file, found '-'")

    def trace(self, name, **times):
        """A trace of another program with events of these durations, in microseconds."""
        return self.write(name, json.dumps([
            {"name": event, "ph": "X", "ts": 0, "dur": time}
            for event, list_of_times in times.items() for time in list_of_times]))

    def test_compares_traces(self):
        before = self.trace("before.json", Add=range(10, 30), Conv=range(50, 70))
        after = self.trace("after.json", Add=range(10, 30), Conv=range(60, 80))
        rows = self.opkit("trace", "diff", before, after).splitlines()
        self.assertEqual([row.split()[:2] for row in rows[1:]],
                         [["Conv", "slower"], ["Add", "same"]])
        diff = json.loads(self.opkit("trace", "diff", before, after, "--json"))
        self.assertAlmostEqual(diff["rows"][0]["change"], 10 / 59.5, places=4)
        self.opkit("trace", "diff", before, after, "--fail-above", 20)
        self.opkit("trace", "diff", before, after, "--fail-above", 10, code=RUN_FAILED)
        self.assertIn("slower by more than 10 %: Conv", self.stderr)
        self.opkit("trace", "diff", after, before, "--fail-above", 10)
        self.refuses(BAD_FILE, ["trace", "diff", before, "absent.json"], "absent.json")
        self.refuses(BAD_FILE, ["trace", "diff", before, self.affine()], "no Chrome trace")
        self.refuses(USAGE, ["trace", "diff", before], "AFTER")
        self.refuses(USAGE, ["trace", "dif"], "trace has no command 'dif'", "did you mean 'diff'?")
        self.refuses(USAGE, ["trace"], "expected a command: diff; see 'opkit trace --help'")
        self.refuses(USAGE, ["trace", "diff", before, after, "--significance", 2], "significance")

    def test_compares_traces_of_its_own_by_node(self):
        for name in "before.json", "after.json":
            self.opkit("run", self.affine(), "--random", "--repeat", 3, "--profile", name)
        diff = json.loads(self.opkit("trace", "diff", "before.json", "after.json", "--by-node",
                                     "--json"))
        runs = {row["name"]: (row["runs_before"], row["runs_after"]) for row in diff["rows"]}
        self.assertEqual(runs["Add (adds)"], (3, 3))
        self.assertEqual(runs["Executor::Run"], (3, 3))

    def test_prints_the_critical_path(self):
        out = self.opkit("run", self.affine(), "--random", "--critical-path")
        self.assertRegex(out, r"critical path of 3 nodes")
        self.assertRegex(out, r"(?m)^Add \(adds\) ")

    def test_says_which_implementations_run_and_forces_them(self):
        out = self.opkit("run", self.affine(), "--random", "--explain", "-", "--save-selection",
                         "kernels")
        self.assertRegex(out, r"(?m)^\d+ Add 'adds' .*: eigen$")
        self.assertRegex(out, r"(?m)^    then reference: comes later in the order of backends: rank 0, "
                         r"and that of eigen is \d+$")
        saved = (self.folder / "kernels").read_text()
        self.assertRegex(saved, r"(?m)\tAdd\teigen\t0\tcpu\tstandard$")
        (self.folder / "kernels").write_text(saved.replace("\tAdd\teigen\t0", "\tAdd\treference\t-1"))
        self.opkit("run", self.affine(), "--random", "--selection", "kernels", "--explain", "e.json")
        nodes = json.loads((self.folder / "e.json").read_text())["nodes"]
        add = next(node for node in nodes if node["text"].startswith("Add 'adds'"))
        self.assertEqual(add["candidates"][add["chosen"]]["backend"], "reference")
        (self.folder / "kernels").write_text("nonsense")
        self.refuses(BAD_FILE, ["run", self.affine(), "--random", "--selection", "kernels"],
                     "line 1 of a selection is 'nonsense'")

    def test_what_is_counted_of_each_operator(self):
        self.opkit("run", self.affine(), "--random", "--profile", "trace.json", "--counters",
                   "task_clock,page_faults")
        events = json.loads((self.folder / "trace.json").read_text())["traceEvents"]
        runs = [event for event in events if event["name"] == "Executor::Run"]
        self.assertEqual(len(runs), 1)
        self.assertLessEqual({"task_clock", "page_faults"}, set(runs[0]["args"]))
        self.refuses(USAGE, ["run", self.affine(), "--random", "--profile", "t", "--counters",
                             "cycels"], "there is no counter 'cycels'", "did you mean 'cycles'?")

    def test_a_table_of_the_nodes(self):
        out = self.opkit("run", self.affine(), "--random", "--repeat", 3, "--table")
        self.assertRegex(out, r"(?m)^node +op +ms +share +GFLOP/s +GB/s$")
        for op in ("Mul", "Add 'adds'", "Relu"):
            self.assertIn(op, out)
        self.assertIn("the median of 3 runs", out)


    def test_a_device_of_the_host_runs_the_model_too(self):
        self.npy("x.npy", FLOAT, [1, 3], [1, 2, 3])
        arguments = ["run", self.affine(), "--input", "x=x.npy", "--output-dir"]
        self.opkit(*arguments, "plain")
        self.opkit(*arguments, "placed", "--device", "cpu:0")
        self.assertEqual(read_npy(self.folder / "placed/y.npy"), read_npy(self.folder / "plain/y.npy"))
        report = json.loads(self.opkit("bench", self.affine(), "--device", "cpu", "--runs", 1))
        self.assertEqual(report["device"], "cpu")

    def test_a_device_that_is_not_there(self):
        for text in ("gpu", "cuda:", "cuda:x", "cuda:-1"):
            self.refuses(USAGE, ["run", self.affine(), "--random", "--device", text],
                         f"expected --device TYPE or TYPE:NUMBER, such as cuda:1, found '{text}'")
        for command in (["run", "--random"], ["bench"], ["inspect"]):
            self.refuses(USAGE, [*command, self.affine(), "--device", "cuda"], "this program has no kernels "
                         "for cuda; build it with nvcc on the PATH and -DOPKIT_CLI_CUDA=ON")


class WrongInput(Cli):
    def test_names_the_nearest_input(self):
        self.npy("l.npy", FLOAT, [1, 2], [1, 2])
        self.refuses(BAD_INPUT, ["run", self.pair(), "--input", "lefft=l.npy"],
                     "the model has no input 'lefft'", "did you mean 'left'?", "'right'")

    def test_says_what_a_missing_input_is(self):
        self.refuses(BAD_INPUT, ["run", self.pair()], "input 'left', which is float32[N, 2], has "
                     "no value", "--input left=FILE.npy", "--random")

    def test_says_what_the_model_expects(self):
        self.npy("d.npy", DOUBLE, [2, 3], range(6))
        self.npy("shape.npy", FLOAT, [2, 4], range(8))
        self.npy("rank.npy", FLOAT, [3], range(3))
        path = self.affine()
        self.refuses(BAD_INPUT, ["run", path, "--input", "x=d.npy"],
                     "input 'x' is float32[N, 3], but d.npy holds float64[2, 3]",
                     ".astype('float32')")
        words = self.write("words.onnx", model([node("Identity", ["words"], ["same"])],
                                               [value_info("words", STRING, ["N"])],
                                               [value_info("same", STRING, ["N"])]))
        self.refuses(BAD_INPUT, ["run", words, "--input", "words=rank.npy"],
                     "input 'words' is string[N], but rank.npy holds float32[3]", ".astype(str)")
        for name, found in (("shape.npy", "[2, 4]"), ("rank.npy", "[3]")):
            self.refuses(BAD_INPUT, ["run", path, "--input", "x=" + name],
                         f"input 'x' is float32[N, 3], but {name} holds float32{found}")
        self.refuses(BAD_INPUT, ["run", path, "--random", "--shape", "x=2x4"],
                     "input 'x' is float32[N, 3], but --shape gives [2, 4]")

    def test_says_where_a_symbol_got_its_extent(self):
        self.npy("l.npy", FLOAT, [1, 2], [1, 2])
        self.npy("r.npy", FLOAT, [3, 2], range(6))
        self.refuses(BAD_INPUT, ["run", self.pair(), "--input", "left=l.npy", "right=r.npy"],
                     "input 'right' is float32[N, 2], and N is 1 in 'left', but r.npy holds "
                     "float32[3, 2]")

    def test_the_same_input_twice(self):
        self.npy("l.npy", FLOAT, [1, 2], [1, 2])
        self.refuses(USAGE, ["run", self.pair(), "--input", "left=l.npy", "left=l.npy"],
                     "input 'left' is given twice")
        self.refuses(USAGE, ["run", self.pair(), "--shape", "left=1x2", "left=1x2"], "given twice")

    def test_files_that_are_none(self):
        self.write("text.npy", "1 2 3")
        self.write("empty.npy", "")
        whole = self.folder / self.npy("whole.npy", FLOAT, [2, 3], range(6))
        self.write("cut.npy", whole.read_bytes()[:-1])
        for name in ("text.npy", "empty.npy", "cut.npy", "absent.npy", "."):
            self.refuses(BAD_FILE, ["run", self.affine(), "--input", "x=" + name], name)
        self.refuses(BAD_FILE, ["run", self.affine(), "--input", "x=4x3"],
                     "a shape is --shape x=4x3, with --random")

    def test_an_output_folder_that_cannot_be(self):
        self.write("file", "")
        self.refuses(BAD_FILE, ["run", self.affine(), "--random", "--output-dir", "file/out"],
                     "cannot make the folder 'file/out'")
        self.refuses(BAD_FILE, ["run", self.affine(), "--random", "--output-dir", "file"],
                     "cannot make the folder 'file'")

    def test_an_output_folder_without_a_name(self):
        self.refuses(BAD_FILE, ["run", self.affine(), "--random", "--output-dir", ""],
                     "cannot make the folder ''")

    def test_threads_of_the_environment_that_are_none(self):
        for threads in ([], ["--threads", 1]):
            out = self.opkit("run", self.affine(), "--random", *threads, code=USAGE,
                             environment={"OPKIT_NUM_THREADS": "many"})
            self.assertEqual(out, "")
            self.assertIn("OPKIT_NUM_THREADS to be a number", self.stderr)

    def test_shapes_that_are_none(self):
        for shape in ("x=", "x=axb", "x=1x", "x=-1x3", "x=1xx3", "x=99999999999999999999x3"):
            code = BAD_INPUT if shape == "x=" else USAGE
            self.refuses(code, ["run", self.affine(), "--random", "--shape", shape])
        self.refuses(USAGE, ["run", self.affine(), "--random", "--shape", "1x3"],
                     "expected --shape NAME=1x3x48x320, found '1x3'")

    def test_more_memory_than_there_is(self):
        self.refuses(RUN_FAILED, ["run", self.affine(), "--random", "--shape",
                                  "x=1000000000000x3"], "out of memory")


class WrongModel(Cli):
    def test_files_that_are_none(self):
        self.write("empty.onnx", "")
        self.write("text.onnx", "# a model card\n")
        whole = (self.folder / self.affine()).read_bytes()
        self.write("cut.onnx", whole[:len(whole) // 2])
        for name in ("empty.onnx", "text.onnx", "cut.onnx", "absent.onnx", "."):
            for command in (["run", "--random"], ["bench"], ["inspect"]):
                self.refuses(BAD_FILE, [command[0], name, *command[1:]], name)

    def test_an_operator_that_is_not_there(self):
        path = self.write("m.onnx", model([node("Relv", ["x"], ["y"], "first")],
                                          [value_info("x", FLOAT, [1])],
                                          [value_info("y", FLOAT, [1])]))
        self.refuses(BAD_MODEL, ["run", path, "--random"], "Relv", "first", "'Relu'",
                     "'opkit ops' lists the operators")

    def test_an_opset_that_is_not_read(self):
        path = self.write("m.onnx", model([node("Relu", ["x"], ["y"])],
                                          [value_info("x", FLOAT, [1])],
                                          [value_info("y", FLOAT, [1])], opset=1000))
        self.refuses(BAD_MODEL, ["run", path, "--random"], "1000")

    def test_a_value_that_nothing_makes_is_damage(self):
        path = self.write("m.onnx", model([node("Relu", ["lost"], ["y"], "first")],
                                          [value_info("x", FLOAT, [1])],
                                          [value_info("y", FLOAT, [1])]))
        self.refuses(BAD_FILE, ["run", path, "--random"], "Relu 'first'", "reads 'lost'",
                     "the file is damaged")
        self.assertNotIn("opkit ops", self.stderr)
        path = self.write("n.onnx", model(
            [node("Relv", ["x"], ["z"], "first"), node("Relu", ["lost"], ["y"])],
            [value_info("x", FLOAT, [1])], [value_info("y", FLOAT, [1])]))
        self.refuses(BAD_MODEL, ["run", path, "--random"], "Relv", "'opkit ops' lists")

    def test_sizes_that_no_machine_has_name_the_node(self):
        def filled(extents):
            return self.write("m.onnx", model(
                [node("ConstantOfShape", ["s"], ["c"], "big"), node("Neg", ["c"], ["n"], "small"),
                 node("ReduceSum", ["n"], ["y"])], [], [value_info("y", FLOAT, [])],
                [tensor("s", INT64, [len(extents)], extents)]))
        self.refuses(RUN_FAILED, ["run", filled([1 << 46])], "out of memory",
                     "float32[70368744177664]", "made by node ConstantOfShape 'big' (s) -> (c)")
        for extents in ([1 << 62], [1 << 40, 1 << 40]):
            self.refuses(BAD_MODEL, ["run", filled(extents)], "than a 64-bit count can hold",
                         "ConstantOfShape 'big' (s) -> (c)")
        path = self.write("m.onnx", model(
            [node("Tile", ["x", "r"], ["y"], "tiles")], [], [value_info("y", FLOAT, ["a", "b"])],
            [tensor("x", FLOAT, [1, 1], [1]), tensor("r", INT64, [2], [1 << 40, 1 << 40])]))
        self.refuses(BAD_MODEL, ["run", path], "more elements than a 64-bit count can hold",
                     "'y', which node Tile 'tiles' (x, r) -> (y) makes")

    def test_an_attribute_that_an_operator_does_not_have(self):
        path = self.write("m.onnx", model([node("Relu", ["x"], ["y"], "act", [("alpha", 1)])],
                                          [value_info("x", FLOAT, [1])],
                                          [value_info("y", FLOAT, [1])]))
        self.refuses(BAD_MODEL, ["run", path, "--random"],
                     "node 'act' (Relu): Relu has no argument 'alpha'")

    def test_shapes_that_contradict_each_other(self):
        path = self.write("m.onnx", model([node("Add", ["x", "w"], ["y"], "adds")],
                                          [value_info("x", FLOAT, [2])],
                                          [value_info("y", FLOAT, [2])],
                                          [tensor("w", FLOAT, [3], [1, 2, 3])]))
        self.refuses(BAD_MODEL, ["run", path, "--random"], "Add", "adds")

    def test_an_input_that_the_nodes_refuse(self):
        path = self.write("m.onnx", model([node("Add", ["x", "w"], ["y"], "adds")],
                                          [value_info("x", FLOAT, ["N"])],
                                          [value_info("y", FLOAT, ["M"])],
                                          [tensor("w", FLOAT, [3], [1, 2, 3])]))
        self.opkit("run", path, "--random")
        self.refuses(BAD_INPUT, ["run", path, "--random", "--shape", "x=2"], "Add",
                     "with the inputs x float32[2]")

    def test_an_attribute_that_an_operator_refuses_is_the_models_fault(self):
        path = self.write("m.onnx", model(
            [node("LRN", ["x"], ["y"], "norm", [("size", 0)])],
            [value_info("x", FLOAT, [1, 3, 2, 2])], [value_info("y", FLOAT, [1, 3, 2, 2])]))
        self.refuses(BAD_MODEL, ["run", path, "--random"], "LRN", "size")
        self.assertNotIn("--shape", self.stderr)

    def test_the_environment_restricts_the_backends(self):
        def backends(allowed):
            self.opkit("bench", self.affine(), "--runs", 1, "--nodes", "-o", "bench.json",
                       environment={"OPKIT_BACKENDS": allowed})
            report = json.loads((self.folder / "bench.json").read_text())
            return {node["backend"] for node in report["nodes"]}
        self.assertEqual(backends("reference"), {"reference"})
        self.assertEqual(backends(" eigen , reference"), {"eigen"})
        self.assertEqual(backends("reference,eigen"), {"reference"})
        self.assertEqual(backends(""), backends("eigen,reference"))
        self.assertEqual(backends("eigen\n"), {"eigen"})
        self.opkit("run", self.affine(), "--random", code=USAGE,
                   environment={"OPKIT_BACKENDS": "eigne,reference"})
        self.assertRegex(self.stderr, "the environment variable OPKIT_BACKENDS: no backend 'eigne' has a "
                                      r"kernel in this program \(did you mean 'eigen'\?")
        self.opkit("run", self.affine(), "--random", "--backends", "eigen,reference", code=USAGE,
                   environment={"OPKIT_BACKENDS": "reference"})
        self.assertIn("--backends names 'eigen', which the environment variable OPKIT_BACKENDS does not "
                      "allow", self.stderr)
        self.opkit("run", self.affine(), "--random", "--backends", "eigen", "--save-selection",
                   "eigen.tsv")
        self.opkit("run", self.affine(), "--random", "--selection", "eigen.tsv", code=BAD_MODEL,
                   environment={"OPKIT_BACKENDS": "reference"})
        self.assertRegex(self.stderr, "requires a kernel of backend eigen on cpu, by itself or by "
                                      "a selection; .*OPKIT_BACKENDS=reference leaves out eigen")

    def test_backends_without_a_kernel(self):
        self.refuses(USAGE, ["run", self.affine(), "--random", "--backends", "eigne"],
                     "no backend 'eigne'", "did you mean 'eigen'?")
        path = self.write("m.onnx", model([node("NonZero", ["x"], ["y"], "finds")],
                                          [value_info("x", FLOAT, [1])],
                                          [value_info("y", INT64, [1, "n"])]))
        self.refuses(BAD_MODEL, ["run", path, "--random", "--backends", "eigen"], "NonZero",
                     "no kernel of the backends [eigen]", "add 'reference' to --backends")

    def test_a_name_with_escape_sequences_does_not_reach_the_terminal(self):
        path = self.write("m.onnx", model([node("Relu", ["x"], ["\033[2Jy\n"])],
                                          [value_info("x", FLOAT, [1])],
                                          [value_info("\033[2Jy\n", FLOAT, [1])]))
        self.opkit("run", path, "--random")  # opkit() looks for escapes
        self.opkit("inspect", path)
        self.refuses(BAD_INPUT, ["run", path, "--input", "\033[2Jz=x.npy"], "no input")


class Bench(Cli):
    def test_reports_json(self):
        report = json.loads(self.opkit("bench", self.affine(), "--shape", "x=4x3", "--threads", 2,
                                       "--runs", 20))
        self.assertEqual(report["inputs"], {"x": "float32[4, 3]"})
        self.assertEqual((report["runs"], report["threads"]), (20, 2))
        order = ["min_ms", "p10_ms", "p25_ms", "median_ms", "p75_ms", "p90_ms", "p95_ms", "p99_ms",
                 "max_ms"]
        times = [report[key] for key in order]
        self.assertEqual(times, sorted(times))
        self.assertGreater(times[0], 0)
        self.assertLessEqual(report["min_ms"], report["mean_ms"])
        self.assertLessEqual(report["mean_ms"], report["max_ms"])
        self.assertAlmostEqual(report["load_ms"], report["read_ms"] + report["plan_ms"], places=5)
        self.assertGreater(report["first_result_ms"], report["load_ms"])
        self.assertGreater(report["peak_memory_bytes"], 1 << 20)
        self.assertNotIn("nodes", report)

    def test_measures_at_least_five_runs_whatever_the_time(self):
        report = json.loads(self.opkit("bench", self.affine(), "--seconds", "1e-9"))
        self.assertEqual(report["runs"], 5)

    def test_measures_on_request(self):
        def serve(text):
            return subprocess.run([program, "bench", self.affine(), "--serve", "--warmup", "0"], input=text,
                                  capture_output=True, text=True, cwd=self.folder, timeout=60)
        run = serve("1e-9\n0.02\n")
        first, short, long = map(json.loads, run.stdout.splitlines())
        self.assertGreater(first["first_result_ms"], 0)
        self.assertEqual(short["runs"], 5)
        self.assertGreater(long["runs"], 5)
        self.assertLessEqual(long["min_ms"], long["median_ms"])
        self.assertEqual((run.stderr, run.returncode), ("", 0))
        run = serve("soon\n")
        self.assertEqual(run.returncode, USAGE)
        self.assertIn("--serve: expected a number of seconds above 0, found 'soon'", run.stderr)
        self.refuses(USAGE, ["bench", self.affine(), "--serve", "--runs", 3], "--runs excludes --serve")

    def test_refuses_a_place_that_cannot_be_written_before_it_measures(self):
        self.refuses(BAD_FILE, ["bench", self.affine(), "--seconds", 1000, "-o", "absent/b.json"],
                     "cannot write 'absent/b.json'", "No such file")

    def test_replaces_what_was_in_the_file(self):
        self.write("bench.json", "x" * 100_000)
        self.opkit("bench", self.affine(), "--runs", 1, "-o", "bench.json")
        self.assertEqual(json.loads((self.folder / "bench.json").read_text())["runs"], 1)
        self.opkit("bench", self.affine(), "--runs", 1, "-o", "/dev/null")

    def test_nodes(self):
        self.opkit("bench", self.affine(), "--seconds", "0.01", "--nodes", "-o", "bench.json")
        report = json.loads((self.folder / "bench.json").read_text())
        self.assertEqual([row["op"] for row in report["nodes"]], ["Mul", "Add", "Relu"])
        self.assertEqual(report["nodes"][1]["output"], "float32[1, 3]")
        self.assertEqual({row["op"] for row in report["operators"]}, {"Mul", "Add", "Relu"})
        self.assertAlmostEqual(sum(row["share"] for row in report["operators"]), 1, places=5)

    def test_takes_inputs(self):
        self.npy("x.npy", FLOAT, [7, 3], range(21))
        report = json.loads(self.opkit("bench", self.affine(), "--runs", 1, "--input", "x=x.npy"))
        self.assertEqual(report["inputs"], {"x": "float32[7, 3]"})
        report = json.loads(self.opkit("bench", self.affine(), "--runs", 1, "--random"))
        self.assertEqual(report["inputs"], {"x": "float32[1, 3]"})

    def test_peak_memory_is_that_of_the_process_alone(self):
        """Not what a parent had before it started the program."""
        ballast = bytearray(os.urandom(1) * (400 << 20))
        report = json.loads(self.opkit("bench", self.affine(), "--runs", 1))
        del ballast
        self.assertLess(report["peak_memory_bytes"], 200 << 20)  # about 100 MiB with sanitizers


class Tune(Cli):
    def test_the_choice_is_kept_and_used(self):
        cache = self.folder / "mine.json"
        model, shape = self.affine(), ("--shape", "x=4x3")
        out = self.opkit("tune", model, *shape, "--threads", 1, "--budget", "0.2", "--cache", cache,
                         "-o", "model.selection")
        for text in ("plan ", "median us", "* ", " nodes have another kernel than by default"):
            self.assertIn(text, out)
        kept = json.loads(cache.read_text())
        kinds = [next(iter(entry)) for entry in kept["machines"][0]["entries"]]
        self.assertEqual(kinds.count("plan"), 1)
        self.assertGreater(kinds.count("time"), 0)
        selection = (self.folder / "model.selection").read_text()
        self.assertIn("\treference\t" if "reference" in selection else "\teigen\t", selection)
        self.opkit("run", model, *shape, "--threads", 1, "--random", "--selection", "model.selection")

        # The cache has the plan: nothing is measured.
        explained = self.opkit("run", model, *shape, "--threads", 1, "--random", "--tuned", "--tuning-cache",
                               cache, "--explain", "-")
        self.assertIn("    measured ", explained)
        self.assertEqual(self.stderr, "")
        # It has none for other shapes or another number of threads, and run says so.
        self.opkit("run", model, "--shape", "x=2x3", "--threads", 1, "--random", "--tuned", "--tuning-cache", cache,
                   "--tuning-budget", "0.1")
        self.assertIn(f"the tuning cache {cache} has no plan of this model; measuring", self.stderr)
        self.opkit("run", model, "--shape", "x=2x3", "--threads", 1, "--random", "--tuned", "--tuning-cache", cache)
        self.assertEqual(self.stderr, "")

    def test_a_forced_kernel_is_no_tuned_plan(self):
        self.write("one.selection", "y\tRelu\treference\t-1\n")
        self.opkit("run", self.affine(), "--threads", 1, "--random", "--selection", "one.selection", "--tuned",
                   "--tuning-cache", "new.json", "--tuning-budget", "0.1")
        self.assertIn("has no plan of this model; measuring", self.stderr)

    def test_explains_to_a_file(self):
        self.assertEqual(self.opkit("tune", self.affine(), "--budget", "0.1", "--explain", "why.txt"), "")
        self.assertIn("speedup", (self.folder / "why.txt").read_text())

    def test_objectives(self):
        arguments = ["tune", self.affine(), "--threads", 1, "--budget", "0.1"]
        self.assertIn("faster or smaller than every other plan:",
                      self.opkit(*arguments, "--objective", "memory", "--pareto", "--executors", 2))
        self.refuses(USAGE, [*arguments, "--objective", "beauty"], "--objective")
        self.refuses(RUN_FAILED, [*arguments, "--memory-bound", 1], "takes at most 1 bytes")

    def test_merges_and_exports_without_a_model(self):
        first, second, both = (self.folder / name for name in ("a.json", "b.json", "c.json"))
        self.opkit("tune", self.affine(), "--threads", 1, "--budget", "0.1", "--cache", first)
        self.opkit("tune", self.affine(), "--threads", 1, "--shape", "x=2x3", "--budget", "0.1", "--cache", second)
        self.opkit("tune", "--cache", first, "--merge", second, "--export", both)
        self.assertRegex(self.stderr, r"b\.json had [1-9]\d* entries that are new or newer")
        entries = json.loads(both.read_text())["machines"][0]["entries"]
        self.assertEqual(sum("plan" in entry for entry in entries), 2)
        self.refuses(BAD_FILE, ["tune", "--cache", first, "--merge", "absent.json"], "absent.json")
        (self.folder / "foreign.json").write_text("{}")
        self.refuses(BAD_FILE, ["tune", "--cache", first, "--merge", "foreign.json"], "foreign.json")

    def test_a_cache_that_cannot_be_written_is_a_warning(self):
        (self.folder / "file").write_text("")
        self.opkit("tune", self.affine(), "--budget", "0.1", "--cache", self.folder / "file/cache.json")
        self.assertIn("file/cache.json", self.stderr)

    def test_needs_a_model(self):
        self.refuses(USAGE, ["tune"], "expected the file of a model")


class BenchOp(Cli):
    def test_kernels_of_an_operator_in_a_table(self):
        out = self.opkit("bench-op", "Relu", "--input", "float32:8x8", "--seconds", "0.05",
                         "--threads", "1,2", "--peak")
        lines = out.splitlines()
        self.assertEqual(lines[0], "Relu float32 [8, 8]")
        for word in ("kernel", "median us", "95 % interval", "GB/s", "of peak"):
            self.assertIn(word, lines[1])
        kernels = [line.split()[0] for line in lines[2:]]
        self.assertEqual(kernels.count("reference"), 2)  # on 1 and on 2 threads
        self.assertGreater(len(kernels), 2)
        self.assertRegex(out, r" % of (L1|L2|L3|memory|FMA)")

    def test_the_peak_is_kept_in_a_file(self):
        arguments = ["bench-op", "Relu", "--input", "float32:8", "--backends", "reference",
                     "--seconds", "0.01", "--peak"]
        here = {"OPKIT_TUNING_CACHE": "new/tuning.json"}
        file = self.folder / "new/peak.json"
        self.opkit(*arguments, environment=here)
        kept = json.loads(file.read_text())
        [entry] = kept["peaks"]
        self.assertEqual(entry["key"]["threads"], 1)
        self.assertGreater(entry["flops"], 1e8)

        # A second for each operation.
        file.write_text(json.dumps({**kept, "peaks": [{**entry, "disturbed": False, "flops": 1}]}))
        self.assertIn("of FMA (fewer or narrower operations)", self.opkit(*arguments, environment=here))
        self.assertNotIn("warning", self.stderr)
        self.assertNotIn("fewer", self.opkit(*arguments, "--measure-peak", environment=here))
        # It is measured again if the entries are of another machine, a busy one, or damaged.
        entry["flops"] = 1
        file.write_text(json.dumps({"version": 1, "peaks": [
            {**entry, "key": {**entry["key"], "machine": "another"}, "disturbed": False},
            {**entry, "disturbed": True}, {**entry, "disturbed": False, "caches": 5}, 7]}))
        self.assertNotIn("fewer", self.opkit(*arguments, environment=here))
        found = json.loads(file.read_text())["peaks"]
        self.assertEqual([one["key"]["machine"] for one in found if one != 7],
                         [entry["key"]["machine"], "another"])
        self.assertGreater(found[0]["flops"], 1e8)
        file.write_text('{"version": 1, "peaks": [')
        self.opkit(*arguments, environment=here)
        self.assertEqual(len(json.loads(file.read_text())["peaks"]), 1)

    def test_draws_a_problem_and_a_sweep(self):
        arguments = ["bench-op", "MatMul", "--input", "float32:4xN", "--input", "float32:Nx8",
                     "--backends", "reference,eigen", "--seconds", "0.01"]
        self.opkit(*arguments, "--sweep", "N=2,8,64", "--plot", "sweep.svg")
        drawn = xml.dom.minidom.parse(str(self.folder / "sweep.svg"))
        self.assertEqual(len(drawn.getElementsByTagName("polyline")), 2)  # one for each kernel
        texts = [text.firstChild.data for text in drawn.getElementsByTagName("text")]
        for text in ("MatMul float32:4xN, float32:Nx8", "N", "2", "64", "eigen, 1 thread"):
            self.assertIn(text, texts)
        self.assertTrue(any(text.startswith("FMA ") for text in texts), texts)
        one = self.opkit("bench-op", "Relu", "--input", "float32:8", "--seconds", "0.01", "--plot", "-")
        texts = xml.dom.minidom.parseString(one).getElementsByTagName("text")
        self.assertEqual(texts[0].firstChild.data, "Relu float32 [8]")
        self.refuses(BAD_FILE, [*arguments, "--sweep", "N=2", "--plot", "absent/plot.svg"],
                     "cannot write 'absent/plot.svg'")

    def test_a_peak_that_cannot_be_kept_is_a_warning(self):
        self.write("file", "")
        self.opkit("bench-op", "Relu", "--input", "float32:8", "--backends", "reference", "--seconds",
                   "0.01", "--peak", environment={"OPKIT_TUNING_CACHE": "file/tuning.json"})
        self.assertIn("warning: the measured peak is not kept: ", self.stderr)

    def test_inputs_by_name_and_a_sweep(self):
        out = self.opkit("bench-op", "MatMul", "--input", "B=float32:3xN", "--input", "A=float32:2x3",
                         "--constant", "B", "--sweep", "N=4,5", "--backends", "reference",
                         "--seconds", "0.02", "--cold", "weights")
        self.assertIn("MatMul float32 [2, 3], float32 [3, 4]\n", out)
        self.assertIn("MatMul float32 [2, 3], float32 [3, 5]\n", out)

    def test_lists_as_attributes(self):
        arguments = ["bench-op", "MaxPool", "--input", "float32:1x1x4x6", "--backends", "reference", "--seconds",
                     "0.01", "--attr", "kernel_shape=[3,3]", "--attr"]
        self.assertIn("MaxPool(kernel_shape=[3, 3],pads=[1, 1, 1, 1])", self.opkit(*arguments, "pads=[1,1,1,1]"))
        for text in ("1,1,1,1", "[1,a]", "[1"):  # no lists: libraries may read such texts themselves
            self.refuses(BAD_INPUT, [*arguments, "pads=" + text], "pads", f'is string ("{text}")')

    def test_counters(self):
        self.refuses(USAGE, ["bench-op", "Relu", "--input", "float32:8", "--counters", "cycles,cache_mises"],
                     "there is no counter 'cache_mises'", "did you mean 'cache_misses'?")
        run = subprocess.run([program, "bench-op", "Relu", "--input", "float32:100000", "--backends",
                              "reference", "--seconds", "0.02", "--counters", "task_clock,page_faults",
                              "--json", "c.json"], cwd=self.folder, capture_output=True, text=True)
        if run.returncode == RUN_FAILED:  # a container may forbid all counters
            self.assertRegex(run.stderr, r"\Aopkit: error: cannot count task_clock: \w")
            return
        header, row = run.stdout.splitlines()[1:3]
        self.assertIn("task_clock  page_faults  against the first", header)
        counts = json.loads((self.folder / "c.json").read_text())["benchmarks"][0]
        self.assertGreater(counts["task_clock"], 1000)  # ns for 100,000 elements
        self.assertLess(counts["page_faults"], 10)  # all memory has been touched before

    def test_samples_as_json_and_their_comparison(self):
        arguments = ["bench-op", "Relu", "--input", "float32:1000", "--backends", "reference",
                     "--seconds", "0.1"]
        self.opkit(*arguments, "--json", "before.json")
        text = (self.folder / "before.json").read_text()
        benchmarks = json.loads(text)["benchmarks"]
        self.assertGreater(len(benchmarks), 3)  # 7 at least are taken, and more than half kept
        name = "Relu float32 [1000]/reference/threads:1"
        for i, one in enumerate(benchmarks):
            self.assertEqual((one["name"], one["repetition_index"], one["time_unit"]), (name, i, "ns"))
            self.assertGreater(one["real_time"], 0)
        self.assertEqual(json.loads(self.opkit(*arguments, "--json", "-"))["benchmarks"][0]["name"], name)
        # A recording that is 1,000 times as fast makes this one slower. It has so many samples that 4 new
        # ones are enough for a verdict.
        benchmarks = [{**one, "real_time": one["real_time"] / 1000} for one in benchmarks * 8]
        self.write("fast.json", json.dumps({"benchmarks": benchmarks}))
        self.opkit(*arguments, "--compare", "fast.json", "--fail-above", "5", code=RUN_FAILED)
        self.assertIn("slower by more than 5 %: " + name, self.stderr)
        for one in benchmarks:
            one["real_time"] *= 1e6
        self.write("slow.json", json.dumps({"benchmarks": benchmarks}))
        self.assertIn("faster", self.opkit(*arguments, "--compare", "slow.json", "--fail-above", "5"))

    def test_what_is_not_understood(self):
        self.refuses(BAD_MODEL, ["bench-op", "Rleu", "--input", "float32:8"], "Rleu", "Relu")
        self.refuses(USAGE, ["bench-op", "Relu", "--input", "8x8"],
                     "expected --input NAME=DTYPE:SHAPE", "found '8x8'")
        self.refuses(USAGE, ["bench-op", "Relu", "--input", "float33:8"], "found 'float33:8'")
        self.refuses(USAGE, ["bench-op", "MatMul", "--input", "a=float32:8x8"],
                     "operator MatMul has no input 'a'")
        self.refuses(USAGE, ["bench-op", "MatMul", "--input", "B=float32:8x8"],
                     "expected --input for input 0 of MatMul")
        self.refuses(USAGE, ["bench-op", "Relu", "--input", "float32:8", "--constant", "W"],
                     "--constant W names no input of --input")
        self.refuses(USAGE, ["bench-op", "Relu", "--fail-above", "5"], "--compare OLD.json")
        self.refuses(USAGE, ["bench-op", "Relu", "--input", "float32:8", "--cold", "ice"], "--cold")
        self.refuses(BAD_INPUT, ["bench-op", "MatMul", "--input", "float32:2x3", "--input", "float32:4x5"],
                     "MatMul")
        self.write("bad.json", "{}")
        self.refuses(BAD_FILE, ["bench-op", "Relu", "--input", "float32:8", "--seconds", "1000",
                                "--compare", "bad.json"], "'bad.json' is no JSON of Google Benchmark")


class BenchCompare(Cli):
    def benchmarks(self, name, *, unit="us", more=(), **times):
        """A file of Google Benchmark with a repetition for each time."""
        rows = [{"name": row, "run_name": row, "run_type": "iteration", "repetitions": len(all_times),
                 "repetition_index": i, "iterations": 10, "real_time": time, "cpu_time": 1,
                 "time_unit": unit}
                for row, all_times in times.items() for i, time in enumerate(all_times)]
        return self.write(name, json.dumps({"context": {"num_cpus": 2}, "benchmarks": [*rows, *more]}))

    def verdicts(self, *arguments, **how):
        out = self.opkit("bench", "compare", *arguments, "--json", **how)
        return {row["name"]: row["verdict"] for row in json.loads(out)["rows"]}

    def test_rows_of_two_files(self):
        mean = {"name": "Add_mean", "run_type": "aggregate", "real_time": 5, "time_unit": "us"}
        failed = {"name": "Mul", "run_type": "iteration", "error_occurred": True,
                  "error_message": "it needs another machine", "real_time": 0, "time_unit": "us"}
        old = self.benchmarks("old.json", Add=range(10, 30), Conv=range(50, 70), Gone=[1], more=[mean])
        new = self.benchmarks("new.json", Add=range(10, 30), Conv=range(60, 80), New=[1],
                              more=[mean, failed])
        rows = self.opkit("bench", "compare", old, new).splitlines()
        self.assertIn("median us", rows[0])
        self.assertEqual([row.split()[:2] for row in rows[1:]],
                         [["Conv", "slower"], ["New", "new"], ["Add", "same"], ["Gone", "gone"]])
        self.assertRegex(rows[1], r"59\.500 +69\.500 +\+16\.8 %")
        self.opkit("bench", "compare", old, new, "--fail-above", 20)
        self.opkit("bench", "compare", old, new, "--fail-above", 10, code=RUN_FAILED)
        self.assertIn("slower by more than 10 %: Conv\n", self.stderr)
        self.opkit("bench", "compare", new, old, "--fail-above", 10)

    def test_units(self):
        times = range(1000, 1020)
        old = self.benchmarks("old.json", Add=[1000 * time for time in times], unit="ns")
        for unit, factor in ("us", 1), ("ms", 1e-3), ("s", 1e-6):
            new = self.benchmarks("new.json", Add=[factor * time for time in times], unit=unit)
            row = json.loads(self.opkit("bench", "compare", old, new, "--json"))["rows"][0]
            self.assertAlmostEqual(row["change"], 0)
            self.assertAlmostEqual(row["median_after_ns"], 1009500, places=3)

    def test_a_difference_counts_less_in_a_file_of_many_rows(self):
        """Five against five, all of them slower: p is 2/252, and twice that for two rows."""
        slower = {"old.json": range(5), "new.json": range(10, 15)}
        one = [self.benchmarks(name, Add=times) for name, times in slower.items()]
        self.assertEqual(self.verdicts(*one), {"Add": "slower"})
        two = [self.benchmarks(name, Add=times, Mul=times) for name, times in slower.items()]
        self.assertEqual(self.verdicts(*two), {"Add": "too few runs", "Mul": "too few runs"})
        self.assertEqual(self.verdicts(*two, "--significance", "0.02"),
                         {"Add": "slower", "Mul": "slower"})

    def test_files_of_bench_op(self):
        self.opkit("bench-op", "Relu", "--input", "float32:100", "--backends", "reference",
                   "--seconds", "0.02", "--json", "new.json")
        new = json.loads((self.folder / "new.json").read_text())
        for one in new["benchmarks"]:
            one["real_time"] /= 1000
        self.write("old.json", json.dumps(new))
        self.assertEqual(self.verdicts("old.json", "new.json", "--fail-above", 5, code=RUN_FAILED),
                         {"Relu float32 [100]/reference/threads:1": "slower"})
        self.assertEqual(self.verdicts("new.json", "new.json", "--fail-above", 0),
                         {"Relu float32 [100]/reference/threads:1": "same"})

    def test_what_is_not_understood(self):
        good = self.benchmarks("good.json", Add=[1, 2])
        refuses = lambda *words: self.refuses(BAD_FILE, ["bench", "compare", good, "bad.json"],
                                              "'bad.json' is no JSON of Google Benchmark: ", *words)
        self.refuses(BAD_FILE, ["bench", "compare", "absent.json", good], "absent.json", "No such file")
        self.write("bad.json", (self.folder / good).read_text()[:-10])
        refuses("it is no JSON at all, or a part of one")
        for text in "[]", "{}", '{"benchmarks": {}}', '{"traceEvents": []}':
            self.write("bad.json", text)
            refuses('it has no list "benchmarks"')
        self.write("bad.json", self.opkit("bench", self.affine(), "--runs", 1))
        refuses("it is the JSON of opkit bench MODEL, which has no time of a single run",
                "record opkit run --profile FILE and use opkit trace diff")
        row = {"name": "Add", "real_time": 1}
        for bad, why in ((7, 'an entry of "benchmarks" is no object'),
                         ({"real_time": 1}, "a benchmark has no name"),
                         ({**row, "name": 5}, "a benchmark has no name"),
                         ({"name": "Add"}, "'Add' has no real_time"),
                         ({**row, "real_time": "1"}, "'Add' has no real_time"),
                         ({**row, "time_unit": "min"}, "'Add' has a time_unit that is none of")):
            self.benchmarks("bad.json", Add=[1], more=[bad])
            refuses(why)
        self.benchmarks("bad.json", more=[{**row, "run_type": "aggregate"}])
        refuses("it has no repetition; record without --benchmark_report_aggregates_only")
        other = self.benchmarks("other.json", Mul=[1, 2])
        self.assertEqual(self.verdicts(good, other), {"Add": "gone", "Mul": "new"})
        self.opkit("bench", "compare", good, other, "--fail-above", 5, code=BAD_FILE)
        self.assertIn("no name is on both sides", self.stderr)
        self.refuses(USAGE, ["bench", "compare", good], "NEW")
        self.refuses(USAGE, ["bench", "compare", good, good, "--fail-above", -1], "fail-above")
        self.refuses(USAGE, ["bench", "compare", good, good, "--fial-above", 5],
                     "bench compare has no option '--fial-above'", "did you mean '--fail-above'?")
        self.refuses(USAGE, ["bench", "--threads", 2, "compare", good, good],
                     "--threads belongs to opkit bench MODEL")


class Ranks(Cli):
    def products(self):
        """Two products of 256 by 256 matrices, of which each is worth a message."""
        return self.write("products.onnx", model(
            [node("MatMul", ["x", "x"], ["first"]), node("MatMul", ["first", "x"], ["y"])],
            [value_info("x", FLOAT, [256, 256])],
            [value_info("y", FLOAT, [256, 256]), value_info("first", FLOAT, [256, 256])]))

    def test_inspect_shows_the_stages_and_the_values_that_cross(self):
        out = self.opkit("inspect", self.products(), "--ranks", "2")
        self.assertRegex(out, r"(?m)^ +0 +1 +\d+\.\d +\d+\.\d +0\.0 +256\.0$")
        self.assertRegex(out, r"(?m)^ +1 +1 +\d+\.\d +\d+\.\d +256\.0 +0\.0$")
        self.assertRegex(out, r"(?m)^ +0 +1 +256\.0 +float32\[256, 256\] +first$")
        self.assertRegex(out, r"(?m)^ +0 +MatMul +\(x, x\) -> \(first\)$")
        self.assertRegex(out, r"(?m)^ +1 +MatMul +\(first, x\) -> \(y\)$")
        self.assertIn("together 256.0 KiB", out)
        self.refuses(USAGE, ["inspect", self.products(), "--ranks", "0"], "--ranks")
        self.refuses(USAGE, ["inspect", self.products(), "--ranks", "2", "--dot", "-"], "--dot")

    def test_a_pipeline_gives_the_outputs_of_one_process(self):
        self.opkit("run", self.products(), "--random", "--output-dir", "one")
        out = self.opkit("run", self.products(), "--random", "--pipeline", "2", "--repeat", "3",
                         "--output-dir", "two")
        self.assertLess(out.index("y.npy"), out.index("first.npy"))  # in the order of the model
        self.assertNotIn("warning", self.stderr)
        for name in ("y", "first"):
            self.assertEqual(read_npy(self.folder / f"one/{name}.npy"),
                             read_npy(self.folder / f"two/{name}.npy"))
        for command in (["run", self.products(), "--random", "--pipeline", "4"],
                        ["inspect", self.products(), "--ranks", "4"]):
            self.opkit(*command)
            self.assertIn("warning: the pipeline has 2 stages with nodes for 4 processes", self.stderr)
        self.refuses(USAGE, ["run", self.products(), "--pipeline", "2", "--table"], "--table")
        self.refuses(USAGE, ["run", self.products(), "--pipeline", "2", "--counters", "cycles"],
                     "--counters")
        self.opkit("run", self.products(), "--random", "--pipeline", "2", code=USAGE,
                   environment={"PMI_SIZE": "3"})
        self.assertIn("--pipeline is 2, but mpirun started 3 processes", self.stderr)

    def simulated(self, *options):
        """The rows of opkit simulate: the numbers of each column."""
        out = self.opkit("simulate", self.weighted(), "--topology", "net.json", *options)
        return [dict(zip(("ranks", "replicas", "stages", "batches", "ms", "work", "waits", "faster", "efficiency"),
                         map(float, line.split())))
                for line in out.splitlines() if re.match(r" *\d", line)]

    def weighted(self):
        """Two products with weights of 256 KiB."""
        weights = [tensor(name, FLOAT, [256, 256], [0.5] * 65536) for name in ("v", "w")]
        return self.write("weighted.onnx", model(
            [node("MatMul", ["x", "v"], ["first"]), node("MatMul", ["first", "w"], ["y"])],
            [value_info("x", FLOAT, [256, 256])], [value_info("y", FLOAT, [256, 256])], weights))

    def test_simulate_predicts_the_time_of_a_step(self):
        # A ring of n ranks sends 2 (n-1) messages, each of which takes a second.
        self.write("net.json", '{"processes_per_host": 2, "between_hosts": {"latency_us": 1e6}}')
        rows = self.simulated("--ranks", "1,2,4", "--data-parallel")
        self.assertEqual([(row["ranks"], row["replicas"], row["stages"]) for row in rows],
                         [(1, 1, 1), (2, 2, 1), (4, 4, 1)])
        self.assertEqual([row["waits"] for row in rows[:2]], [0, 0])
        # A tree is faster than a ring: twice two messages.
        self.assertAlmostEqual(rows[2]["waits"], 4e3, delta=1)
        self.assertAlmostEqual(rows[1]["faster"], 2, delta=0.01)
        self.assertAlmostEqual(rows[2]["efficiency"], rows[2]["work"] / rows[2]["ms"], delta=0.01)
        # Without gradients, replicas do not communicate.
        self.assertEqual(self.simulated("--ranks", 4, "--data-parallel", "--backward", 0)[0]["waits"], 0)
        # Two stages on one host: the bubble is one of m + 1 micro-batches, if the stages are equal.
        layouts = self.simulated("--ranks", 2, "--micro-batches", "1,3")
        self.assertEqual([(row["replicas"], row["stages"], row["batches"]) for row in layouts],
                         [(2, 1, 1), (2, 1, 3), (1, 2, 1), (1, 2, 3)])
        self.assertAlmostEqual(layouts[2]["efficiency"], 0.5, delta=0.001)
        self.assertLessEqual(layouts[3]["efficiency"], 0.751)
        self.assertEqual([row["stages"] for row in self.simulated("--ranks", 64, "--pipeline")], [2])

    def test_what_simulate_does_not_understand(self):
        path = self.weighted()
        self.refuses(BAD_FILE, ["simulate", path, "--ranks", 2, "--topology", "absent.json"], "absent.json")
        self.write("net.json", '{"latency": 3}')
        self.refuses(BAD_FILE, ["simulate", path, "--ranks", 2, "--topology", "net.json"], "line 1", "net.json")
        self.refuses(USAGE, ["simulate", path, "--topology", "net.json"], "--ranks")
        self.refuses(USAGE, ["simulate", path, "--ranks", 2], "--topology")
        self.refuses(USAGE, ["simulate", path, "--ranks", "0", "--topology", "net.json"], "from 1 to 4096")
        self.refuses(USAGE, ["simulate", path, "--ranks", 2, "--topology", "net.json", "--backward", -1],
                     "--backward")

    def test_a_pipeline_has_one_trace_of_all_ranks(self):
        out = self.opkit("run", self.products(), "--random", "--pipeline", "2", "--repeat", "3",
                         "--profile", "trace.json", "--report", "report.html", "--critical-path")
        self.assertRegex(out, r"run of [\d.]+ us on 2 processes; critical path of \d+ nodes")
        self.assertIn("waited us", out)
        trace = json.loads((self.folder / "trace.json").read_text())["traceEvents"]
        names = [event["args"]["name"] for event in trace if event["name"] == "process_name"]
        self.assertEqual(names, ["process 0", "process 1"])
        arrows = [event for event in trace if event.get("cat") == "communication"]
        starts = {event["bind_id"]: event for event in arrows if event.get("flow_out")}
        ends = {event["bind_id"]: event for event in arrows if event.get("flow_in")}
        self.assertEqual(len(arrows), len(starts) + len(ends))
        self.assertEqual(starts.keys(), ends.keys())
        self.assertGreater(len(starts), 0)
        self.assertEqual(len(starts) % 3, 0)  # in each run the same messages
        for number, start in starts.items():
            self.assertNotEqual(start["pid"], ends[number]["pid"])
            self.assertLessEqual(start["ts"], ends[number]["ts"])
        report = (self.folder / "report.html").read_text()
        self.assertIn("process 1: process 1", report)
        self.assertRegex(report, r'"processes":\[\[\d+,\d+\],\[\d+,\d+\]\],"waits":\[\[')


class Inspect(Cli):
    def test_shows_what_is_in_a_model(self):
        out = self.opkit("inspect", self.affine(), "--shape", "x=8x3")
        self.assertIn("opset 17", out)
        self.assertIn("3 nodes", out)
        self.assertRegex(out, r"(?m)^  x +float32\[N, 3\] +here float32\[8, 3\]$")
        self.assertRegex(out, r"(?m)^  dir/sum:0 +float32\[8, 3\]$")
        self.assertRegex(out, r"(?m)^ +1 +Add +\w+ +float32\[8, 3\] +0\.000 +0\.2 +'adds'")
        self.assertRegex(out, r"arena .* at least \d+, ratio 1\.0000")

    def test_a_cost_that_is_not_known_is_a_dash(self):
        body = field(2, "body") + b"".join(
            [field(1, node("Identity", ["go"], ["on"])), field(1, node("Neg", ["x"], ["y"])),
             field(11, value_info("i", INT64, [])), field(11, value_info("go", BOOL, [])),
             field(11, value_info("x", FLOAT, [2])), field(12, value_info("on", BOOL, [])),
             field(12, value_info("y", FLOAT, [2]))])
        loop = node("Loop", ["n", "", "a"], ["b"]) + field(5, field(1, "body") + field(6, body) +
                                                           field(20, 5))
        path = self.write("loop.onnx", model([loop], [value_info("n", INT64, []), value_info("a", FLOAT, [2])],
                                             [value_info("b", FLOAT, [2])]))
        self.assertRegex(self.opkit("inspect", path), r"(?m)^ +0 +Loop +reference +float32\[2\] +- +- ")

    def test_costs_beyond_a_count_of_bytes_do_not_wrap(self):
        def moved(extent, *nodes):
            path = self.write("m.onnx", model(nodes, [value_info("x", FLOAT, [extent])],
                                              [value_info("y", FLOAT, [])]))
            return re.search(r", (.*) moved", self.opkit("inspect", path))[1]
        self.assertEqual(moved(1 << 62, node("ReduceSum", ["x"], ["y"], "", [("keepdims", 0)])),
                         "8.00 EiB")
        self.assertEqual(moved(1 << 60, node("Neg", ["x"], ["n"]), node("Neg", ["n"], ["m"]),
                               node("ReduceSum", ["m"], ["y"], "", [("keepdims", 0)])), "20.00 EiB")

    def test_draws(self):
        out = self.opkit("inspect", self.affine(), "--dot", "graph.dot", "--svg", "memory.svg")
        self.assertIn("nodes", out)
        dot = (self.folder / "graph.dot").read_text()
        self.assertTrue(dot.startswith("digraph"))
        self.assertIn("dir/sum:0\\nfloat32[1, 3]", dot)
        svg = xml.dom.minidom.parse(str(self.folder / "memory.svg"))
        self.assertEqual(svg.documentElement.tagName, "svg")
        self.assertTrue(self.opkit("inspect", self.affine(), "--dot", "-").startswith("digraph"))
        xml.dom.minidom.parseString(self.opkit("inspect", self.affine(), "--svg", "-"))

    def test_a_graph_without_memory_to_draw_is_inspected_all_the_same(self):
        out = self.opkit("inspect", self.pair(), "--svg", "memory.svg")
        self.assertIn("memory between nodes", out)
        self.assertIn("'memory.svg' is not written", self.stderr)
        self.assertFalse((self.folder / "memory.svg").exists())
        self.refuses(NO_PLAN, ["inspect", self.pair(), "--svg", "-"],
                     "no value is kept in memory between nodes")

    def test_refuses_a_place_that_cannot_be_written(self):
        self.refuses(BAD_FILE, ["inspect", self.affine(), "--dot", "absent/graph.dot"],
                     "cannot write 'absent/graph.dot'", "No such file")


    def test_a_model_whose_open_extents_cannot_be_1(self):
        path = self.write("m.onnx", model(
            [node("Conv", ["x", "w"], ["c"]), node("Relu", ["c"], ["y"])],
            [value_info("x", FLOAT, ["N", 1, "H", "W"])], [value_info("y", FLOAT, ["N", 1, "P", "Q"])],
            [tensor("w", FLOAT, [1, 1, 3, 3], [1] * 9)]))
        out = self.opkit("inspect", path, "--dot", "graph.dot")
        self.assertRegex(out, r"(?m)^  x +float32\[N, 1, H, W\]$")
        self.assertRegex(out, r"(?m)^ +1 +Relu +float32\[N, 1, ")
        self.assertRegex(out, r"(?s)give --shape NAME=1x3x48x320 for backends, costs and memory:\n"
                         r"  .*Conv.*x float32\[1, 1, 1, 1\]")
        self.assertTrue((self.folder / "graph.dot").read_text().startswith("digraph"))
        self.refuses(BAD_INPUT, ["inspect", path, "--svg", "memory.svg"], "no memory plan to draw")
        for options in [], ["--pipeline", "2"]:
            self.refuses(BAD_INPUT, ["run", path, "--random", *options],
                         "without them every open extent is 1")
        self.assertIn("arena", self.opkit("inspect", path, "--shape", "x=1x1x8x8"))


class Plan(Cli):
    def table(self, rows, header="id,lower,upper,size"):
        return self.write("buffers.csv",
                          "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")

    def test_places_buffers_apart_within_the_capacity(self):
        seed = random.randrange(1 << 30)
        print(f"seed {seed}")
        draw = random.Random(seed)
        rows = []
        for i in range(200):
            lower = draw.randrange(100)
            rows.append((f"b{i}", lower, lower + draw.randint(1, 20), draw.randrange(100)))
        bound = max(sum(size for _, lower, upper, size in rows if lower <= t < upper)
                    for t in range(120))
        self.opkit("plan", self.table(rows), "--capacity", int(bound * 1.25), "-o", "out.csv")
        lines = (self.folder / "out.csv").read_text().splitlines()
        self.assertEqual(lines[0], "id,lower,upper,size,offset")
        placed = [line.split(",") for line in lines[1:]]
        self.assertEqual([row[:4] for row in placed], [[str(x) for x in row] for row in rows])
        spans = [tuple(map(int, row[1:])) for row in placed]
        for i, (lower, upper, size, offset) in enumerate(spans):
            self.assertTrue(0 <= offset <= bound * 1.25 - size)
            for other in spans[:i]:
                apart = (upper <= other[0] or other[1] <= lower or offset + size <= other[3] or
                         other[3] + other[2] <= offset)
                self.assertTrue(apart or not size or not other[2])

    def test_writes_to_stdout_and_takes_a_table_that_has_offsets(self):
        path = self.table([("a", 0, 2, 5, 77), ("b", 1, 3, 6, 77)], "id,lower,upper,size,offset")
        out = self.opkit("plan", path, "--capacity", 11)
        self.assertEqual(sorted(int(line.split(",")[4]) for line in out.splitlines()[1:])[0], 0)
        self.assertIn("2 buffers in 11 bytes (at least 11, ratio 1.0000)", self.stderr)

    def test_takes_a_table_that_a_spreadsheet_saved(self):
        self.write("t.csv", b"\xef\xbb\xbfid,lower,upper,size\r\na,0,3,4\r\n")
        self.assertEqual(self.opkit("plan", "t.csv", "--capacity", 4),
                         "id,lower,upper,size,offset\na,0,3,4,0\n")

    def test_takes_no_buffers(self):
        self.assertEqual(self.opkit("plan", self.table([]), "--capacity", 0),
                         "id,lower,upper,size,offset\n")

    def test_draws(self):
        path = self.table([("<a>", 0, 2, 5), ("b", 1, 3, 6)])
        self.opkit("plan", path, "--capacity", 100, "-o", "out.csv", "--svg", "plan.svg")
        self.assertIn("&lt;a&gt;", (self.folder / "plan.svg").read_text())

    def test_a_capacity_too_small(self):
        path = self.table([("a", 0, 2, 5), ("b", 1, 3, 6)])
        self.refuses(NO_PLAN, ["plan", path, "--capacity", 10, "-o", "out.csv"],
                     "no plan fits in 10 bytes", "give --capacity 11")
        self.assertFalse((self.folder / "out.csv").exists())

    def test_a_search_that_ends_without_a_plan(self):
        draw = random.Random(0)
        rows = []
        for i in range(200):
            lower = draw.randrange(100)
            rows.append((i, lower, lower + draw.randint(1, 60), draw.randint(1, 1000)))
        bound = max(sum(size for _, lower, upper, size in rows if lower <= t < upper)
                    for t in range(170))
        path = self.table(rows)
        self.refuses(NO_PLAN, ["plan", path, "--capacity", bound, "--seconds", "1e-9"],
                     f"found no plan within {bound} bytes", "give --seconds more than 1e-09")
        best = int(re.search(r"the best needs (\d+)", self.stderr)[1])
        self.assertGreater(best, bound)
        self.opkit("plan", path, "--capacity", best, "--seconds", "1e-9")
        self.assertIn(f" at least {bound}, ", self.stderr.replace("(", " "))

    def test_hostile_tables(self):
        header = "id,lower,upper,size\n"
        for text, sentence in (
                ("", "expected the columns"), ("\0\0\0\n", "expected the columns"),
                ("a,b,c\n", "expected the columns"), (header + "x,1\n", "line 2: expected 4 cells"),
                (header + "x,1,2,3,4\n", "line 2: expected 4 cells"),
                (header + "x,2,1,3\n", "lower is 2 and upper 1"),
                (header + "x,1,2,-3\n", "size is -3"), (header + "x,1,2,3.5\n", "'3.5'"),
                (header + "x,1,2,99999999999999999999\n", "64-bit integer"),
                (header + "x,1,2,0x10\n", "'0x10'"), (header + "x,\033[2J,2,3\n", "as lower"),
                (header + "x,0,9223372036854775807,9223372036854775807\n"
                 "y,0,1,9223372036854775807\n", "")):
            self.refuses(BAD_FILE, ["plan", self.write("t.csv", text), "--capacity", 100, "-o",
                                    "out.csv"], sentence)
            self.assertFalse((self.folder / "out.csv").exists())

    def test_wrong_capacities(self):
        path = self.table([("a", 0, 2, 5)])
        for capacity in ("-1", "1.5", "1k", "", "99999999999999999999"):
            self.refuses(USAGE, ["plan", path, f"--capacity={capacity}"], "--capacity")
        self.refuses(USAGE, ["plan", path], "--capacity is required")


class Ops(Cli):
    def test_lists_and_documents(self):
        listed = [line.split()[0] for line in self.opkit("ops").splitlines()[1:]]
        self.assertGreater(len(listed), 50)
        self.assertEqual(listed, sorted(listed))
        out = self.opkit("ops", "Conv")
        self.assertTrue(out.startswith("## Conv\n"))
        for part in ("**Inputs**", "**Outputs**", "**Attributes**", "| strides |", "reference"):
            self.assertIn(part, out)
        every = self.opkit("ops", "--all")
        self.assertEqual(re.findall(r"(?m)^## ([\w.]+)$", every), listed)

    def test_lists_the_backends(self):
        lines = self.opkit("ops", "--backends").splitlines()
        self.assertEqual(lines[0].split(), ["backend", "rank", "kernels", "made", "with", "available"])
        rows = {line.split()[0]: line for line in lines[1:]}
        self.assertRegex(rows["reference"], r"^reference +0 +\d+ +yes$")
        self.assertRegex(rows["eigen"], r"^eigen +100 +\d+ +Eigen3 3\.\d+\.\d+ +yes$")
        if "onednn" in rows:  # the build may lack it
            self.assertRegex(rows["onednn"], r"^onednn +200 +\d+ +dnnl 3\.\d+\.\d+( \(wheel\))? +yes$")

    def test_names_the_nearest(self):
        self.refuses(USAGE, ["ops", "Comv"], "no operator 'Comv'", "did you mean 'Conv'?")


class Libraries(Cli):
    ALL = GOOD, WRONG, CRASH, EMPTY, REFUSES, HANGS, DESTRUCTOR, THREAD, PARTITIONERS = [
        f"lib{name}.so" for name in ("good", "wrong", "crash", "empty", "refuses", "hangs",
                                     "destructor", "thread", "partitioners")]

    def setUp(self):
        super().setUp()
        for name in self.ALL:
            (self.folder / name).symlink_to(libraries / name)

    def check(self, *arguments, code=DONE):
        """What `opkit check` says of each operator: a dictionary of its sections."""
        # AddressSanitizer would make an exit status of the signal.
        sanitizer = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0"}
        out = self.opkit("check", *arguments, code=code, environment=sanitizer)
        head, *sections = out.split("\n\n")
        self.assertRegex(head, r"\Alib\w+\.so: \d operators?, compiled with opkit \d+\.")
        return {section.split()[0]: section for section in sections}

    def test_lib_shows_operators_and_versions(self):
        out = self.opkit("lib", self.GOOD)
        self.assertRegex(out, r"\Alibgood\.so: 6 operators, compiled with opkit \d+\.\d+\.\d+ for "
                         r"version 1\.\d+ of the ABI \(this program has 1\.\d+\)\n\n")
        self.assertRegex(out, r"(?m)^operator +kernels +what it does$")
        self.assertRegex(out, r"(?m)^Twice +cpu +2 \* x$")
        self.assertRegex(out, r"(?m)^Relu +cpu +.*another kernel of the built-in operator$")

    def test_two_libraries_with_one_operator_are_told_of(self):
        (self.folder / "again.so").write_bytes((libraries / self.GOOD).read_bytes())
        self.opkit("ops", "--library", self.GOOD, "--library", "again.so")
        self.assertIn("opkit: Twice is in 'libgood.so' and in 'again.so'; the operator of 'again.so' is "
                      "used\n", self.stderr)

    def test_a_model_names_the_library_that_it_needs(self):
        path = self.write("m.onnx", model(
            [node("Twice", ["x"], ["y"], domain="opkit", metadata=[
                ("opkit.library", self.GOOD), ("opkit.library_version", "0.0.9")])],
            [value_info("x", FLOAT, [1])], [value_info("y", FLOAT, [1])]))
        for command in (["run", path, "--random"], ["inspect", path]):
            self.refuses(BAD_MODEL, command,
                         "operator Twice of library libgood.so, version 0.0.9", "--library FILE.so")
            self.opkit(*command, "--library", self.GOOD)

    def test_files_that_are_no_libraries(self):
        self.write("text.so", "# not a library\n")
        whole = (libraries / self.GOOD).read_bytes()
        self.write("cut.so", whole[:len(whole) // 2])
        for name, sentence in (("text.so", "it is a text file"), ("cut.so", "is cut off"),
                               ("absent.so", "does not exist"), (".", "is a directory"),
                               (self.REFUSES, "failed to initialize: there is no licence for it")):
            for command in (["lib", name], ["check", name], ["ops", "--library", name],
                            ["run", self.affine(), "--random", "--library", name],
                            ["bench", self.affine(), "--library", name],
                            ["inspect", self.affine(), "--library", name]):
                self.refuses(BAD_FILE, command, name, sentence)

    def test_a_crash_at_initialisation(self):
        for command in ("lib", "check"):
            self.refuses(BAD_FILE, [command, self.CRASH],
                         f"library '{self.CRASH}' crashes while it is loaded: signal 11",
                         "static initialisers")
        self.assertEqual([name for name in os.listdir(self.folder) if "core" in name], [])

    def test_check_of_operators_that_are_right(self):
        found = self.check(self.GOOD)
        self.assertEqual(list(found), ["Twice", "Root", "Relu", "Noise", "MovingMean", "Open"])
        self.assertRegex(found["Twice"], r"\ATwice  2 \* x\n  nothing wrong in \d+ runs on 5 lists"
                         r" of inputs, and on empty and odd ones\n")
        self.assertEqual(found["Twice"].count("not checked"), 1)
        self.assertIn("not checked: work on a stream", found["Twice"])
        self.assertIn("nothing wrong", found["Root"])
        self.assertRegex(found["Root"], r"not checked: numbers below 0, which it refuses: .*"
                         r"-0\.\d+ has no root")
        self.assertIn("nothing wrong", found["Relu"])
        # As the built-in operator claims more than this kernel takes.
        self.assertIn("not checked: float64, which it refuses: ", found["Relu"])
        self.assertIn("nothing wrong", found["Noise"])
        self.assertIn("its schema says that two runs may differ", found["Noise"])
        self.assertIn("nothing wrong", found["MovingMean"])
        self.assertIn("nothing wrong", found["Open"])
        self.assertIn("not checked: the number of its outputs, which it does not declare",
                      found["Open"])
        self.assertEqual(self.stderr, "")

    def test_check_of_operators_that_are_wrong(self):
        found = self.check(self.WRONG, code=RUN_FAILED)
        for op, sentence in (
                ("WritesPast", "wrong: it writes past the end of output 0"),
                ("WritesBefore", "wrong: it writes before the start of output 0"),
                ("WritesPastBackward", "wrong: backward: it writes past the end of output 0"),
                ("CountsWrong", "inferShape returned 2 outputs, but the node has 1"),
                ("CrashesOnThreeAxes", "wrong: it crashes: signal 11"),
                ("CrashesOnNone", "wrong: operator CrashesOnNone crashes: signal 11"),
                ("Chatters", "wrong: it writes where it must not: into a file that it has not "
                             "opened, during a run on float32[2, 3]"),
                ("WrongGradient", "wrong: the gradient of input 0 'input0' is wrong"),
                ("Rows", "no attribute 'rows'")):
            self.assertIn(sentence, found[op])
            self.assertNotIn("nothing wrong", found[op])
        self.assertIn("during a run on float32[2, 3, 4]", found["CrashesOnThreeAxes"])
        self.assertRegex(found["CrashesOnNone"], r"float32\[(\d+, )*0")
        self.assertIn("--attr NAME=VALUE", found["Rows"])
        self.assertEqual(self.stderr, "opkit: error: 9 of 9 operators of library 'libwrong.so' are "
                         "wrong\n")

    def test_check_of_operators_that_hang(self):
        steps = {"Hangs": "a run on float32[2, 3]", "HangsInInference": "its inference",
                 "HangsInTwo": "a run on float32[2, 3]"}  # both processes end
        def check(op):
            return self.check(self.HANGS, "--op", op, "--timeout", "5", code=RUN_FAILED)[op]
        with concurrent.futures.ThreadPoolExecutor() as threads:
            for said, step in zip(threads.map(check, steps), steps.values()):
                self.assertIn(f"wrong: it hangs: no end within 5 s, during {step}", said)

    def test_what_check_runs_dies_with_it(self):
        command = [program, "check", self.HANGS, "--op", "Hangs"]
        with subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE) as check:
            while not check.stdout.readline().startswith(b"hangs in "):
                self.assertIsNone(check.poll())
            check.kill()
            check.communicate(timeout=60)  # the operator's process holds the pipe too

    def test_check_of_libraries_that_crash_when_they_are_unloaded_or_their_program_ends(self):
        out = self.opkit("check", self.DESTRUCTOR, code=RUN_FAILED,
                         environment={"ASAN_OPTIONS": "handle_segv=0"})
        self.assertIn("  wrong: it crashes: signal 11 (Segmentation fault), at the end of a program "
                      "that loaded it\n\nCopy", out)
        self.assertIn("nothing wrong in", out)
        self.assertIn("crashes: signal 11", self.stderr)
        found = self.check(self.THREAD, code=RUN_FAILED)
        self.assertIn("wrong: it crashes: signal 6 (Aborted), during its unloading",
                      found["StartsThread"])

    def test_check_of_partitioners(self):
        out = self.opkit("check", self.PARTITIONERS, code=RUN_FAILED,
                         environment={"ASAN_OPTIONS": "handle_segv=0"})
        found = {section.split()[0]: section for section in out.split("\n\n")[1:]}
        # A crash is named, and those behind it are checked all the same.
        self.assertEqual(list(found), ["Forgetful", "InHost", "Everything", "Crashes", "Refuses",
                                       "Forgets", "Hands"])
        self.assertIn("not checked: its run, which needs a graph from a partitioner",
                      found["InHost"])
        self.assertIn("wrong: it crashes: signal 11 (Segmentation fault), during its partitioning of "
                      "a graph of 7 nodes", found["Crashes"])
        for name in ("Everything", "Hands"):
            self.assertIn("took 7 of 7 nodes of a graph, which then gives the same results", found[name])
        self.assertIn("wrong: it took 7 of 7 nodes of a graph, which then gives other results",
                      found["Forgets"])
        self.assertIn("not checked: its choice of nodes, because it refuses a graph", found["Refuses"])
        self.assertIn("there is no licence for it", found["Refuses"])
        self.assertEqual(self.stderr, "opkit: error: 2 of 7 operators and partitioners of "
                         "library 'libpartitioners.so' are wrong\n")
        self.assertIn("\n\npartitioners: Everything, Crashes, Refuses, Forgets, Hands\n",
                      self.opkit("lib", self.PARTITIONERS))
        self.opkit("ops", "--library", self.PARTITIONERS)
        self.assertEqual(self.stderr, "")

    def test_a_library_that_prints_leaves_the_output_alone(self):
        for command in (["lib"], ["ops", "--emit", "cpp", "--library"]):
            quiet = self.opkit(*command, self.GOOD)
            self.assertEqual(self.opkit(*command, self.GOOD, environment={"OPKIT_TEST_PRINTS": "1"}), quiet)
            self.assertEqual(self.stderr, "good.cc is loaded\n")

    def test_check_of_a_library_without_operators(self):
        self.refuses(RUN_FAILED, ["check", self.EMPTY], "library 'libempty.so' registers no operator",
                     "REGISTER_OP")

    def test_a_library_without_operators_is_told_of(self):
        self.assertRegex(self.opkit("lib", self.EMPTY),
                         r"\Alibempty\.so: registers no operator, compiled with opkit [^\n]+\n\Z")
        self.opkit("ops", "--library", self.EMPTY)
        self.assertEqual(self.stderr, "opkit: 'libempty.so' registers no operator\n")

    def test_check_of_one_operator(self):
        self.assertEqual(list(self.check(self.GOOD, "--op", "Relu")), ["Relu"])
        self.refuses(USAGE, ["check", self.GOOD, "--op", "Twise"],
                     "library 'libgood.so' has no operator 'Twise'", "did you mean 'Twice'?")

    def test_check_with_attributes_and_shapes(self):
        found = self.check(self.WRONG, "--op", "Rows", "--attr", "rows=2")
        self.assertIn("nothing wrong", found["Rows"])  # of float32 and int64 inputs
        found = self.check(self.WRONG, "--op", "Rows", "--attr", "rows=2", "--shape", "4", "2x2",
                           code=RUN_FAILED)
        self.assertIn("its inference refuses every input that was tried", found["Rows"])
        found = self.check(self.WRONG, "--op", "CrashesOnThreeAxes", "--shape", "2x2")
        self.assertIn("on 1 list of inputs", found["CrashesOnThreeAxes"])
        for option, value in (("--attr", "rows"), ("--shape", "2xa"), ("--timeout", "0")):
            self.refuses(USAGE, ["check", self.WRONG, option, value], value)

    def test_a_model_runs_with_an_operator_of_a_library(self):
        def doubled(*nodes):
            return self.write("m.onnx", model(
                [node("Neg", ["x"], ["n"]), *nodes, node("Abs", ["t"], ["y"])],
                [value_info("x", FLOAT, [1, 3])], [value_info("y", FLOAT, [1, 3])],
                domains=["acme"]))
        self.npy("x.npy", FLOAT, [1, 3], [1, -2, 4])
        plain = self.opkit("run", doubled(node("Add", ["n", "n"], ["t"])), "--input", "x=x.npy")
        self.assertRegex(plain, r"(?m)^y +float32\[1, 3\] +2 4 8$")
        for domain in ("acme", ""):
            path = doubled(node("Twice", ["n"], ["t"], domain=domain))
            self.refuses(BAD_MODEL, ["run", path, "--input", "x=x.npy"], "Twice")
            for arguments in ([path, "--library", self.GOOD], ["--library", self.GOOD, path],
                              ["--library", self.GOOD, "--library", self.GOOD, path]):
                self.assertEqual(self.opkit("run", *arguments, "--input", "x=x.npy"), plain)

    def test_a_library_replaces_an_operator(self):
        """Its Relu makes 6 of what is larger."""
        self.npy("x.npy", FLOAT, [1, 3], [4, 2, 8])
        arguments = ["run", self.affine(), "--input", "x=x.npy"]
        self.assertRegex(self.opkit(*arguments), r"(?m)^y +float32\[1, 3\] +9 0 5$")
        arguments += ["--library", self.GOOD]
        self.assertRegex(self.opkit(*arguments), r"(?m)^y +float32\[1, 3\] +6 0 5$")
        arguments += ["--backends", "reference"]
        self.assertRegex(self.opkit(*arguments), r"(?m)^y +float32\[1, 3\] +9 0 5$")
        out = self.opkit("inspect", self.affine(), "--library", self.GOOD)
        self.assertRegex(out, r"(?m)^ +2 +Relu +good ")
        report = json.loads(self.opkit("bench", self.affine(), "--library", self.GOOD, "--runs", 1,
                                       "--nodes"))
        self.assertEqual({row["op"]: row["backend"] for row in report["nodes"]}["Relu"], "good")

    def test_a_source_is_compiled(self):
        source = pathlib.Path(__file__).parents[2] / "examples/library/plain_c.c"
        text = source.read_text()
        self.write("mine.c", text)
        quick = {"CFLAGS": "-O0", "CC": "cc"}
        self.assertIn("c_scale", self.opkit("lib", "mine.c", environment=quick))
        path = self.opkit("build", "mine.c", environment=quick)
        self.assertRegex(path, r"\A/.*/build/mine\.\w+/\w+/libmine\.so\n\Z")
        self.assertIn("c_scale", self.opkit("ops", "c_scale", "--library", "mine.c", environment=quick))
        self.assertEqual(self.opkit("build", "mine.c", "-o", "libmine.so", environment=quick), "")
        self.assertEqual((self.folder / "libmine.so").read_bytes(),
                         pathlib.Path(path.strip()).read_bytes())
        self.write("mine.c", text + "\nbroken\n")
        self.opkit("build", "mine.c", "-o", "libmine.so", "--flag=-DX", code=BAD_FILE, environment=quick)
        self.assertRegex(self.stderr, r"(?s)error: .*broken.*\nopkit: error: 'mine.c' does not compile: "
                         r"the compiler's exit status is 1; its command: cc [^\n]* -DX [^\n]*\n\Z")
        self.assertEqual((self.folder / "libmine.so").read_bytes(),
                         pathlib.Path(path.strip()).read_bytes())
        self.refuses(BAD_FILE, ["build", "none.cc"], "cannot read 'none.cc': No such file")
        self.refuses(USAGE, ["build", "libmine.so"], "'libmine.so' is no source of a library")
        self.opkit("run", self.affine(), "--random", "--library", "mine.c", code=BAD_FILE,
                   environment={"CC": "no_cc"})
        self.assertIn("the compiler 'no_cc', which mine.c needs, is not found", self.stderr)

    def test_functions_in_cpp_of_a_library(self):
        out = self.opkit("ops", "--emit", "cpp", "--library", "libgood.so")
        self.assertTrue(out.startswith("// Functions of operators, which `opkit ops --emit cpp` of opkit "))
        self.assertIn("inline ::opkit::Tensor Twice(const ::opkit::Tensor& ", out)
        self.assertNotIn("Tensor Conv(", out)
        self.refuses(USAGE, ["ops", "--emit", "java"], "--emit", "java")

    def test_ops_shows_operators_of_libraries(self):
        out = self.opkit("ops", "--library", self.GOOD)
        self.assertRegex(out, r"(?m)^Twice +cpu: reference +2 \* x$")
        self.assertRegex(out, r"(?m)^Relu +cpu: .*\bgood\b")
        out = self.opkit("ops", "Twice", "--library", self.GOOD)
        self.assertTrue(out.startswith("## Twice\n\n2 * x. And no more."), out)
        self.refuses(USAGE, ["ops", "Twice"], "no operator 'Twice'")


class ForMxnet(Cli):
    """Libraries with the boundary of MXNet's extension libraries."""

    def setUp(self):
        super().setUp()
        for path in mxnet_libraries.glob("*.so"):
            (self.folder / path.name).symlink_to(path)

    def test_lib(self):
        out = self.opkit("lib", "libwhole.so")
        self.assertRegex(out, r"\Alibwhole\.so: \d+ operators, compiled for MXNet lib_api 11\n")
        self.assertRegex(out, r"(?m)^my_gemm +cpu$")
        self.assertRegex(out, r"(?m)^my_relu +cpu, cuda$")
        self.assertIn("\npartitioners: myProp.chains, myProp.sums, mySelect\n", out)
        self.assertIn("\npasses: myPass, addInputPass\n", out)
        self.assertIn("compiled for MXNet lib_api 10\n", self.opkit("lib", "libgemm_v10.so"))

    def test_libraries_that_are_refused(self):
        for name, sentence in (("gemm_v7", "version 7 of MXNet's extension interface (MXNet 1.7)"),
                               ("gemm_v42", "version 42 of MXNet's extension interface"),
                               ("gemm_lacks", "exports no _partRegSize"),
                               ("gemm_refuses", "MXNet version 10901 not supported"),
                               ("gemm_typeless", "operator my_gemm without setInferType")):
            for command in (["lib"], ["check"], ["ops", "--library"]):
                self.refuses(BAD_FILE, [*command, f"lib{name}.so"], f"lib{name}.so", sentence)

    def test_two_functions_for_one_device_end_the_process_that_loads(self):
        self.opkit("lib", "libconstructor.so", code=BAD_FILE)
        self.assertIn("setForward was called twice for device cpu", self.stderr)
        self.assertIn("library 'libconstructor.so' crashes while it is loaded: signal 6", self.stderr)

    def test_check(self):
        out = self.opkit("check", "libgemm.so")
        self.assertRegex(out, r"my_gemm\n  nothing wrong in \d+ runs")
        self.assertRegex(out, r"state_gemm\n  nothing wrong in \d+ runs")
        self.assertRegex(out, r"counters\n  nothing wrong in \d+ runs")
        out = self.opkit("check", "libfaults.so", code=RUN_FAILED)
        head, *sections = out.split("\n\n")
        found = {section.split()[0]: section for section in sections}
        for op, sentence in (
                ("dtype", "it says the dtype 9 for output 0, which MXNet does not define"),
                ("null_shapes", "inferShape returned no shapes"),
                ("rank", "inferShape says 40 axes for output 0"),
                ("extent", "inferShape says the extent -2"),
                ("count", "parseAttrs says -5 inputs"),
                ("throw", "it threw: forward throws"),
                ("throw_shape", "it threw: shape throws"),
                ("wordless", "it returned failure without a message"),
                ("sparse", "it did not allocate sparse output 0"),
                ("storage", "inferSType says the storage type 5"),
                ("state", "createOpState succeeded but made no state"),
                ("create", "no state for 1 input"),
                ("mutate", "mutateInputs names input 7")):
            self.assertRegex(found[f"fault_{op}"], f"\n  wrong: .*{re.escape(sentence)}")
        for strategy, sentence in (("supported", "none of"), ("review", "no opinion of subgraph"),
                                   ("selector", "no selector")):
            self.assertIn(sentence, found[f"faults.{strategy}"])
        for name, sentence in (("null", "it succeeded but returned no graph"), ("failing", "not this graph")):
            self.assertRegex(found[f"{name}Pass"], r"a pass\n  not checked: its change of a graph, because it "
                             f"refuses one: .*{sentence}")
        self.assertIn("a pass\n  wrong: it made a graph of 7 nodes of one of 7 nodes, which then gives other "
                      "results", found["otherPass"])
        self.assertRegex(self.stderr, r"of \d+ operators, partitioners and passes of library 'libfaults\.so'")
        self.assertIn("\n\ncopyPass  a pass\n  made a graph of 7 nodes of one of 7 nodes, which then gives the "
                      "same results\n", self.opkit("check", "libpass_alone.so"))

    def test_run(self):
        path = self.write("m.onnx", model(
            [node("my_gemm", ["a", "b"], ["c"])],
            [value_info("a", FLOAT, ["N", 3]), value_info("b", FLOAT, [3, 1])],
            [value_info("c", FLOAT, ["N", 1])]))
        self.npy("a.npy", FLOAT, [2, 3], [1, 2, 3, 4, 5, 6])
        self.npy("b.npy", FLOAT, [3, 1], [7, 8, 9])
        arguments = ["run", path, "--input", "a=a.npy", "--input", "b=b.npy"]
        self.refuses(BAD_MODEL, arguments, "my_gemm")
        for name in ("gemm", "gemm_v10", "whole"):
            out = self.opkit(*arguments, "--library", f"lib{name}.so")
            self.assertRegex(out, r"(?m)^c +float32\[2, 1\] +50 122$")

    def test_partition(self):
        path = self.write("m.onnx", model(
            [node("Add", ["a", "b"], ["c"]), node("Exp", ["c"], ["d"]), node("Log", ["d"], ["y"])],
            [value_info("a", FLOAT, [3, 2]), value_info("b", FLOAT, [3, 2])],
            [value_info("y", FLOAT, [3, 2])]))
        self.npy("x.npy", FLOAT, [3, 2], [1] * 6)
        for partitioner, options, taken in (
                ("myProp.chains", [], "2 of 3 nodes taken, in 1 subgraph\n"),
                ("myProp.chains", ["--option", "reject=True"], "0 of 3 nodes taken, in 0 subgraphs\n"),
                ("mySelect", [], "2 of 3 nodes taken, in 1 subgraph\n"),
                ("myProp", [], "3 of 3 nodes taken, in 2 subgraphs\n")):
            of = [path, "--library", "libwhole.so", "--partition", partitioner, *options]
            with self.subTest(partitioner, options=options):
                self.assertIn(taken, self.opkit("partition", *of))
                out = self.opkit("run", *of, "--input", "a=x.npy", "--input", "b=x.npy")
                self.assertRegex(out, r"(?m)^y +float32\[3, 2\] +2 2 2 2 2 2$")
        self.refuses(BAD_MODEL, ["partition", path, "--library", "libfaults.so", "--partition",
                                 "faults.review"], "no opinion of subgraph", "faults.review")


class Via(Cli):
    """`opkit check --via`, with a program in the place of Python that plays the hosts.
    tests/export/via runs it with real hosts."""

    def setUp(self):
        super().setUp()
        (self.folder / "libgood.so").symlink_to(libraries / "libgood.so")

    def via(self, body, *arguments, code=DONE):
        """Runs the check. `body` plays a host: with say() it answers for the cases from `first`."""
        python = self.folder / "python"
        self.write("python", f"""#!{sys.executable}
import json, os, shutil, sys, time
host, folder, library, first = sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5])
cases = [json.loads(line) for line in open(os.path.join(folder, "cases.json"))]
def say(**facts):
    print(json.dumps(facts), flush=True)
{body}
""")
        python.chmod(0o755)
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        out = self.opkit("check", "libgood.so", *arguments, code=code,
                         environment={"PYTHON": str(python), "TMPDIR": str(temporary)})
        self.assertEqual(os.listdir(temporary), [], "files are left")
        return out

    def row(self, out, host):
        return re.search(rf"(?m)^{host} +(.*)$", out)[1].split()

    EQUAL = """
say(version="Host 1.2")
for number in range(first, len(cases)):
    say(begin=number)
    say(case=number)
say(end=True)"""

    def test_every_case_has_its_inputs_and_results(self):
        self.via("shutil.copytree(folder, 'seen')" + self.EQUAL, "--via", "jax")
        cases = [json.loads(line) for line in
                 (self.folder / "seen/cases.json").read_text().splitlines()]
        data = (self.folder / "seen/data.bin").read_bytes()

        def values(tensor):
            self.assertEqual(tensor["dtype"], "float32")
            return struct.unpack_from(f"<{tensor['bytes'] // 4}f", data, tensor["at"])

        twice = [case for case in cases if case["op"] == "Twice"]
        self.assertGreater(len(twice), 6)
        self.assertIn([0, 3], [case["inputs"][0]["shape"] for case in twice])
        for case in twice:
            if "error" in case:
                continue
            x, = case["inputs"]
            (y,), = case["runs"]
            self.assertEqual(case["inferred"], [["float32", x["shape"]]])
            self.assertEqual(values(y), tuple(2 * value for value in values(x)))
        errors = [case["error"] for case in cases if case["op"] == "Root" and "error" in case]
        self.assertTrue(any(re.match(r"-\d\.\d+ has no root", error) for error in errors), errors)
        self.assertEqual({case["op"]: case["same"] for case in cases}["Noise"], False)
        # An operator writes to its inputs in a copy of them.
        moving, = [case for case in cases if case["name"] == "MovingMean(float32[7], float32[7])"]
        x, mean = map(values, moving["inputs"])
        self.assertAlmostEqual(values(moving["runs"][0][0])[0], (x[0] + mean[0]) / 2, places=6)
        # The library's kernel of Relu, not this program's: it makes 6 of anything larger.
        relu = [case for case in cases if case["op"] == "Relu" and "error" not in case]
        self.assertGreater(len(relu), 6)

    def test_the_table(self):
        out = self.via("""
say(version="Host 1.2")
for number, case in enumerate(cases):
    say(begin=number)
    if case["name"] == "Twice(float32[7])":
        say(case=number, wrong="output 0 has 3.0 instead of 2.0 at [1]")
    elif case["op"] == "Noise":
        say(case=number, not_carried="it has no noise")
    else:
        say(case=number)
say(begin=0, timing=True)
say(timed="Twice(float32[1])", us=1.5, own_us=0.25, cpp_us=0.5)
say(end=True)""", "--via", "ort", code=RUN_FAILED)
        self.assertIn("host version cases equal wrong not carried us C++ us own us", " ".join(out.split()))
        row = self.row(out, "ort")
        self.assertEqual(row[:2], ["Host", "1.2"])
        cases, equal, wrong, not_carried = map(int, row[2:6])
        self.assertEqual(wrong, 1)
        self.assertGreater(not_carried, 6)
        self.assertEqual(cases, equal + wrong + not_carried)
        self.assertEqual(row[6:], ["1.50", "0.50", "0.25"])
        self.assertIn("elements: ort Twice(float32[1])\n", out)
        self.assertIn("wrong: ort: Twice(float32[7]): output 0 has 3.0 instead of 2.0 at [1]\n", out)
        self.assertIn("not carried: ort: Noise: it has no noise\n", out)
        self.assertIn("1 result of library 'libgood.so' is wrong, in 1 host", self.stderr)

    def test_hosts_that_are_not_installed(self):
        missing = "if host != 'numpy': say(missing=\"No module named 'jax'\"), sys.exit(0)" + self.EQUAL
        out = self.via(missing, "--via", "numpy,jax", code=RUN_FAILED)
        self.assertEqual(self.row(out, "jax"), ["not", "installed"] + 7 * ["-"])
        self.assertIn("not installed: jax: No module named 'jax'\n", out)
        self.assertIn("error: not installed: jax", self.stderr)
        out = self.via(missing, "--via", "all")
        self.assertEqual(self.row(out, "torch")[:2], ["not", "installed"])
        self.via("say(missing='no such module')", "--via", "all", code=RUN_FAILED)
        self.assertIn("not installed: numpy, jax, ort, torch", self.stderr)

    def test_a_crash_or_a_hang_is_the_result_of_its_case(self):
        for end, text in (("os.abort()", "crashes: signal 6"), ("sys.exit(3)", "exit status 3"),
                          ("time.sleep(600)", "hangs: no end within 5 s")):
            out = self.via(f"""
say(version="Host 1.2")
for number in range(first, len(cases)):
    say(begin=number)
    if cases[number]["name"] == "Root(float32[3, 3])":
        print("the last words", file=sys.stderr, flush=True)
        {end}
    say(case=number)
say(end=True)""", "--via", "numpy", "--timeout", "5", code=RUN_FAILED)
            self.assertRegex(out, rf"wrong: numpy: Root\(float32\[3, 3\]\): the host .*{text}, "
                             "the last words")
            cases, equal, wrong = map(int, self.row(out, "numpy")[2:5])
            self.assertEqual((wrong, equal), (1, cases - 1))

    def test_a_python_that_does_not_run(self):
        for body, text in (("os.abort()", "crashes: signal 6"), ("print('{\"case\": 3}')", "ends too early")):
            out = self.via(body, "--via", "all", code=RUN_FAILED)
            self.assertIn(f"wrong: numpy: numpy: Python {text}", out)
        self.opkit("check", "libgood.so", "--via", "all", code=RUN_FAILED,
                   environment={"PYTHON": "/no/python"})
        self.assertIn("error: cannot run '/no/python'", self.stderr)

    def test_the_options(self):
        self.refuses(USAGE, ["check", "libgood.so", "--via", "nunpy"], "'nunpy'", "did you mean 'numpy'?")
        self.refuses(USAGE, ["check", "libgood.so", "--via", "all", "--op", "Twise"], "'Twise'")
        out = self.via(self.EQUAL, "--via", "jax", "--op", "Twice", "--shape", "4x5")
        self.assertLess(int(self.row(out, "jax")[2]), 8)
        (self.folder / "libempty.so").symlink_to(libraries / "libempty.so")
        self.refuses(RUN_FAILED, ["check", "libempty.so", "--via", "all"],
                     "library 'libempty.so' registers no operator")


class Export(Cli):
    def exports(self, *arguments, folder="pack_1"):
        return self.opkit("export", libraries / "libexports.so", "--python", folder, *arguments)

    def test_writes_a_package(self):
        self.assertEqual(self.exports(), "")
        self.assertEqual(sorted(os.listdir(self.folder / "pack_1")),
                         ["__init__.py", "__init__.pyi", "_jax.py", "_library.py", "_torch.py", "jax.py",
                          "jax.pyi", "libexports.so", "py.typed", "torch.py", "torch.pyi"])
        for path in (self.folder / "pack_1").glob("*.py*"):
            text = path.read_text()
            self.assertTrue(text.startswith("# Written by `opkit export` of opkit "))
            compile(text, path, "exec")
        jax = (self.folder / "pack_1/jax.py").read_text()
        self.assertIn('_Axpy = _operator("Axpy", {"alpha": "float"}, gradient="Axpy_grad")\n', jax)
        self.assertIn("def Blend(x, scale=None, shift=None, *, lambda_, weights=(1.0,), "
                      'negate=False, mode="once"):\n', jax)
        self.assertIn("def AddAll(*inputs):\n", jax)
        self.assertIn('_operator("Total", {}, stateful=True)', jax)
        self.assertNotIn("elementwise", jax)
        self.assertNotIn("Total", (self.folder / "pack_1/torch.py").read_text())

    def test_replaces_its_own_files_alone(self):
        self.exports()
        (self.folder / "pack_1/jax.py").unlink()
        self.exports("--elementwise", "Axpy", "--elementwise", "Scale")
        self.assertIn('{"alpha": "float"}, elementwise=True', (self.folder / "pack_1/jax.py").read_text())
        (self.folder / "mine").mkdir()
        self.exports(folder="mine/")
        for name in "__init__.py", "other.txt":
            folder = self.folder / ("old_" + name[:2])
            folder.mkdir()
            (folder / name).write_text("# mine\n")
            self.refuses(BAD_FILE, ["export", libraries / "libexports.so", "--python", folder.name],
                         "has files that `opkit export` did not write", "name a new folder")
            self.assertEqual(os.listdir(folder), [name])
        self.write("file", "")
        self.refuses(BAD_FILE, ["export", libraries / "libexports.so", "--python", "file"],
                     "'file' is no folder")

    def test_what_is_not_there(self):
        self.refuses(BAD_FILE, ["export", "missing.so", "--python", "p"], "missing.so")
        self.refuses(BAD_FILE, ["export", libraries / "libgood.so", "--python", "p"],
                     "libgood.so' exports no operator", "OPKIT_EXPORT")
        self.refuses(BAD_FILE, ["export", libraries / "libcrash.so", "--python", "p"], "libcrash.so")
        self.refuses(USAGE, ["export", libraries / "libexports.so"], "--python is required")
        self.refuses(USAGE, ["export", libraries / "libexports.so", "--python", "my-ops"],
                     "'my-ops' is no name of a package")
        self.refuses(USAGE, ["export", libraries / "libexports.so", "--python", "p", "--elementwise", "Axpi"],
                     "exports no operator 'Axpi'", "did you mean 'Axpy'?")
        self.assertFalse((self.folder / "p").exists())


class Partition(Cli):
    def test_tells_what_is_taken_and_why_the_rest_stays(self):
        self.npy("x.npy", FLOAT, [2, 3], [1, 2, 3, -4, 5, -6])
        out = self.opkit("partition", self.affine(), "--partition", "by_operator",
                         "--option", "ops=Mul,Add", "--option", "exclude_nodes=adds")
        self.assertIn("1 of 3 nodes taken, in 1 subgraph\n", out)
        self.assertIn("subgraph 0: by_operator, Subgraph 'Subgraph0', 1 node\n", out)
        self.assertIn("\nstay; by_operator: excluded by name\n  Add 1 'adds'\n", out)
        self.assertIn("\nstay; by_operator: unsupported\n  Relu 2\n", out)
        many = self.write("many.onnx", model([node("Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(20)],
                                             [value_info("v0", FLOAT, [1])], [value_info("v20", FLOAT, [1])]))
        out = self.opkit("partition", many, "--partition", "by_operator", "--option", "ops=Abs", "--dry-run")
        self.assertEqual(out.splitlines()[1:], ["stay; by_operator: unsupported",
                                                "  Neg " + ", ".join(map(str, range(20)))])
        report = json.loads(self.opkit("partition", "affine.onnx", "--partition", "by_operator",
                                       "--option", "ops=Mul,Add", "--json", "--dot", "parts.dot"))
        self.assertEqual((report["taken"], report["of"]), (2, 3))
        self.assertEqual(report["subgraphs"][0]["outputs"], ["dir/sum:0"])
        self.assertIn("subgraph cluster_g0 {", (self.folder / "parts.dot").read_text())
        graph = json.loads(self.opkit("partition", "affine.onnx", "--partition", "by_operator",
                                      "--option", "ops=Mul,Add", "-o", "-"))
        self.assertEqual([one["type"] for one in graph["nodes"]], ["Subgraph", "Relu"])

    def test_a_partitioned_model_runs_the_same(self):
        self.npy("x.npy", FLOAT, [2, 3], [1, 2, 3, -4, 5, -6])
        self.opkit("run", self.affine(), "--input", "x=x.npy", "--output-dir", "flat")
        self.opkit("run", "affine.onnx", "--input", "x=x.npy", "--output-dir", "parted",
                   "--partition", "by_operator", "--option", "ops=Mul,Relu")
        self.opkit("partition", "affine.onnx", "--partition", "by_operator", "--option",
                   "ops=Mul,Relu", "--shape", "x=2x3", "-o", "parted.onnx")
        self.assertIn("Subgraph", self.opkit("inspect", "parted.onnx"))
        self.opkit("run", "parted.onnx", "--input", "x=x.npy", "--output-dir", "saved")
        for name in ("y.npy", "dir_sum_0.npy"):
            flat = read_npy(self.folder / "flat" / name)
            self.assertEqual(flat, read_npy(self.folder / "parted" / name))
            self.assertEqual(flat, read_npy(self.folder / "saved" / name))

    def test_extents_that_nobody_gives_stay_open(self):
        partition = ["partition", self.affine(), "--partition", "by_operator", "--option",
                     "ops=Mul,Add", "-o"]
        self.opkit(*partition, "parted.onnx")
        self.assertRegex(self.opkit("inspect", "parted.onnx"),
                         r"(?m)^  x +float32\[N, 3\] +here float32\[1, 3\]$")
        self.npy("x.npy", FLOAT, [2, 3], [1, 2, 3, -4, 5, -6])
        for model_file in ("affine.onnx", "parted.onnx"):
            out = self.opkit("run", model_file, "--input", "x=x.npy")
            self.assertRegex(out, r"(?m)^y +float32\[2, 3\] +3 0 2\.5 0 0 0$")
        graph = json.loads(self.opkit(*partition, "-"))
        self.assertEqual(graph["inputs"][0]["shape"], ["N", 3])
        graph = json.loads(self.opkit(*partition, "-", "--shape", "x=5x3"))
        self.assertEqual(graph["inputs"][0]["shape"], [5, 3])

    def test_the_page_of_a_run_shows_what_was_taken(self):
        self.opkit("run", self.affine(), "--random", "--report", "flat.html")
        self.opkit("run", "affine.onnx", "--random", "--report", "parted.html", "--partition",
                   "by_operator", "--option", "ops=Mul,Relu", "--option", "min_size=1")
        self.assertIn(r'"partition":"{\"taken\": 2, \"of\": 3,', (self.folder / "parted.html").read_text())
        self.assertNotIn('"partition":"', (self.folder / "flat.html").read_text())

    def test_operators_that_nobody_has_may_stand_until_somebody_must_run_them(self):
        path = self.write("m.onnx", model(
            [node("Neg", ["x"], ["a"]), node("Alien", ["a"], ["y"])],
            [value_info("x", FLOAT, [1])], [value_info("y", FLOAT, [1])]))
        arguments = ["partition", path, "--partition", "by_operator", "--option", "ops=Neg"]
        self.assertIn("1 of 2 nodes taken", self.opkit(*arguments, "--dry-run"))
        self.refuses(BAD_MODEL, arguments, "1 node has an operator that is not registered",
                     "'Alien'")

    def test_what_is_not_understood(self):
        path = self.affine()
        self.refuses(USAGE, ["partition", path], "expected --partition NAME", "by_operator")
        self.refuses(BAD_MODEL, ["partition", path, "--partition", "by_operators"],
                     "did you mean 'by_operator'?", "load the partitioners of a library with --library FILE.so")
        # Without Graphviz the picture that is there stays.
        self.write("parts.svg", "the picture before")
        self.opkit("partition", path, "--partition", "by_operator", "--option", "ops=Neg", "--dot",
                   "parts.svg", code=BAD_FILE, environment={"PATH": "/nowhere"})
        self.assertIn("Graphviz did not draw 'parts.svg'", self.stderr)
        self.assertEqual((self.folder / "parts.svg").read_text(), "the picture before")
        self.refuses(USAGE, ["partition", path, "--partition", "by_operator", "--option", "ops"],
                     "expected --option NAME=VALUE, found 'ops'")
        self.refuses(USAGE, ["run", path, "--random", "--option", "a=b"], "give --partition NAME")
        for options, sentence in ((["min_size=0", "ops=Add"], "a number from 1 on, found '0'"),
                                  (["op=Add"], "there is no option 'op'"),
                                  ([], "expected the option ops=NAME,...")):
            given = [word for option in options for word in ("--option", option)]
            self.refuses(BAD_MODEL, ["partition", path, "--partition", "by_operator", *given],
                         sentence, "in partitioner 'by_operator'")


class Compare(Cli):
    # Its Relu makes 6 of what is larger, under the backend "good".
    def setUp(self):
        super().setUp()
        self.npy("x.npy", FLOAT, [1, 3], [4, 2, 8])
        self.library = ["--library", libraries / "libgood.so"]

    def test_two_backends_that_agree(self):
        out = self.opkit("compare", self.affine(), "--input", "x=x.npy", "--backends",
                         "eigen,reference")
        rows = [line.split()[:4] for line in out.splitlines()[1:4]]
        self.assertEqual(rows[0], ["p", "Mul", "eigen", "reference"])
        self.assertEqual(rows[1][:3], ["dir/sum:0", "Add", "'adds'"])
        self.assertIn("3 values compared, 0 of them of the same kernel in both runs\n", out)
        self.assertIn("no value differs beyond atol 1e-05 + rtol 0.001", out)
        out = self.opkit("compare", self.affine(), "--random", "--backends", "reference")
        self.assertIn("3 of them of the same kernel", out)
        self.assertNotIn("no value differs", out)
        self.assertRegex(self.stderr, r"\Aopkit: nothing was checked: each value had the same kernel "
                         r"in both runs; give another backend with --with .*\n\Z")


    def test_a_kernel_with_a_variant_is_of_its_backend(self):
        path = self.write("product.onnx", model(
            [node("MatMulInteger", ["x", "w"], ["y"])], [value_info("x", UINT8, [2, 16])],
            [value_info("y", INT32, [2, 16])], [tensor("w", UINT8, [16, 16], [1] * 256)]))
        self.assertRegex(self.opkit("compare", path, "--random"), "reference .*constant B")
        self.assertNotIn("no backend of --with", self.stderr)

    def test_a_model_without_nodes(self):
        path = self.write("m.onnx", model([], [value_info("x", FLOAT, [2])], [value_info("x", FLOAT, [2])]))
        self.assertIn("\n0 values compared", self.opkit("compare", path, "--random"))

    def test_values_that_no_trusted_backend_made_are_named(self):
        self.opkit("compare", self.affine(), "--random", *self.library, "--with", "good", code=0)
        self.assertTrue(self.stderr.endswith(
            "opkit: no backend of --with has a kernel for 2 values; other backends computed them: "
            "Mul by eigen, Add 'adds' by eigen\n"), self.stderr)

    def test_the_first_node_that_differs(self):
        arguments = ["compare", self.affine(), "--input", "x=x.npy", *self.library]
        out = self.opkit(*arguments, code=RUN_FAILED)  # the table; the verdict is the error
        verdict = ("the first value that differs beyond atol 1e-05 + rtol 0.001 * |expected| is 'y' "
                   "of node Relu at [0, 0]: 6 by good, expected 9 by reference\n")
        self.assertTrue(out.endswith("of the same kernel in both runs\n"), out)
        self.assertRegex(out, r"(?m)^y +Relu +good +reference +3 +0\.333 +1 of 3 +\[0, 0\]$")
        self.assertEqual(self.stderr, "opkit: error: " + verdict)
        self.opkit(*arguments, "--atol", 3)
        nodes = [node("Relu", ["x"], ["r"]), node("Neg", ["r"], ["y"])]
        path = self.write("m.onnx", model(nodes, [value_info("x", FLOAT, [1, 3])],
                                          [value_info("y", FLOAT, [1, 3])]))
        for more, rows in (([], 1), (["--end-to-end"], 2)):
            out = self.opkit("compare", path, "--input", "x=x.npy", *self.library, *more,
                             code=RUN_FAILED)
            self.assertEqual(out.count(" 1 of 3 "), rows, out)
        self.opkit(*arguments, "--rtol", 0.34)
        self.opkit(*arguments, "--with", "good,eigen", "--backends", "eigen", code=RUN_FAILED)
        self.assertIn("9 by eigen, expected 6 by good", self.stderr)

    def test_strings_and_sequences(self):
        path = self.write("values.onnx", model(
            [node("Relu", ["x"], ["r"]), node("Cast", ["r"], ["words"], numbers=[("to", STRING)]),
             node("SequenceConstruct", ["x", "r"], ["parts"])],
            [value_info("x", FLOAT, [1, 3])],
            [value_info("words", STRING, [1, 3]), sequence_info("parts", FLOAT)]))
        arguments = ["compare", path, "--input", "x=x.npy"]
        out = self.opkit(*arguments, "--backends", "reference")
        self.assertRegex(out, r"(?m)^words +Cast +reference +reference +0 +0 +-")
        self.assertRegex(out, r"(?m)^parts +SequenceConstruct +reference +reference +0 +0 +-")
        arguments += [*self.library, "--end-to-end"]  # so that the result of Relu spreads
        out = self.opkit(*arguments, code=RUN_FAILED)
        self.assertRegex(out, r"(?m)^words +Cast +reference +reference +1 of 3 +\[0, 2\]$")
        self.assertRegex(out, r"(?m)^parts +SequenceConstruct .* 2 +0\.25 +1 of 6 +\[1, 0, 2\]$")
        self.opkit(*arguments, "--atol", 3, code=RUN_FAILED)
        self.assertIn("'words' of node Cast at [0, 2]: '6' by reference, expected '8'", self.stderr)

    def test_inputs_that_are_strings_and_sequences(self):
        path = self.write("inputs.onnx", model(
            [node("Identity", ["words"], ["w"]), node("SequenceLength", ["parts"], ["n"])],
            [value_info("words", STRING, [2]), sequence_info("parts", FLOAT)],
            [value_info("w", STRING, [2]), value_info("n", INT64, [])]))
        out = self.opkit("compare", path, "--random", "--input", "parts=x.npy,x.npy")
        self.assertRegex(out, r"(?m)^w +Identity .* -")
        self.assertIn("\n2 values compared", out)

    def test_a_model_of_com_microsoft(self):
        path = self.write("fused.onnx", model(
            [node("FusedMatMul", ["x", "x"], ["y"], "product", [("transA", 1)], domain="com.microsoft")],
            [value_info("x", FLOAT, [1, 3])], [value_info("y", FLOAT, [3, 3])], domains=["com.microsoft"]))
        out = self.opkit("compare", path, "--input", "x=x.npy", "--backends", "eigen,reference")
        self.assertRegex(out, r"(?m)^y +MatMul 'product' +eigen +reference +0 +0 +-")

    def test_a_partitioner_takes_node_by_node(self):
        # by_operator takes nothing without its option, which says that it was asked.
        self.refuses(BAD_MODEL, ["compare", self.affine(), "--random", "--with", "by_operator"],
                     "expected the option ops=NAME", "in partitioner 'by_operator'")

    def test_what_is_not_there(self):
        self.refuses(USAGE, ["compare", self.affine(), "--random", "--with", "onnxruntime"],
                     "ONNX Runtime is not there", "libonnxruntime_ep.so", "OPKIT_ONNXRUNTIME")
        self.refuses(USAGE, ["compare", self.affine(), "--random", "--with", "refrence"],
                     "no backend 'refrence'", "did you mean 'reference'?")
        for value in ("-1", "nan", "much"):
            self.refuses(USAGE, ["compare", self.affine(), "--random", "--rtol", value], "--rtol")
        self.refuses(BAD_INPUT, ["compare", self.affine()], "give --input x=FILE.npy, or --random")
        self.refuses(USAGE, ["compare", "a.onnx", "b.onnx", "--random"], "unexpected argument 'b.onnx'",
                     "compare takes one model; to compare two models, run both with --output-dir")


class CommandLine(Cli):
    def test_help_has_examples_and_the_exit_codes(self):
        out = self.opkit("--help")
        self.assertIn("Examples:\n  opkit bench compare", self.opkit("bench", "compare", "--help"))
        for code in range(7):
            self.assertRegex(out, rf"(?m)^  {code}  \w")
        for command in ("run", "bench", "inspect", "plan", "ops", "build", "export", "lib", "check", "trace",
                        "partition", "compare", "simulate"):
            self.assertRegex(out, rf"(?m)^  {command} ")
            help_text = self.opkit(command, "--help")
            self.assertIn(f"Examples:\n  opkit {command}", help_text)
        self.assertIn("branches of an If are not checked",
                      " ".join(self.opkit("run", "--help").split()))
        self.assertRegex(self.opkit("--version"), r"\Aopkit \d+\.\d+\.\d+\n\Z")

    def test_help_is_a_command_too(self):
        for words in [], ["run"], ["bench", "compare"]:
            self.assertEqual(self.opkit("help", *words), self.opkit(*words, "--help"))
        self.refuses(USAGE, ["help", "rnu"], "opkit has no command 'rnu'; did you mean 'run'?")
        self.refuses(USAGE, ["help", "bench", "models"], "opkit bench has no command 'models'")

    def test_what_is_not_understood(self):
        self.refuses(USAGE, [], "expected a command: run, bench, bench-op, tune, inspect, plan, ops, build, export, lib, check")
        self.refuses(USAGE, ["rnu"], "no command 'rnu'", "did you mean 'run'?")
        self.refuses(USAGE, ["--verson"], "no option '--verson'", "did you mean '--version'?")
        self.refuses(USAGE, ["run", "m.onnx", "--ramdom"], "run has no option '--ramdom'",
                     "did you mean '--random'?")
        self.refuses(USAGE, ["run", "m.onnx", "--shap=x=1x4"], "run has no option '--shap'",
                     "did you mean '--shape'?")
        self.refuses(USAGE, ["plan", "a.csv", "b.csv"], "unexpected argument 'b.csv' of plan")
        self.refuses(USAGE, ["run"], "expected the file of a model")
        self.refuses(USAGE, ["bench", "m.onnx", "--threads"], "--threads")
        for threads in ("0", "-1", "many", "1e9", "2000"):
            self.refuses(USAGE, ["bench", "m.onnx", "--threads", threads], "--threads",
                         "expected a whole number from 1 to")
        for threads in ("010", "08"):  # octal to some
            self.refuses(USAGE, ["bench", "m.onnx", "--threads", threads], "--threads",
                         "expected a whole number without leading zeros, found '" + threads + "'")

    def test_a_full_disk(self):
        with open("/dev/full", "w") as full:
            run = subprocess.run([program, "ops"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(run.returncode, BAD_FILE)
        self.assertEqual(run.stderr, "opkit: error: cannot write to standard output\n")


class Terminal(Cli):
    def on_terminal(self, *arguments, **environment):
        """What it writes to a terminal, escapes and all, and its exit code."""
        parent, child = pty.openpty()
        run = subprocess.Popen([program, *map(str, arguments)], cwd=self.folder, stdin=child,
                               stdout=child, stderr=child,
                               env={**os.environ, "NO_COLOR": "", "TERM": "xterm", **environment})
        os.close(child)
        written = b""
        try:
            while data := os.read(parent, 65536):
                written += data
        except OSError:  # the other end is closed
            pass
        os.close(parent)
        return written.decode(), run.wait()

    def test_colours(self):
        for environment, coloured in (({}, True), ({"NO_COLOR": "1"}, False),
                                      ({"TERM": "dumb"}, False)):
            with self.subTest(environment):
                text, code = self.on_terminal("rnu", **environment)
                self.assertEqual(code, USAGE)
                self.assertEqual("\033[1;31mopkit: error:\033[0m there is" in text, coloured)
                text, code = self.on_terminal("inspect", self.affine(), **environment)
                self.assertEqual("\033[1mnodes\033[0m" in text, coloured)

    def test_colours_of_findings(self):
        library = libraries / "libwrong.so"
        text, code = self.on_terminal("check", library, "--op", "WritesPast")
        self.assertEqual(code, RUN_FAILED)
        self.assertIn("\033[1mWritesPast\033[0m", text)
        self.assertIn("\033[1;31mwrong:\033[0m it writes past", text)

    def test_progress(self):
        text, code = self.on_terminal("run", self.affine(), "--random", "--repeat", 10)
        self.assertEqual(code, DONE)
        self.assertRegex(text, r"\r\033\[Krunning \[[#.]+\] +\d+%")
        after = text.rpartition("\r\033[K")[2]  # the line is gone
        self.assertNotIn("running", after)
        self.assertIn("float32[1, 3]", after)
        text, _ = self.on_terminal("bench", self.affine(), "--seconds", "0.3", "-o", "b.json")
        self.assertRegex(text, r"measuring \[[#.]+\] +\d+% \d+ runs")
        text, _ = self.on_terminal("run", self.affine(), "--random", "--repeat", 10, TERM="dumb")
        self.assertNotIn("running", text)


if __name__ == "__main__":
    program = os.path.abspath(sys.argv.pop(1))
    libraries = pathlib.Path(sys.argv.pop(1)).resolve()
    mxnet_libraries = pathlib.Path(sys.argv.pop(1)).resolve()
    with tempfile.TemporaryDirectory() as folder:
        caches = pathlib.Path(folder)
        unittest.main(verbosity=1)
