"""Runs the programs of docs/python.md, in a Python of its own that has loaded nothing yet."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(os.environ["OPKIT_TEST_SOURCE"])

# Runs the blocks in one namespace. A comment behind an expression that reads as a value of Python, or
# begins with "<", is the value's repr.
DRIVER = r'''
import ast, re, sys
page = open(sys.argv[1], encoding="utf-8").read()
names, checked = {}, 0
for found in re.finditer(r"^```python\n(.*?)^```$", page, re.M | re.S):
    code = found[1]
    lines = code.splitlines()
    for statement in ast.parse(code).body:
        text = "\n".join(lines[statement.lineno - 1:statement.end_lineno])
        if not isinstance(statement, ast.Expr):
            if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                first = min([statement.lineno] + [d.lineno for d in statement.decorator_list])
                text = "\n".join(lines[first - 1:statement.end_lineno])
            exec(compile(text, "docs/python.md", "exec"), names)
            continue
        value = eval(compile(ast.Expression(statement.value), "docs/python.md", "eval"), names)
        comment = lines[statement.end_lineno - 1][statement.end_col_offset:].strip().lstrip("# ")
        try:
            ast.literal_eval(comment)
        except (SyntaxError, ValueError):
            if not comment.startswith("<"):
                continue
        assert repr(value) == comment, f"{text}\nis {value!r}"
        checked += 1
print(checked)
'''


def test_the_programs_of_the_page_run(tmp_path):
    shutil.copytree(SOURCE / "examples" / "library", tmp_path / "examples" / "library")
    ran = subprocess.run([sys.executable, "-c", DRIVER, SOURCE / "docs" / "python.md"], cwd=tmp_path,
                         capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert int(ran.stdout.splitlines()[-1]) >= 5
    assert "my_gemm(a, b, *, alpha=1.0, out=None)" in ran.stdout  # of help()
    assert {"model.onnx", "report.html"} <= {file.name for file in tmp_path.iterdir()}
