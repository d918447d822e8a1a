"""Tests the messages of ./dev for commands that it cannot run, before it compiles anything, and the commands
that install packages."""
import os
import pathlib
import shutil
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
        self.says(["cli", "x"], "cli takes --without-onednn, not 'x'")
        self.says(["cli", "--without-onednn", "x"], "cli takes --without-onednn, not 'x'")
        self.says(["docs-site", "x"], "docs-site takes --serve, not 'x'")

    def test_stress_and_fuzz_targets(self):
        self.says(["stress", "--minutes", "x"], "stress takes --minutes NUMBER, not 'x'")
        self.says(["stress", "5"], "stress takes --minutes M and --seed S, not '5'")
        self.says(["fuzz", "npi"], "no fuzz target's name contains 'npi'; did you mean 'npy'? (")
        self.says(["fuzz", "a", "b"], "fuzz takes one name, not 'a b'")

    def test_benchmarks(self):
        self.says(["bench", "dynamik"], "no benchmark's name contains 'dynamik'; did you mean "
                  "'dynamic'? (engine/dynamic ", "graph/executor",
                  "models models_eigen half operators tuning compile_time)")
        self.says(["bench", "a", "b"], "bench takes one filter, not 'a b'")
        self.says(["bench", "--without-onednn", "dynamik"], "no benchmark's name contains 'dynamik'")

    def test_what_the_demo_looks_at(self):
        with tempfile.TemporaryDirectory() as folder:
            self.says(["demo", "pics"], "there is no folder 'pics'", cwd=folder)
            (pathlib.Path(folder) / "pics").mkdir()  # the caller gives paths relative to its folder
            self.says(["demo", "pics", "pics/a.png"], "there is no file 'pics/a.png'", cwd=folder)
        self.says(["demo", "a", "b", "c"], "demo takes a folder and a picture, not 'a b c'")

    def test_what_is_set_up(self):
        self.says(["setup", "clii"], "setup takes a command, not 'clii'; did you mean 'cli'? (demo test cli ")
        self.says(["setup", "build", "gc"], "there is no preset 'gc'; did you mean 'gcc'? (gcc clang ")
        self.says(["setup", "cli", "x"], "cli takes --without-onednn, not 'x'")


class Packages(unittest.TestCase):
    """A machine with a shell and no compiler. Its apt-get writes down its arguments."""
    CLI = ["g++", "cmake", "ninja-build", "nlohmann-json3-dev", "libcli11-dev"]

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for program in ("bash", "cat", "dirname", "env", "find", "grep", "mkdir", "nproc", "realpath", "sed",
                        "sort", "uniq"):
            (self.folder / program).symlink_to(shutil.which(program))
        self.program("uname", "echo Linux x86_64")
        self.program("sudo", 'shift; [ "$1" = true ] || exec "$@"')
        self.program("apt-cache", "exit 1")
        self.program("apt-get", f'echo "$@" >> "{self.folder}/asked"; [ "$1" != install ] || exit "$APT_STATUS"')

    def program(self, name, text):
        (self.folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.folder / name).chmod(0o755)

    def dev(self, *arguments, installs=True):
        """Runs it; returns the words of the line by which it asked apt-get to install, or []."""
        environment = {**os.environ, "PATH": str(self.folder), "APT_STATUS": "0" if installs else "1"}
        self.ran = subprocess.run([DEV, *arguments], capture_output=True, text=True, timeout=60, env=environment)
        asked = self.folder / "asked"
        lines = asked.read_text().splitlines() if asked.exists() else []
        return next((line.split() for line in lines if line.startswith("install ")), [])

    def test_most_commands_name_what_to_run_and_install_nothing(self):
        for arguments in (["cli"], ["build", "asan"], ["bench", "dynamic"], ["differential"], ["stress"],
                          ["fuzz", "npy"], ["format"], ["tidy"], ["docs"], ["docs-site"],
                          ["single-include"]):
            with self.subTest(arguments):
                self.assertEqual(self.dev(*arguments), [])
                self.assertFalse((self.folder / "asked").exists())
                self.assertEqual((self.ran.returncode, self.ran.stdout), (1, ""))
                self.assertRegex(self.ran.stderr, rf"\Adev: {arguments[0]} needs packages that are not installed "
                                 rf"\([^\n]+\): run \./dev setup {' '.join(arguments)}\n\Z")
        self.dev("cli")
        self.assertIn(f"({' '.join(self.CLI)} python3 python3-pip)", self.ran.stderr)
        self.dev("cli", "--without-onednn")
        self.assertIn(f"({' '.join(self.CLI)})", self.ran.stderr)

    def test_setup_prints_and_installs_what_a_command_needs(self):
        words = self.dev("setup", "cli")
        self.assertEqual(words[-7:], [*self.CLI, "python3", "python3-pip"])
        self.assertEqual((self.ran.returncode, self.ran.stderr), (0, ""))
        self.assertIn("installing g++ cmake ninja-build nlohmann-json3-dev libcli11-dev", self.ran.stdout)
        self.assertNotIn("compiling", self.ran.stdout)

    def test_setup_without_a_command_is_for_test(self):
        self.assertIn("doctest-dev", self.dev("setup"))
        self.assertEqual(self.ran.returncode, 0)

    def test_a_report_is_tested_with_node_and_profiles_too(self):
        for folder in ("report", "profile"):
            self.assertIn("nodejs", self.dev("setup", "test", folder))
            (self.folder / "asked").unlink()
        self.assertNotIn("nodejs", self.dev("setup", "test", "base"))

    def test_demo_and_test_install_themselves(self):
        for arguments in (["demo"], ["test"], ["test", "base"]):
            with self.subTest(arguments):
                self.assertIn("cmake", self.dev(*arguments, installs=False))
                self.assertEqual(self.ran.returncode, 1)
                self.assertIn("dev: apt-get could not install", self.ran.stderr)
                (self.folder / "asked").unlink()

    def test_without_apt_setup_names_the_packages(self):
        (self.folder / "apt-get").unlink()
        self.dev("setup", "cli")
        self.assertEqual(self.ran.returncode, 1)
        self.assertIn("sudo apt-get install g++ cmake", self.ran.stderr)


class Onednn(unittest.TestCase):
    """./dev cli in a copy of the scripts, on a machine with every package. It has oneDNN only if $INSTALLED is 1. Its
    cmake writes down its arguments and finds oneDNN there or in the folder that it is given. Its python3 fetches
    wheels, or fails."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        shutil.copy(DEV, self.folder)
        shutil.copytree(DEV.parent / "tools" / "dev", self.folder / "tools" / "dev")
        for name, text in {
                "uname": "echo Linux x86_64", "ninja": "", "g++": '[ $INSTALLED = 1 ] || ! grep -q DNNL_VERSION_MAJOR',
                "ccache": "", "python3": f'echo "$@" >> "{self.folder}/fetched"; [ $CAN_FETCH = 1 ] || [ $2 = pip ]',
                "cmake": f'echo "$@" >> "{self.folder}/configured"\n'
                         'uses="-- opkit: opkit::onednn uses dnnl"; case "$INSTALLED $*" in '
                         '*dnnl=ON*) ;; *DATA_DIR=/*) echo "$uses 3.2.0 (wheel)";; 1*) echo "$uses 3.9.1";; esac',
        }.items():
            (self.folder / name).write_text(f"#!/bin/sh\n{text}\n")
            (self.folder / name).chmod(0o755)

    def cli(self, *arguments, can_fetch="1", installed="0"):
        """Runs ./dev cli; returns cmake's arguments and its own output."""
        environment = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}", "CAN_FETCH": can_fetch,
                       "INSTALLED": installed}
        ran = subprocess.run([self.folder / "dev", "cli", *arguments], capture_output=True, text=True, timeout=60,
                             env=environment)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return (self.folder / "configured").read_text(), ran.stdout

    def test_takes_the_wheel(self):
        configured, said = self.cli()
        self.assertRegex(configured, r"-DOPKIT_ONEDNN_DATA_DIR=/\S+ -DCMAKE_DISABLE_FIND_PACKAGE_dnnl=OFF")
        self.assertIn("\nwith oneDNN 3.2.0 (wheel)\n", said)

    def test_takes_an_installed_one_first(self):
        configured, said = self.cli(installed="1")
        self.assertFalse((self.folder / "fetched").exists())
        self.assertIn("-DOPKIT_ONEDNN_DATA_DIR= -DCMAKE_DISABLE_FIND_PACKAGE_dnnl=OFF", configured)
        self.assertIn("\nwith oneDNN 3.9.1 (installed)\n", said)

    def test_goes_on_without_a_wheel(self):
        configured, said = self.cli(can_fetch="0")
        self.assertIn("onednn_cpu_gomp", (self.folder / "fetched").read_text())
        self.assertIn("-DOPKIT_ONEDNN_DATA_DIR= -DCMAKE_DISABLE_FIND_PACKAGE_dnnl=OFF", configured)
        self.assertIn("\nwithout oneDNN: version 3 is not installed, and its wheel could not be had\n", said)

    def test_leaves_it_out_if_asked(self):
        configured, said = self.cli("--without-onednn", installed="1")
        self.assertFalse((self.folder / "fetched").exists())
        self.assertIn("-DOPKIT_ONEDNN_DATA_DIR= -DCMAKE_DISABLE_FIND_PACKAGE_dnnl=ON", configured)
        self.assertIn("\nwithout oneDNN, as asked\n", said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
