#!/usr/bin/env python3
"""Tests data/fetch.py on wheels that this test makes and pip finds in a folder."""
import contextlib
import hashlib
import io
import json
import os
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "data"))
import fetch  # noqa: E402


def make_wheel(folder, files):
    """A wheel of the package `tiny`; returns its SHA-256."""
    info = "tiny-1.0.dist-info"
    files = files | {
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": ""}
    path = folder / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Fetch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.index, self.data = self.root / "index", self.root / "data"
        self.index.mkdir()
        self.before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(self.before)))
        os.environ |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.index),
                       "PIP_CONFIG_FILE": os.devnull}
        self.addCleanup(setattr, fetch, "HERE", fetch.HERE)
        fetch.HERE = self.root
        digest = make_wheel(self.index, {"tiny/a.txt": "a", "tiny/deep/b.txt": "b", "tiny/c.py": ""})
        self.pin(digest, ["tiny/*.txt"])

    def pin(self, digest, files):
        wheel = {"version": "1.0", "python": "3.11", "sha256": digest, "files": files}
        self.digest = digest
        (self.root / "wheels.json").write_text(json.dumps({"tiny": wheel}))

    def run_fetch(self, *arguments):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            code = fetch.main([*(arguments or ["tiny"]), "--to", str(self.data)])
        return code, output.getvalue()

    def files(self):
        return sorted(str(path.relative_to(self.data)) for path in self.data.rglob("*")
                      if path.is_file())

    def test_unpacks_the_files_wanted_and_says_so_in_a_line(self):
        self.assertEqual(self.run_fetch("tiny", "--check")[0], 1)
        code, output = self.run_fetch()
        self.assertEqual(code, 0)
        self.assertRegex(output, r"^fetching tiny 1\.0: [\d.]+ MiB, 2 files to .*tiny-1\.0\n$")
        self.assertEqual(self.files(), ["tiny-1.0/.fetched", "tiny-1.0/tiny/a.txt",
                                        "tiny-1.0/tiny/deep/b.txt"])
        self.assertEqual(self.run_fetch("tiny", "--check")[0], 0)

    def test_fetches_once(self):
        self.run_fetch()
        (self.index / "tiny-1.0-py3-none-any.whl").unlink()
        self.assertEqual(self.run_fetch(), (0, ""))

    def test_fetches_again_when_other_files_or_another_wheel_are_pinned(self):
        self.run_fetch()
        self.pin(self.digest, ["tiny/c.py"])
        self.run_fetch()
        self.assertEqual(self.files(), ["tiny-1.0/.fetched", "tiny-1.0/tiny/c.py"])
        self.pin(make_wheel(self.index, {"tiny/c.py": "new"}), ["tiny/c.py"])
        self.run_fetch()
        self.assertEqual((self.data / "tiny-1.0/tiny/c.py").read_text(), "new")

    def test_refuses_a_wheel_of_another_hash(self):
        self.pin("0" * 64, ["tiny/*"])
        with self.assertRaisesRegex(fetch.Failure, "is not the wheel that is pinned.*expected 0{64}"):
            self.run_fetch()
        self.assertEqual(self.files(), [])

    def test_says_what_is_missing_when_no_index_has_it(self):
        (self.index / "tiny-1.0-py3-none-any.whl").unlink()
        with self.assertRaisesRegex(fetch.Failure, "cannot download tiny 1.0: pip says '.*PIP_FIND_"):
            self.run_fetch()
        self.assertEqual(self.files(), [])

    def test_refuses_a_wheel_without_the_files_and_an_unknown_package(self):
        self.pin(self.digest, ["tiny/a.txt", "tiny/none"])
        with self.assertRaisesRegex(fetch.Failure, "has no file tiny/none"):
            self.run_fetch()
        self.assertEqual(self.files(), [])
        with self.assertRaisesRegex(fetch.Failure, "no package 'huge', only tiny"):
            self.run_fetch("huge")


if __name__ == "__main__":
    unittest.main()
