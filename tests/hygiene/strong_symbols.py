#!/usr/bin/env python3
"""Checks that object files define only symbols that any other object may define too, as inline functions and
templates are. So two units of one program may include their headers.

usage: strong_symbols.py OBJECT...
"""
import subprocess
import sys

WEAK = "uvVwW"  # the letters of nm for weak and unique symbols


def strong(path):
    """The lines of nm for the other symbols that the object defines for all units."""
    lines = subprocess.run(["nm", "--demangle", "--defined-only", "--extern-only", path], check=True,
                           capture_output=True, text=True).stdout.splitlines()
    if not lines:
        return ["no symbol"]
    return [line for line in lines if line.split()[1] not in WEAK]


found = [f"{path} defines {line}" for path in sys.argv[1:] for line in strong(path)]
print("\n".join(found) or f"{len(sys.argv) - 1} objects define only weak symbols")
sys.exit(bool(found) or len(sys.argv) < 2)
