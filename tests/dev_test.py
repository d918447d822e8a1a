"""What ./dev says of a command that it cannot run, before it installs or compiles anything."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

DEV = pathlib.Path(__file__).resolve().parents[1] / "dev"


class Mistakes(unittest.TestCase):
    def says(self, arguments, *sentences, cwd=None):
        run = subprocess.run([DEV, *arguments], capture_output=True, text=True, timeout=60, cwd=cwd)
        self.assertEqual(run.returncode, 1)
        self.assertEqual(run.stdout, "")
        self.assertRegex(run.stderr, r"\Adev: [^\n]+\n\Z")
        for sentence in sentences:
            self.assertIn(sentence, run.stderr)

    def test_commands(self):
        self.says(["dmeo"], "there is no command 'dmeo'; did you mean 'demo'? (demo test ")
        self.says(["zzz"], "there is no command 'zzz' (demo test ")

    def test_what_to_test(self):
        self.says(["test", "bsae"], "there is no folder tests/bsae; did you mean 'base'? (", "op ops")
        self.says(["test", "graph/memroy"], "tests/graph/memroy; did you mean 'graph/memory'? (")
        self.says(["test", "backend"], "tests/backend; did you mean 'backends'? (")
        self.says(["test", "arm6"], "tests/arm6; did you mean 'arm64'? (")
        self.says(["test", "--al"], "test has no option '--al'; did you mean '--all'?")
        self.says(["test", "base", "core"], "test takes one folder, not 'base core'")

    def test_presets(self):
        self.says(["build", "gc"], "there is no preset 'gc'; did you mean 'gcc'? (gcc clang ")
        self.says(["build", "arm"], "there is no preset 'arm'; did you mean 'arm64'? (gcc ", " arm64 ")
        self.says(["cli", "x"], "cli takes no arguments")

    def test_stress_and_fuzz_targets(self):
        self.says(["stress", "--minutes", "x"], "stress takes --minutes NUMBER, not 'x'")
        self.says(["stress", "5"], "stress takes --minutes M and --seed S, not '5'")
        self.says(["fuzz", "npi"], "no fuzz target's name holds 'npi'; did you mean 'npy'? (")
        self.says(["fuzz", "a", "b"], "fuzz takes one name, not 'a b'")

    def test_benchmarks(self):
        self.says(["bench", "dynamik"], "no benchmark's name holds 'dynamik'; did you mean "
                  "'dynamic'? (engine/dynamic ", "graph/executor", "models models_eigen compile_time)")
        self.says(["bench", "a", "b"], "bench takes one filter, not 'a b'")

    def test_what_the_demo_looks_at(self):
        with tempfile.TemporaryDirectory() as folder:
            self.says(["demo", "pics"], "there is no folder 'pics'", cwd=folder)
            (pathlib.Path(folder) / "pics").mkdir()  # paths are the caller's
            self.says(["demo", "pics", "pics/a.png"], "there is no file 'pics/a.png'", cwd=folder)
        self.says(["demo", "a", "b", "c"], "demo takes a folder and a picture, not 'a b c'")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
