#!/usr/bin/env python3
"""Compiles a file that must not compile, and looks for the sentences that the compiler must print.

The comment lines at the beginning of a file are its expectations:
  // expect: <sentence>     does not compile, and the compiler prints the sentence (several: each)
  // expect-first: <sentence>   the same, and it is in the first error, before any other
  // expect-shown: <words>  the same, in a line of a header that the compiler shows
  // one-error              there is no other error
  // compiles               it compiles: a twin without the mistake, which shows that only the mistake is the cause
  // flags: <flags>         are added to the compiler's

  run.py FILE -- COMPILER FLAGS...
  run.py --self-test COMPILER
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path


def check_flags(compiler, shown):
    """The flags for a check with every error in its output, but only if asked for with source lines,
    which may hold the sentence."""
    if Path(compiler[0]).name == "nvcc":
        return ["--ptx", "-o", os.devnull]
    version = subprocess.run([compiler[0], "--version"], capture_output=True, text=True).stdout
    if "clang" in version:
        return ["-fsyntax-only", "-ferror-limit=0", *(["-fno-caret-diagnostics"] if not shown else [])]
    return ["-fsyntax-only", *(["-fno-diagnostics-show-caret"] if not shown else [])]


def verdict(path, compiler):
    """None when the file does what it says, else what was expected and found."""
    lines = Path(path).read_text().splitlines()
    head = [line[3:].strip() for line in lines[:next((i for i, line in enumerate(lines)
                                                      if not line.startswith("//")), len(lines))]]
    expected = [line.removeprefix("expect:").strip() for line in head if line.startswith("expect:")]
    first = [line.removeprefix("expect-first:").strip() for line in head
             if line.startswith("expect-first:")]
    shown = [line.removeprefix("expect-shown:").strip() for line in head
             if line.startswith("expect-shown:")]
    expected += first + shown
    flags = " ".join(line.removeprefix("flags:") for line in head if line.startswith("flags:"))
    if bool(expected) == ("compiles" in head) or not all(expected):
        return "begins with neither `// expect: <sentence>` nor `// compiles`, or with both"
    command = [*compiler, *check_flags(compiler, shown), *flags.split(), str(path)]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         errors="replace", env=os.environ | {"LC_ALL": "C"})
    if not expected:
        return f"expected to compile, but:\n{run.stdout}" if run.returncode else None
    if run.returncode == 0:
        return f"compiles; expected an error: {expected[0]}"
    output = re.sub(r"\s+", " ", run.stdout)  # a sentence may be broken into lines
    earliest = re.search(r" error: (.*?)(?= error: |$)", output)
    if first and not (earliest and first[0] in earliest[1]):
        return f"the compiler does not say first: {first[0]}\nbut:\n{run.stdout}"
    if "one-error" in head and len(re.findall(r" error: ", output)) != 1:
        return f"the compiler has more than one error to tell:\n{run.stdout}"
    missing = [sentence for sentence in expected if sentence not in output]
    return f"the compiler does not say: {missing[0]}\nbut:\n{run.stdout}" if missing else None


def self_test(compiler):
    cases = {  # file: a part of the verdict, or None
        "// expect: too small\nstatic_assert(1 > 2, \"the type is too small\");": None,
        "// expect: too small\n// expect: static\nstatic_assert(1 > 2, \"too small\");": None,
        "// expect: too small\nstatic_assert(1 < 2, \"too small\");": "compiles; expected an error",
        "// expect: too small\nint x = y;  // too small": "does not say: too small",
        "// expect: too\n// expect: big\nstatic_assert(false, \"too small\");": "does not say: big",
        "// expect-first: small\nstatic_assert(false, \"too small\"); int x = y;": None,
        "// expect-first: small\nint x = y; static_assert(false, \"too small\");":
            "does not say first: small",
        "// expect-first:\nint x = y;": "begins with neither",
        "// expect: small\n// one-error\nstatic_assert(false, \"small\");": None,
        "// expect: small\n// one-error\nstatic_assert(false, \"small\"); int x = y;":
            "more than one error",
        "// expect-shown: // of z\nstruct S;  // of z\nvoid f(S& s) { s.x(); }": None,
        "// expect-shown: // of y\nstruct S;  // of z\nvoid f(S& s) { s.x(); }":
            "does not say: // of y",
        "// compiles\nint x = 1;": None,
        "// compiles\nint x = y;": "expected to compile",
        "// compiles\n// flags: -DY=1\nint x = Y;": None,
        "// expect:\nint x = y;": "begins with neither",
        "int x = y;": "begins with neither",
    }
    for text, expected in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "case.cpp"
            path.write_text(text + "\n")
            found = verdict(path, [*compiler, "-std=c++20"])
        if (found is None) != (expected is None) or (expected and expected not in found):
            return f"of\n{text}\nexpected the verdict {expected!r}, found {found!r}"
    return None


if __name__ == "__main__":
    if sys.argv[1] == "--self-test":
        problem = self_test(sys.argv[2:])
    else:
        problem = verdict(sys.argv[1], sys.argv[3:])
    sys.exit(f"{sys.argv[1]}: {problem}" if problem else 0)
