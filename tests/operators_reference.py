#!/usr/bin/env python3
"""Tests that docs/operators.md agrees with the schemas of the standard operators.

usage: operators_reference.py ROOT OPKIT [--write], OPKIT being the command-line program. Without
--write, exits with 1 and a short diff when the page is stale. The page leaves out the kernels of
oneDNN, which a build may lack.
"""
import difflib
import pathlib
import subprocess
import sys

page = pathlib.Path(sys.argv[1]) / "docs" / "operators.md"
listed = subprocess.run([sys.argv[2], "ops", "--all"], check=True, text=True,
                        capture_output=True).stdout.replace(", cpu (onednn)", "")
names = [line[3:] for line in listed.splitlines() if line.startswith("## ")]
if len(names) < 90:
    sys.exit(f"only {len(names)} operators are registered, expected 90 and more")
text = f"""# Operators' reference

The {len(names)} standard operators, generated from their schemas by `./dev docs`. Names, attributes and
semantics are those of ONNX, opset 21; `tests/conformance` runs its node corpus against them.

{" · ".join(f"[{name}](#{name.lower()})" for name in names)}

{listed}"""
if "--write" in sys.argv:
    page.write_text(text)
elif page.read_text() != text:
    diff = list(difflib.unified_diff(page.read_text().splitlines(), text.splitlines(), "committed",
                                     "generated", lineterm="", n=1))
    print("\n".join(diff[:30]))
    sys.exit("docs/operators.md is stale: run ./dev docs and commit the result")
