#!/usr/bin/env python3
"""Tests that docs/operators.md agrees with the schemas of the operators.

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
operators = ["## " + text for text in ("\n" + listed).split("\n## ")[1:]]
cluster = [text for text in operators if text.startswith("## opkit.cluster.")]
standard = [text for text in operators if text not in cluster]
if len(standard) < 90:
    sys.exit(f"only {len(standard)} operators are registered, expected 90 and more")


def links(texts):
    names = [text.splitlines()[0].lstrip("# ") for text in texts]
    return " · ".join(f"[{name}](#{name.lower()})" for name in names)


text = f"""# Operators' reference

Generated from the operators' schemas by `./dev docs`. The {len(standard)} standard operators have the names, attributes
and semantics of ONNX, opset 21; `tests/conformance` runs its node corpus against them. The {len(cluster)} operators of
[several processes](#operators-of-several-processes) are those of MPI.

{links(standard)}

{"".join(part.rstrip() + chr(10) * 2 for part in standard)}## Operators of several processes

By these operators the processes of a graph communicate ([Several processes](cluster.md)).

{links(cluster)}

{(chr(10) * 2).join("#" + part.rstrip() for part in cluster)}
"""
if "--write" in sys.argv:
    page.write_text(text)
elif page.read_text() != text:
    diff = list(difflib.unified_diff(page.read_text().splitlines(), text.splitlines(), "committed",
                                     "generated", lineterm="", n=1))
    print("\n".join(diff[:30]))
    sys.exit("docs/operators.md is stale: run ./dev docs and commit the result")
