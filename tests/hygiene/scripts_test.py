#!/usr/bin/env python3
"""Tests single_include/amalgamate.py and the gate of bench/compile_time/compile_time.py on small
trees of headers."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "single_include"), str(ROOT / "bench" / "compile_time")]
import amalgamate  # noqa: E402
import compile_time  # noqa: E402

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
        amalgamate.OUTPUT = self.root / "single" / "opkit" / "opkit.hpp"

    def write(self, files):
        for path, lines in files.items():
            target = self.root / "include" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(header(path, *lines))

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
        text = amalgamate.amalgamate().text()
        self.assertEqual(text.count("#include"), 1)
        self.assertEqual(text.count("#include <utility>"), 1)
        self.assertEqual(text.count("inline int One()"), 1)
        self.assertLess(text.index("inline int One()"), text.index("inline int Two()"))
        self.assertIn("// What opkit/base/two.hpp is.", text)
        self.assertNotIn("Four", text)
        self.assertEqual(text, amalgamate.amalgamate().text())

    def test_may_stand_beside_the_headers_in_any_order(self):
        self.write(self.SMALL)
        amalgamate.write_if_changed(amalgamate.OUTPUT, amalgamate.amalgamate().text())
        single, four = f'#include "{amalgamate.OUTPUT}"', '#include "opkit/ops/four.hpp"'
        for includes in ([single, four], [four, single]):
            self.assertEqual(self.run_program(*includes, "int main() { return Four(); }",
                                              include=[self.root / "include"]), 4)

    def test_forwarding_headers_stand_for_all_headers(self):
        self.write(self.SMALL)
        result = amalgamate.amalgamate()
        amalgamate.write_if_changed(amalgamate.OUTPUT, result.text())
        folder = self.root / "forwarding"
        (folder / "opkit").mkdir(parents=True)
        (folder / "opkit" / "stale.hpp").write_text("")
        amalgamate.write_forwarding(folder, set(result.visited))
        self.assertFalse((folder / "opkit" / "stale.hpp").exists())
        self.assertEqual((folder / "opkit/base/one.hpp").read_text(),
                         f'#include "{amalgamate.OUTPUT}"\n')
        self.assertIn("int Four()", (folder / "opkit/ops/four.hpp").read_text())
        self.assertEqual(self.run_program('#include "opkit/ops/four.hpp"',
                                          "int main() { return Four(); }", include=[folder]), 4)

    def test_keeps_conditional_includes_under_their_condition(self):
        self.write({"opkit/short.hpp": ["#define SHORT 1"],
                    "opkit/opkit.hpp": ["#ifndef OPKIT_NO_SHORT", '#include "opkit/short.hpp"',
                                        "#include <utility>", "#endif"]})
        lines = amalgamate.amalgamate().text().splitlines()
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
        for umbrella in (amalgamate.UMBRELLA, amalgamate.AUTHOR):
            name = "opkit.hpp" if umbrella == amalgamate.UMBRELLA else "op.hpp"
            amalgamate.write_if_changed(self.root / "single" / "opkit" / name,
                                        amalgamate.amalgamate(umbrella).text())
        includes = ["#include <opkit/opkit.hpp>", "#include <opkit/op.hpp>"]
        for order in (includes, includes[::-1]):
            self.assertEqual(self.run_program(*order, "int main() { return Both(); }",
                                              include=[self.root / "single"]), 5)
        self.assertEqual(self.run_program(includes[1], "int main() { return Author(); }",
                                          include=[self.root / "single"]), 3)

    def test_refuses_a_conditional_include_that_others_may_depend_on(self):
        self.write(self.SMALL | {"opkit/opkit.hpp": ["#if 1", '#include "opkit/base/two.hpp"',
                                                     "#endif", '#include "opkit/base/one.hpp"']})
        with self.assertRaisesRegex(SystemExit, "under a condition"):
            amalgamate.amalgamate()


class CompileTime(Trees):
    def budget(self):
        return {h: compile_time.measure(h, " ".join(CXX)) for h in compile_time.public_headers()}

    def violations(self, budget, same_compiler=True):
        return list(compile_time.violations(self.budget(), budget, same_compiler))

    def setUp(self):
        super().setUp()
        self.lines = [f"inline int a{i}();" for i in range(200)]
        self.write({"opkit/a.hpp": ["#include <cstddef>", *self.lines],
                    "opkit/b.hpp": ['#include "opkit/a.hpp"', "// No line.", "", "inline int b();"],
                    "opkit/interop/c.hpp": ["#include <third/party.h>"]})

    def test_counts_own_lines_and_names_standard_headers_of_all_that_is_included(self):
        budget = self.budget()
        self.assertEqual(set(budget), {"opkit/a.hpp", "opkit/b.hpp"})
        self.assertEqual((budget["opkit/a.hpp"]["own"], budget["opkit/b.hpp"]["own"]), (200, 201))
        self.assertEqual(budget["opkit/b.hpp"]["std"], ["cstddef"])
        self.assertGreater(budget["opkit/a.hpp"]["total"], 200)

    def test_allows_ten_percent_more_lines_and_no_more(self):
        budget = self.budget()
        self.write({"opkit/a.hpp": ["#include <cstddef>", *self.lines, *["inline int c();"] * 20]})
        self.assertEqual(self.violations(budget), [])
        self.write({"opkit/a.hpp": ["#include <cstddef>", *self.lines, *["inline int c();"] * 21]})
        found = self.violations(budget)
        self.assertIn("opkit/a.hpp: 221 lines of opkit, more than 10% over its budget of 200",
                      found[0])

    def test_names_new_standard_headers_even_where_one_includes_them_already(self):
        self.write({"opkit/a.hpp": ["#include <cstddef>", "#include <string>", *self.lines]})
        budget = self.budget()
        self.write({"opkit/a.hpp": ["#include <cstddef>", "#include <string>",
                                    "#include <string_view>", *self.lines]})
        self.assertEqual([v.split(".")[0] + v.split(".hpp")[1].split(".")[0]
                          for v in self.violations(budget)],
                         ["opkit/a now includes <string_view>",
                          "opkit/b now includes <string_view>"])

    def test_gates_all_lines_only_with_the_compiler_of_the_budget(self):
        budget = self.budget()
        budget["opkit/a.hpp"]["total"] //= 2
        self.assertIn("preprocessed lines", self.violations(budget)[0])
        self.assertEqual(self.violations(budget, same_compiler=False), [])

    def test_asks_for_a_budget_of_each_header(self):
        budget = self.budget()
        budget["opkit/gone.hpp"] = budget.pop("opkit/b.hpp")
        self.assertEqual([v.split(":")[0] for v in self.violations(budget)],
                         ["opkit/b.hpp has no budget",
                          "opkit/gone.hpp has a budget and does not exist"])


if __name__ == "__main__":
    unittest.main()
