#!/usr/bin/env python3
"""Tests single_include/amalgamate.py and the gate of bench/compile_time/compile_time.py on small
trees of headers, bench/summarize.py on small results, and bench/turns.py on small programs."""
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / folder) for folder in ("single_include", "bench", "bench/compile_time")]
import amalgamate  # noqa: E402
import compile_time  # noqa: E402
import summarize  # noqa: E402
import turns  # noqa: E402

CXX = os.environ.get("CXX", "g++").split()


def header(path, *lines):
    guard = "".join(c if c.isalnum() else "_" for c in path).upper() + "_"
    return "\n".join([f"// What {path} is.", f"#ifndef {guard}", f"#define {guard}", *lines,
                      f"#endif  // {guard}", ""])


class Trees(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        amalgamate.INCLUDE = compile_time.INCLUDE = self.root / "include"
        amalgamate.OUTPUT = self.root / "single" / "opkit"

    def write(self, files):
        for path, lines in files.items():
            target = self.root / "include" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(header(path, *lines))

    def write_single(self, *names):
        for name in names:
            amalgamate.write_if_changed(amalgamate.OUTPUT / name, amalgamate.amalgamate(name).text())

    def run_program(self, *lines, include):
        source, program = self.root / "program.cpp", self.root / "program"
        source.write_text("\n".join(lines))
        subprocess.run([*CXX, "-std=c++20", *(f"-I{i}" for i in include), source, "-o", program],
                       check=True)
        return subprocess.run([program]).returncode

    SMALL = {
        "opkit/base/one.hpp": ["#include <utility>", "inline int One() { return 1; }"],
        "opkit/base/two.hpp": ["#include <utility>", '#include "opkit/base/one.hpp"  // One',
                               "inline int Two() { return One() + One(); }"],
        "opkit/opkit.hpp": ['#include "opkit/base/one.hpp"', '#include "opkit/base/two.hpp"'],
        "opkit/ops/four.hpp": ['#include "opkit/base/two.hpp"',
                               "inline int Four() { return 2 * Two(); }"],
    }


class Amalgamate(Trees):
    def test_holds_each_header_once_in_order(self):
        self.write(self.SMALL)
        text = amalgamate.amalgamate("opkit.hpp").text()
        self.assertEqual(text.count("#include"), 1)
        self.assertEqual(text.count("#include <utility>"), 1)
        self.assertEqual(text.count("inline int One()"), 1)
        self.assertLess(text.index("inline int One()"), text.index("inline int Two()"))
        self.assertIn("// What opkit/base/two.hpp is.", text)
        self.assertNotIn("Four", text)
        self.assertEqual(text, amalgamate.amalgamate("opkit.hpp").text())

    def test_may_stand_beside_the_headers_in_any_order(self):
        self.write(self.SMALL)
        self.write_single("opkit.hpp")
        single = f'#include "{amalgamate.OUTPUT}/opkit.hpp"'
        four = '#include "opkit/ops/four.hpp"'
        for includes in ([single, four], [four, single]):
            self.assertEqual(self.run_program(*includes, "int main() { return Four(); }",
                                              include=[self.root / "include"]), 4)

    def test_forwarding_headers_stand_for_all_headers(self):
        self.write(self.SMALL | {"opkit/ops/five.hpp": ["inline int Five() { return 5; }"]})
        self.write_single("opkit.hpp")
        single = amalgamate.OUTPUT / "opkit.hpp"
        folder = self.root / "forwarding"
        (folder / "opkit").mkdir(parents=True)
        (folder / "opkit" / "stale.hpp").write_text("")
        author = self.root / "author.hpp"
        amalgamate.write_forwarding(folder, {
            single: set(amalgamate.amalgamate("opkit.hpp").visited),
            author: {"opkit/base/one.hpp", "opkit/ops/five.hpp"}})
        self.assertEqual((folder / "opkit/ops/five.hpp").read_text(), f'#include "{author}"\n')
        self.assertFalse((folder / "opkit" / "stale.hpp").exists())
        self.assertEqual((folder / "opkit/base/one.hpp").read_text(),
                         f'#include "{single}"\n')
        self.assertIn("int Four()", (folder / "opkit/ops/four.hpp").read_text())
        self.assertEqual(self.run_program('#include "opkit/ops/four.hpp"',
                                          "int main() { return Four(); }", include=[folder]), 4)

    def test_keeps_conditional_includes_under_their_condition(self):
        self.write({"opkit/short.hpp": ["#define SHORT 1"],
                    "opkit/opkit.hpp": ["#ifndef OPKIT_NO_SHORT", '#include "opkit/short.hpp"',
                                        "#include <utility>", "#endif"]})
        lines = amalgamate.amalgamate("opkit.hpp").text().splitlines()
        start, end = lines.index("#ifndef OPKIT_NO_SHORT"), lines.index("#include <utility>")
        self.assertIn("#define SHORT 1", lines[start:end])

    def test_the_author_s_header_and_the_umbrella_may_stand_in_one_unit(self):
        both = ["#if defined(OPKIT_OPKIT_HPP_) && defined(OPKIT_PLUGIN_AUTHOR_HPP_)",
                '#include "opkit/plugin/both.hpp"', "#endif"]
        self.write(self.SMALL | {
            "opkit/opkit.hpp": self.SMALL["opkit/opkit.hpp"] + both,
            "opkit/plugin/author.hpp": ['#include "opkit/base/one.hpp"',
                                        "inline int Author() { return 3 * One(); }", *both],
            "opkit/plugin/both.hpp": ['#include "opkit/base/two.hpp"',
                                      '#include "opkit/plugin/author.hpp"',
                                      "inline int Both() { return Author() + Two(); }"]})
        self.write_single("opkit.hpp", "op.hpp")
        includes = ["#include <opkit/opkit.hpp>", "#include <opkit/op.hpp>"]
        for order in (includes, includes[::-1]):
            self.assertEqual(self.run_program(*order, "int main() { return Both(); }",
                                              include=[self.root / "single"]), 5)
        self.assertEqual(self.run_program(includes[1], "int main() { return Author(); }",
                                          include=[self.root / "single"]), 3)

    def test_single_headers_of_tiers_are_whole_and_may_stand_in_one_unit(self):
        self.write(self.SMALL | {
            "opkit/graph.hpp": ['#include "opkit/opkit.hpp"', '#include "opkit/graph/three.hpp"'],
            "opkit/graph/three.hpp": ['#include "opkit/base/two.hpp"', "int Three();",
                                      "#ifdef OPKIT_DEFINITIONS",
                                      '#include "opkit/graph/impl/three.ipp"', "#endif"],
            "opkit/graph/impl/three.ipp": ["inline int Three() { return One() + Two(); }"]})
        self.write_single("opkit.hpp", "graph.hpp")
        self.assertNotIn("Three", (amalgamate.OUTPUT / "opkit.hpp").read_text())
        main, single = "int main() { return Three(); }", [self.root / "single"]
        includes = ["#include <opkit/opkit.hpp>", "#include <opkit/graph.hpp>"]
        for unit in (includes, includes[::-1], includes[1:]):
            self.assertEqual(self.run_program("#define OPKIT_DEFINITIONS", *unit, main,
                                              include=single), 3)

    def test_what_is_included_for_two_umbrellas_finds_the_headers_of_that_one(self):
        self.write(self.SMALL | {
            "opkit/graph.hpp": ['#include "opkit/opkit.hpp"', '#include "opkit/base/three.hpp"'],
            "opkit/base/three.hpp": ["inline int Three() { return 3; }"],
            "opkit/plugin/author.hpp": ["#ifdef OPKIT_GRAPH_HPP_",
                                        '#include "opkit/plugin/both.hpp"', "#endif"],
            "opkit/plugin/both.hpp": ['#include "opkit/base/three.hpp"',
                                      "inline int Both() { return Three(); }"]})
        self.write_single("graph.hpp", "op.hpp")
        self.assertNotIn("int Three", (amalgamate.OUTPUT / "op.hpp").read_text())
        self.assertEqual(self.run_program("#include <opkit/graph.hpp>", "#include <opkit/op.hpp>",
                                          "int main() { return Both(); }",
                                          include=[self.root / "single"]), 3)

    def test_what_a_conditional_definition_includes_stands_under_its_condition(self):
        self.write(self.SMALL | {
            "opkit/plugin/author.hpp": ['#include "opkit/base/one.hpp"', "#ifdef OPKIT_OPKIT_HPP_",
                                        '#include "opkit/plugin/both.hpp"', "#endif"],
            "opkit/plugin/both.hpp": ["int Both();", "#ifdef OPKIT_DEFINITIONS",
                                      '#include "opkit/plugin/impl/both.ipp"', "#endif"],
            "opkit/plugin/impl/both.ipp": ['#include "opkit/ops/four.hpp"',
                                           "inline int Both() { return Four(); }"]})
        self.write_single("op.hpp")
        own = ["#define OPKIT_DEFINITIONS", "#include <opkit/op.hpp>",
               "int Four() { return 7; }", "int main() { return Four(); }"]
        self.assertEqual(self.run_program(*own, include=[self.root / "single"]), 7)

    def test_refuses_a_conditional_include_that_others_may_depend_on(self):
        self.write(self.SMALL | {"opkit/opkit.hpp": ["#if 1", '#include "opkit/base/two.hpp"',
                                                     "#endif", '#include "opkit/base/one.hpp"']})
        with self.assertRaisesRegex(SystemExit, "under a condition"):
            amalgamate.amalgamate("opkit.hpp")


class CompileTime(Trees):
    ENTRIES, PROGRAMS = ["opkit/a.hpp", "opkit/b.hpp"], ["program.cpp"]

    def measure(self):
        return compile_time.measure(self.ENTRIES, self.PROGRAMS, " ".join(CXX))

    def violations(self, budget):
        return list(compile_time.violations(self.measure(), budget))

    def setUp(self):
        super().setUp()
        self.addCleanup(setattr, compile_time, "ROOT", compile_time.ROOT)
        compile_time.ROOT = self.root
        self.lines = [f"inline int a{i}();" for i in range(200)]
        self.write({"opkit/a.hpp": ["#include <cstddef>", *self.lines],
                    "opkit/b.hpp": ['#include "opkit/a.hpp"', "// No line.", "", "inline int b();",
                                    "#ifndef OPKIT_COMPILED", '#include "opkit/c.ipp"', "#endif"],
                    "opkit/c.ipp": ["#include <string>", "inline int b() { return 1; }"]})
        self.program(2)

    def program(self, functions):
        (self.root / "program.cpp").write_text("\n".join(
            ["#ifdef OPKIT_COMPILED", *(f"void f{i}() {{}}" for i in range(functions)), "#endif",
             "static int twice(int i) { return 2 * i; }", "inline int once() { return twice(1); }",
             "int declared();", "int main() { return once(); }"]))

    def test_counts_own_lines_and_names_standard_headers_in_both_modes(self):
        of = self.measure()["headers"]
        self.assertEqual([of[h][mode]["own"] for h in self.ENTRIES
                          for mode in ("compiled", "header_only")], [200, 200, 201, 202])
        self.assertEqual([of["opkit/b.hpp"][mode]["std"] for mode in ("compiled", "header_only")],
                         ["cstddef", "cstddef string"])
        self.assertGreater(of["opkit/a.hpp"]["compiled"]["total"], 200)

    def test_counts_the_functions_that_an_object_defines_in_compiled_mode(self):
        self.assertEqual(self.measure()["functions"], {"program.cpp": 5})

    def test_its_budget_is_json_with_a_line_for_each_header_and_mode(self):
        measured = self.measure()
        text = compile_time.budget_text(measured)
        self.assertEqual(json.loads(text), measured)
        self.assertEqual(text.count("\n  \""), 4)

    def test_allows_ten_percent_more_and_no_more(self):
        budget = self.measure()
        self.write({"opkit/a.hpp": ["#include <cstddef>", *self.lines, *["inline int c();"] * 20]})
        self.program(12)
        self.assertEqual(self.violations(budget), [])
        self.write({"opkit/a.hpp": ["#include <cstddef>", *self.lines, *["inline int c();"] * 21]})
        self.program(13)
        found = self.violations(budget)
        self.assertIn("opkit/a.hpp, compiled: 221 lines of opkit, more than 10% over its budget of "
                      "200", found[0])
        self.assertIn("program.cpp: 16 functions in its object, more than 10% over its budget of 5",
                      found[-1])

    def test_names_new_standard_headers_even_where_one_includes_them_already(self):
        self.write({"opkit/a.hpp": ["#include <cstddef>", "#include <string>", *self.lines]})
        budget = self.measure()
        self.write({"opkit/a.hpp": ["#include <cstddef>", "#include <string>",
                                    "#include <string_view>", *self.lines]})
        self.assertEqual([v.split(". ")[0] for v in self.violations(budget)],
                         [f"{header}, {mode} now includes <string_view>" for header in self.ENTRIES
                          for mode in ("compiled", "header_only")])

    def test_gates_all_lines_and_functions_only_with_the_compiler_of_the_budget(self):
        budget = self.measure()
        budget["headers"]["opkit/a.hpp"]["compiled"]["total"] //= 2
        budget["functions"]["program.cpp"] = -10
        found = self.violations(budget)
        self.assertIn("preprocessed lines", found[0])
        self.assertIn("functions", found[1])
        budget["compiler"] = "another 1"
        self.assertEqual(self.violations(budget), [])

    def test_asks_for_a_budget_of_each(self):
        budget = self.measure()
        budget["headers"]["opkit/gone.hpp"] = budget["headers"].pop("opkit/b.hpp")
        budget["functions"] = {}
        self.assertEqual([v.split(":")[0] for v in self.violations(budget)],
                         ["opkit/b.hpp has no budget",
                          "opkit/gone.hpp has a budget and is not measured",
                          "program.cpp has no budget"])


class Summarize(unittest.TestCase):
    HEAD = {"machine": "2 cores", "compiler": "g++", "command": "bench", "commit": "abc"}

    @staticmethod
    def row(name, ns, **more):
        return [{"run_name": name, "aggregate_name": "median", "real_time": ns, "time_unit": "ns",
                 **more},
                {"run_name": name, "aggregate_name": "cv", "real_time": 0.04, "time_unit": "ns"}]

    def page(self, name, **report):
        text, self.pictures = summarize.page(name, {"head": self.HEAD, **report})
        return [[cell.strip() for cell in line.strip("|").split("|")] if line[:1] == "|" else line
                for line in text.splitlines()]

    def test_a_row_stands_beside_its_peers_of_the_same_arguments(self):
        lines = self.page("executor", benchmarks=[
            *self.row("SimpleNet/chain/1/real_time", 500, ns_per_node=5.0),
            *self.row("Executor/chain/1/real_time", 1000, ns_per_node=10.0),
            *self.row("Executor/chain/2/iterations:3/real_time", 2_500_000)])
        self.assertEqual(lines[0], "# executor")
        self.assertIn("- command: `bench`", lines)
        self.assertIn(["row", "median", "spread", "peer", "median", "spread", "ratio"], lines)
        self.assertEqual([line for line in lines if line and "chain" in line[0]],
                         [["Executor/chain/1", "10.0 ns", "4%", "SimpleNet/chain/1", "5.00 ns",
                           "4%", "2.00"],
                          ["Executor/chain/2", "2.50 ms", "4%", "", "", "", ""]])
        self.assertTrue(lines[-1].startswith("Quoted, as published for another machine: "))

    def test_says_what_did_not_run(self):
        lines = self.page("library", benchmarks=[
            *self.row("LoadedOp/2/real_time", 20, allocations_per_call=2.0),
            {"run_name": "LoadThousandOps", "error_occurred": True, "error_message": "no file"}])
        self.assertIn(["LoadedOp/2", "20.0 ns", "4%", "allocations_per_call 2"], lines)
        self.assertIn("Not run: LoadThousandOps: no file.", lines)

    def test_tuned_models_stand_beside_the_best_of_the_untuned_ones(self):
        def ratio(median):
            return {"median": median, "middle_half": [median - 0.01, median + 0.01]}
        ms = {"default": 9.0, "eigen": 8.0, "onednn": 10.0, "tuned": 6.0, "onnxruntime": 12.0}
        of_ort = {"best_over_onnxruntime": ratio(0.66), "default_over_onnxruntime": ratio(0.75)}
        lines = self.page("tuning", models=[
            {"model": "a", "threads": 1, "median_ms": ms, "tuning_seconds": 12.34, "tuned_over_best": ratio(0.75),
             "tuned_over_onnxruntime": ratio(0.5), **of_ort,
             "choices": {"this CPU": {"onednn aBcd16b": 3, "eigen standard": 1}, "AVX2": {"eigen standard": 1}}},
            {"model": "b", "threads": 1, "median_ms": {"default": 9.0, "onnxruntime": 12.0}, "tuning_seconds": None,
             "tuned_over_best": None, "tuned_over_onnxruntime": None, **of_ort}], failures=["b, eigen: why"])
        self.assertIn(["a", "1", "9.00", "8.00", "10.0", "6.00", "12.0", "0.75", "0.74-0.76", "0.50", "0.66", "0.75",
                       "12.3"], lines)
        self.assertIn(["b", "1", "9.00", "", "", "", "12.0", "", "", "", "0.66", "0.75", ""], lines)
        self.assertIn(["tuned / best", "1", "1", "0.75", "0.75", "0.75"], lines)
        self.assertIn(["best / ONNX Runtime", "1", "2", "0.66", "0.66", "0.66"], lines)
        self.assertIn(["a", "1", "onednn aBcd16b", "3", "0"], lines)
        self.assertNotIn(["a", "1", "eigen standard", "1", "1"], lines)
        self.assertIn("Failed: b, eigen: why", lines)

    def test_hosts_stand_beside_their_own_operators(self):
        def of(median):
            return {"median": median, "middle_half": [median - 0.02, median + 0.03]}
        row = {"ns": of(741.0), "peer": "NumPy", "peer_ns": of(655.0)}
        lines = self.page("hosts", not_measured={"PyTorch": "it is not installed"}, failures=["in_host.py jax"], rows=[
            {"host": "tvm-ffi", "call": "f", "elements": 3, "threads": 0, **row, "ratio": of(1.131), "goal": 1.65},
            {"host": "tvm-ffi", "call": "g", "elements": 3, "threads": 0, **row, "ratio": of(2.0), "goal": None},
            {"host": "C", "call": "f", "elements": 1000, "threads": 1, **row, "ratio": of(1.03), "goal": 1.03},
            {"host": "C", "call": "f", "elements": 1000, "threads": 2, **row, "ratio": of(1.031), "goal": 1.03},
            {"host": "C", "call": "g", "elements": 1000, "threads": 2, **row, "ratio": of(0.4), "goal": 1.03}])
        self.assertIn(["host", "call", "time", "peer", "its time", "ratio", "spread", "goal"], lines)
        self.assertIn(["tvm-ffi", "f", "741 ns", "NumPy", "655 ns", "1.13", "1.11-1.16", "1.65, met"], lines)
        self.assertIn(["tvm-ffi", "g", "741 ns", "NumPy", "655 ns", "2.00", "1.98-2.03", ""], lines)
        self.assertIn(["PyTorch", "not measured", *[""] * 6], lines)
        self.assertIn(["C", "f", "1", "741 ns", "NumPy", "655 ns", "1.030", "1.010-1.060", "1.03, met"], lines)
        self.assertIn(["C", "f", "2", "741 ns", "NumPy", "655 ns", "1.031", "1.011-1.061", "1.03, missed"], lines)
        self.assertIn(["C", "g", "2", "741 ns", "NumPy", "655 ns", "0.400", "0.380-0.430", "1.03, unsteady"], lines)
        self.assertIn("PyTorch is not measured: it is not installed.", lines)
        self.assertIn("Failed: in_host.py jax", lines)

    def test_predicted_steps_stand_beside_measured_ones(self):
        row = {"step": "2 stages", "measured_ms": 200.0, "variation": 0.02, "by_graph_ms": 190.0, "by_layers_ms": 180.0}
        lines = self.page("namespaces", networks=[{"processes": 2, "megabits": 100, "latency_us": 31.8,
                                                   "gigabytes_per_s": 0.0114, "rows": [row]}])
        self.assertIn(["2 stages", "100 Mbit/s", "32 us", "11.4 MB/s", "190 ms", "200 ms", "2%", "0.95", "180 ms",
                       "0.90"], lines)

    def test_draws_the_task_graph(self):
        lines = self.page("task_graph", benchmarks=[
            *self.row("Ours/chain/1000/1", 2000, node=2e-9, label="walk"),
            *self.row("Tbb/chain/1000/1", 60000, node=60e-9)], instructions={"chain": 11.08})
        self.assertIn(["chain 1k", "1", "2.00 ns", "4%", "walk", "60.0 ns", "0.033"], lines)
        self.assertIn("Instructions a node of a walk (callgrind): chain 11.08.", lines)
        self.assertIn("polyline", self.pictures["task_graph.svg"])

    def test_the_ceiling_of_an_operator_is_that_of_the_smallest_cache_that_holds_its_data(self):
        peak = {"flops": 1e9, "bytes_per_second": 1e9,
                "caches": [{"name": "L1", "capacity": 100, "bytes_per_second": 4e9}]}

        def of_peak(flops, moved, count):
            return summarize.of_peak({"flops": flops, "bytes": moved, "count": count}, 1e-6, peak)
        self.assertEqual(of_peak(500, 400, 1), "50% of FMA")
        self.assertEqual(of_peak(10, 400, 1), "40% of memory")
        self.assertEqual(of_peak(10, 400, 4), "10% of L1")
        self.assertEqual(summarize.of_peak({}, 1e-6, None), "")

    def test_compile_times_have_a_column_for_each_mode_and_goal(self):
        of = {"seconds": 1.0, "min": 0.9, "max": 1.2, "ratio": 0.5}
        lines = self.page("compile_time", peer={"name": "peer.hpp", **of}, rows={
            "a.hpp": {"compiled": {**of, "goal": "0.7x", "met": True},
                      "header_only": {**of, "goal": "0.4x", "met": False}},
            "src/*.cpp": {"compiled": of}})
        self.assertIn(["a.hpp", "1.00 s", "0.90-1.20", "0.50x", "0.7x, met",
                       "1.00 s", "0.90-1.20", "0.50x", "0.4x, missed"], lines)
        self.assertIn(["src/*.cpp", "1.00 s", "0.90-1.20", "0.50x", *[""] * 5], lines)


class Turns(unittest.TestCase):
    """Programs that answer as `opkit bench --serve`, and write their name to a log at each slice."""
    PROGRAM = """if 1:
        import sys
        log, name, ms, lives = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
        if not lives:
            sys.exit("there is no kernel")
        print('{"first_result_ms": 1}', flush=True)
        for turn, line in enumerate(sys.stdin):
            if turn == lives:
                sys.exit("out of memory")
            open(log, "a").write(name + line)
            print('{"median_ms": %g}' % (ms * (turn + 1)), flush=True)"""

    def test_each_runs_once_in_a_round(self):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log"
            commands = {name: [sys.executable, "-c", self.PROGRAM, log, name, ms, lives]
                        for name, ms, lives in (("a", 1, 9), ("b", 4, 9), ("none", 1, 0), ("c", 1, 1))}
            times, failed = turns.measure(commands, 3, 0.5, random.Random(0))
            slices = log.read_text().split()
        self.assertEqual(times, {"a": [1, 2, 3], "b": [4, 8, 12]})
        self.assertEqual(failed, {"none": "there is no kernel", "c": "out of memory"})
        self.assertEqual([sorted(slices[:3]), sorted(slices[3:5]), sorted(slices[5:])],
                         [["a0.5", "b0.5", "c0.5"], ["a0.5", "b0.5"], ["a0.5", "b0.5"]])

    def test_ratios_are_those_of_the_rounds(self):
        times = {"a": [1, 2, 30], "b": [2, 4, 20], "c": []}
        self.assertEqual(turns.ratio(times, "a", "b"), {"median": 0.5, "middle_half": [0.5, 1.25]})
        self.assertEqual(turns.ratio({"a": [1], "b": [4]}, "a", "b"), {"median": 0.25, "middle_half": [0.25, 0.25]})
        self.assertIsNone(turns.ratio(times, "a", "c"))
        self.assertIsNone(turns.ratio(times, "tuned", "a"))


if __name__ == "__main__":
    unittest.main()
