#!/usr/bin/env python3
"""Adds up ctest's JUnit files and prints what failed, what was skipped and the closing line.

A doctest program counts as its cases, any other ctest entry as one. A skipped test prints a
line `skipped: <reason>`. It fails the run unless the reason is "no CUDA device" or tests/skips.txt
names the test. A reason that begins with "in an emulator" is of a case that test_main.cpp has left
out. --failed adds failures from before ctest. With --filtered the programs ran only the cases of one
folder, so the other cases do not count as skipped.
Usage: summary.py [--filtered] [--failed=MESSAGE]... build/*/junit.xml
"""
import pathlib
import re
import sys
import xml.etree.ElementTree as ET

TOTALS = re.compile(
    r"^\[doctest\] test cases: +(\d+) \| +(\d+) passed \| +(\d+) failed \| +(\d+) skipped", re.M)
CASE = re.compile(r"^(?:TEST CASE|  SCENARIO|  Scenario|SCENARIO): *(.*)$")
SKIPPED = re.compile(r"(?:^|MESSAGE: )skipped: *(.+?)\s*$")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
ALWAYS_ALLOWED = "no CUDA device"


def allowed_skips():
    """The lines `name: reason`; either part may hold a colon."""
    lines = (pathlib.Path(__file__).parent / "skips.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def skips_in(output, entry):
    """{name of the test: reason}; the name is the doctest case's, or the ctest entry's."""
    found, name = {}, entry
    for line in output.splitlines():
        if case := CASE.match(line):
            name = case[1].strip()
        elif said := SKIPPED.search(line):
            found[name] = said[1].strip('" ')
    return found


class Tally:
    def __init__(self, filtered):
        self.passed, self.failed, self.skipped, self.allowed = 0, 0, 0, allowed_skips()
        self.filtered = filtered

    def add(self, configuration, case):
        entry, status = case.get("name"), case.get("status")
        output = COLOUR.sub("", case.findtext("system-out") or "")
        where = f"{configuration}/{entry}"
        if status == "disabled":
            return self.fail(f"{where}: disabled", 1)
        totals = TOTALS.search(output)
        if totals:
            count, good, bad, decorated = map(int, totals.groups())
            if self.filtered:
                decorated = 0
        else:
            count, good, bad, decorated = 1, int(status == "run"), int(status != "run"), 0
        if count == 0 and decorated == 0:
            return self.fail(f"{where}: holds no test case", 1)
        for name, reason in skips_in(output, entry).items():
            if reason.startswith("in an emulator"):
                decorated = max(decorated - 1, 0)
            else:  # doctest counts a case that returned early as passed; ctest may not.
                good, bad = (good - 1, bad) if good else (good, bad - 1)
            if reason == ALWAYS_ALLOWED or any(
                    line.startswith(name + ": ") for line in self.allowed):
                self.skipped += 1
                print(f"skipped: {where}: {name}: {reason}")
            else:
                self.fail(f"{where}: {name}: skipped ({reason}), but tests/skips.txt does not list it", 1)
        if decorated and "test case CRASHED" in output:
            self.fail(f"{where}: {decorated} cases did not run, after the crash of one", decorated)
        elif decorated:
            self.fail(f"{where}: {decorated} cases skipped by a decorator; print a line "
                      "`skipped: <reason>` instead", decorated)
        if status != "run" and totals and not bad:
            self.fail(f"{where}: every case passed, and the program failed", 1)
        if bad > 0:
            self.fail(f"{where}: {bad} failed" if totals else f"{where}: failed", bad)
        self.passed += max(good, 0)

    def fail(self, message, count):
        self.failed += count
        print(f"FAILED: {message}")


def main(arguments):
    tally = Tally(filtered="--filtered" in arguments)
    for argument in arguments:
        if argument == "--filtered":
            continue
        if argument.startswith("--failed="):
            tally.fail(argument.removeprefix("--failed="), 1)
            continue
        configuration = pathlib.Path(argument).parent.name
        cases = list(ET.parse(argument).getroot().iter("testcase"))
        for case in cases:
            tally.add(configuration, case)
        if not cases:
            tally.fail(f"{configuration}: no test was run", 1)
    if tally.passed + tally.failed == 0:
        tally.fail("no test was run", 1)
    if tally.skipped:
        print(f"{tally.skipped} skipped")
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
