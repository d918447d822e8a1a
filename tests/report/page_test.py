#!/usr/bin/env python3
"""Opens a report in Chromium: page_test.py PROGRAM [unittest's arguments]. PROGRAM is what
report_program.cpp is compiled to."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

import browser

SKIPPED = 77  # as tests/report/CMakeLists.txt tells CTest
program = None


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name) / "report.html"
        subprocess.run([program, cls.path], check=True)
        cls.page = browser.Page(cls.path)

    @classmethod
    def tearDownClass(cls):
        cls.page.__exit__()
        cls.folder.cleanup()

    def setUp(self):
        self.page.value("opkitReport.select(-1), opkitReport.showAll()")

    def text(self, element):
        return self.page.value(f"document.getElementById('{element}').textContent")

    def bar(self, name):
        count = self.page.value("opkitReport.bars")
        names = [self.page.value(f"opkitReport.nameOf({i})") for i in range(count)]
        return names.index(name)

    def click(self, name):
        place = self.page.value(f"opkitReport.place({self.bar(name)})")
        self.page.click(place["x"], place["y"])

    def test_loads_without_an_error_and_shows_every_span(self):
        names = [self.page.value(f"opkitReport.nameOf({i})")
                 for i in range(self.page.value("opkitReport.bars"))]
        self.assertEqual(sorted(names), sorted(
            ["Run", "Conv", "Mine", "Mine::user_code", "Mine::user_code", "Mine::Add",
             "</script><b>", "\ufffd\ufffd \u0001"]))
        self.assertIn("6 spans on 2 threads", self.text("summary"))
        self.assertGreaterEqual(self.page.value("opkitReport.drawn()"), len(names))
        self.assertEqual(self.page.errors, [])

    def test_a_click_on_a_bar_shows_its_details(self):
        self.click("Conv")
        details = self.text("details")
        for part in ("Conv", "conv_1", "300.0 µs", "float32[1, 3]", "eigen", "3.33 MFLOP/s", "Run"):
            self.assertIn(part, details)
        self.click("Mine::Add")
        self.assertIn("Mine::Add", self.text("details"))
        self.assertNotIn("conv_1", self.text("details"))
        self.assertEqual(self.page.errors, [])

    def test_a_zoom_brings_what_is_small(self):
        before = self.page.value("[opkitReport.view.from, opkitReport.view.to]")
        self.page.value(f"opkitReport.zoomTo({self.bar('Mine::Add')})")
        after = self.page.value("[opkitReport.view.from, opkitReport.view.to]")
        self.assertLess(after[1] - after[0], before[1] - before[0])
        self.click("Mine::Add")
        self.assertIn("Mine::Add", self.text("details"))

    def test_the_table_has_each_name_and_sorts(self):
        cells = "[...document.querySelectorAll('#rows tbody tr')].map(row => row.cells[0].textContent)"
        names = self.page.value(cells)
        self.assertEqual(names[0], "Run")  # by total
        self.assertEqual(len(names), 6)
        self.page.value("document.querySelector('#rows th button').click()")
        self.assertEqual(self.page.value(cells), self.page.value(f"{cells}.sort((a, b) => "
                                                                 "a.localeCompare(b))"))

    def test_the_roofline_has_the_operators_whose_work_is_known(self):
        # Conv: 1000 operations and 2000 bytes in 300 us.
        self.assertFalse(self.page.value("document.getElementById('roofline_section').hidden"))
        self.assertEqual(self.page.value("document.querySelectorAll('#roofline circle').length"), 1)
        self.assertIn("Conv: 0.00333 GFLOP/s, 0.00667 GB/s, 0.01 % of L1",
                      self.page.value("document.querySelector('#roofline circle').textContent"))
        # A roof for each cache and one for memory; the first goes on along the rate of arithmetic.
        self.assertEqual(self.page.value("document.querySelectorAll('#roofline .roof').length"), 3)

    def test_the_graph_is_coloured_by_time_and_a_click_selects_the_run(self):
        boxes = "[...document.querySelectorAll('#graph rect')]"
        self.assertEqual(self.page.value(f"{boxes}.length"), 3)
        # In layers: both first nodes above the last, which is as far right as their middle.
        tops = self.page.value(f"{boxes}.map(box => +box.getAttribute('y'))")
        self.assertEqual(tops[0], tops[1])
        self.assertGreater(tops[2], tops[0])
        self.assertEqual(self.page.value(f"{boxes}.map(box => box.classList.contains('critical'))"),
                         [True, False, True])
        heat = self.page.value(f"{boxes}.map(box => box.dataset.heat)")
        self.assertEqual(heat, ["100", "33", "67"])  # of the longest
        self.assertEqual(self.page.value("document.querySelectorAll('#graph path').length"), 2)
        self.page.value(f"{boxes}[0].dispatchEvent(new MouseEvent('click'))")
        self.assertIn("conv_1", self.text("details"))
        self.assertEqual(self.page.errors, [])

    def test_the_peak_of_the_planned_memory_and_its_owners(self):
        self.assertIn("192 B at 400.0 µs of the run, in an arena of 256 B", self.text("peak"))
        rows = self.page.value("[...document.querySelectorAll('#owners tbody tr')]"
                               ".map(row => [...row.cells].map(cell => cell.textContent))")
        self.assertEqual(rows, [["b = c", "</script><b> (odd)", "96 B", "50 %"],
                                ["a", "Conv (conv_1)", "64 B", "33 %"],
                                ["scratch", "</script><b> (odd)", "32 B", "17 %"]])
        self.assertIn("V", self.page.value(
            "document.querySelector('#plan .area').getAttribute('d')"))

    def rows(self, table):
        return self.page.value(f"[...document.querySelectorAll('#{table} tbody tr')]"
                               ".map(row => [...row.cells].map(cell => cell.textContent))")

    def test_the_waits_of_processes_for_each_other(self):
        self.assertFalse(self.page.value("document.getElementById('waits_section').hidden"))
        self.assertEqual(self.rows("processes"), [["1", "800.0 µs", "600.0 µs", "75 %"],
                                                  ["0", "1.000 ms", "250.0 µs", "25 %"]])
        self.assertEqual(self.rows("waits"), [
            ["Recv (</script><b>)", "1", "0", "500.0 µs", "450.0 µs"],
            ["AllReduce (s)", "0", "1", "250.0 µs", "0 ns"]])

    def test_what_partitioners_took_and_why_the_rest_stays(self):
        self.assertFalse(self.page.value("document.getElementById('partition_section').hidden"))
        self.assertEqual(self.text("partition_note"), "2 of 5 nodes taken, in 1 subgraph")
        self.assertEqual(self.rows("subgraphs"), [  # by flops
            ["1", "Chain (Chain0)", "chains", "2", "Op (first), Op (second)", "x", "y, z", "2 KiB",
             "64 B", "1,234,567", "1 value of open shape"],
            ["0", "Chain", "chains", "1", "Op (third)", "x", "y, z", "2 KiB", "64 B", "10",
             "it is no chain"]])
        self.assertEqual(self.rows("staying"), [  # by the number of nodes
            ["chains", "unsupported", "2", "Op 3, Op (</script><b>)"],
            ["chains", "it is no chain", "1", "Op (third)"], ["other", "too large", "1", "Op 3"]])

    def test_names_are_text_whatever_they_hold(self):
        self.assertEqual(self.page.value("document.querySelectorAll('b').length"), 0)
        self.click("</script><b>")
        self.assertIn("</script><b>", self.text("details"))

    def test_a_search_finds_names_and_nodes(self):
        self.page.value("(() => { const search = document.getElementById('search');"
                        "search.value = 'CONV_'; search.dispatchEvent(new Event('input')); })()")
        self.assertEqual(self.text("found"), "1 found")


if __name__ == "__main__":
    program = sys.argv.pop(1)
    if not browser.find():
        print("skipped: no Chromium to open the report in")
        sys.exit(SKIPPED)
    unittest.main()
