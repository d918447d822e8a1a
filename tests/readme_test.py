#!/usr/bin/env python3
"""The README says what is true: its C++ is in the examples, its commands run.

usage: readme_test.py ROOT. A fence after `<!-- examples/FILE -->` must stand in that file word for
word; one after `<!-- run -->` must exit with 0, run in a copy of what it needs.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

root = pathlib.Path(sys.argv[1])
failed = []
checked = 0
pattern = re.compile(r"<!-- (.+?) -->\n```\w+\n(.*?)```", re.S)
for what, text in pattern.findall((root / "README.md").read_text()):
    checked += 1
    if what == "run":
        with tempfile.TemporaryDirectory() as folder:
            for name in ("examples", "single_include"):
                shutil.copytree(root / name, pathlib.Path(folder) / name)
            if subprocess.run(["sh", "-ec", text], cwd=folder).returncode != 0:
                failed.append(f"this command of the README fails:\n{text}")
    elif text not in (root / what).read_text():
        failed.append(f"README.md shows code that is not in {what}:\n{text}")
for path in re.findall(r"\]\(([\w./]+)\)", (root / "README.md").read_text()):
    checked += 1
    if not (root / path).exists():
        failed.append(f"README.md links to {path}, which does not exist")
if checked < 5:
    failed.append(f"only {checked} fences and links found: has the README's form changed?")
print("\n".join(failed) or f"{checked} fences and links of the README are right")
sys.exit(bool(failed))
