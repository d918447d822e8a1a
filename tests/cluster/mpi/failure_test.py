#!/usr/bin/env python3
"""Runs jobs in which process 1 fails, and checks that they end and what the other processes say.

Usage: failure_test.py MPIRUN ARGUMENT... PROGRAM
"""
import os
import re
import subprocess
import sys

SECONDS_TO_END = 30  # a job that hangs fails the test
failures = 0


def job(processes, how, shell=""):
    """Runs the program, by a shell script with the program as $0 and `how` as $1 if one is given."""
    command = [*sys.argv[1:-1], "-n", str(processes), *(["sh", "-c", shell] if shell else []),
               sys.argv[-1], how]
    try:
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             timeout=SECONDS_TO_END, errors="replace")
        return run.returncode, run.stdout
    except subprocess.TimeoutExpired as late:
        return None, f"has not ended after {SECONDS_TO_END} s\n{late.stdout}"


def expect(condition, what, output):
    global failures
    if not condition:
        failures += 1
        print(f"FAILED: {what}. The job printed:\n{output}")


def errors(output):
    """The Errors of the processes, by process. Two processes may print on one line."""
    return {int(process): text for process, text in
            re.findall(r"process (\d+) after [0-9.e-]+ s: (.*?)(?=process \d+ after|$)", output, re.M)}


code, output = job(4, "killed")
expect(code not in (0, None), "the job of a killed process ends with an error code", output)
for process, text in errors(output).items():  # mpirun may end the others before they print
    expect("process 1 has died" in text, f"process {process} says who has died", output)

# Where mpirun does not see the death, the other processes live. MPI itself may still end one that
# reads the memory of the dead process at that moment.
code, output = job(4, "killed", '"$0" "$1"; sleep 1')
expect(code is not None, "the job of processes that live ends", output)
expect(any("process 1 has died" in text for text in errors(output).values()),
       "a process that lives says who has died", output)
for process, text in errors(output).items():  # the end of one that got its Error is a death, too
    expect("has died" in text, f"process {process} gets an Error", output)

code, output = job(4, "exception")
expect(code not in (0, None), "the job of a process that throws ends with an error code", output)
expect(set(errors(output)) == {0, 2, 3}, "the other processes get an Error", output)
for process, text in errors(output).items():
    expect("process 1 has left because of an exception" in text, f"process {process} says why", output)
expect("main caught: process 1 has had enough" in output, "the exception reaches main", output)

code, output = job(2, "left")
expect(code == 0, "the job of a process that leaves ends", output)
expect("process 1 has left: it has destroyed its MpiCluster" in errors(output).get(0, ""),
       "process 0 says who has left", output)
expect("after the cluster: the MpiCluster of this process has been destroyed" in output,
       "a plan that outlives its cluster says so", output)

# Without mpirun, but with the variable that the mpirun of the other MPI sets.
program = sys.argv[-1]
variable = "OMPI_COMM_WORLD_SIZE" if "mpich" in os.path.basename(program) else "PMI_SIZE"
run = subprocess.run([program, "left"], env={**os.environ, variable: "2"}, stdout=subprocess.PIPE,
                     stderr=subprocess.STDOUT, text=True, timeout=SECONDS_TO_END, errors="replace")
expect(run.returncode == 3 and "mpirun started 2 processes, but each of them is alone" in run.stdout,
       "a process of another mpirun says so", run.stdout)
sys.exit(1 if failures else 0)
