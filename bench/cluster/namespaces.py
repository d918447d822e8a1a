#!/usr/bin/env python3
"""The simulator's predictions beside runs on 2 and 4 processes that TCP connects, each in a network namespace with a
limited bandwidth. The predictions are made from the times of the nodes on process 0, and from the latency and the rate
between processes 0 and 1, which send to each other at the same time. Layers wait instead of computing, but those of
resnet50 compute. A measured time is a median. The first ratio is SimulateStep's prediction over the measured time, the
second that of SimulateTraining, which knows only the costs of the layers. Goal: 0.85 to 1.15.

Usage: namespaces.py PROGRAM RESULT.json

Runs build/release/bench/cluster/namespaces by Open MPI's mpirun. Needs root, and a kernel with network namespaces and
the qdisc tbf, and says so where it cannot measure. Removes its namespaces at the end, also when it fails.
"""
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from record import ROOT, head, write  # noqa: E402

MEGABITS = (100, 200, 400)  # a second, in each direction
SECONDS = 300  # a job that takes longer has failed


def call(*command):
    """Runs a command. Ends the program with the command's message if it fails."""
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"namespaces.py: not measured: '{shlex.join(command)}' failed: {run.stderr.strip()}")
    return run.stdout


class Network:
    """Hosts on a switch: namespaces whose interfaces eth0 a bridge connects, in a namespace of its own."""

    def __init__(self, hosts):
        name = f"opkit{os.getpid()}"
        self.switch, self.hosts = f"{name}s", [f"{name}h{i}" for i in range(hosts)]

    def __enter__(self):
        try:
            for namespace in (self.switch, *self.hosts):
                call("ip", "netns", "add", namespace)
                call("ip", "-n", namespace, "link", "set", "lo", "up")
            call("ip", "-n", self.switch, "link", "add", "bridge", "type", "bridge")
            call("ip", "-n", self.switch, "link", "set", "bridge", "up")
            for i, host in enumerate(self.hosts):
                call("ip", "-n", host, "link", "add", "eth0", "type", "veth",
                     "peer", "name", f"port{i}", "netns", self.switch)
                call("ip", "-n", self.switch, "link", "set", f"port{i}", "master", "bridge", "up")
                call("ip", "-n", host, "address", "add", f"10.77.0.{i + 1}/24", "dev", "eth0")
                call("ip", "-n", host, "link", "set", "eth0", "up")
                # The congestion control that every kernel has.
                call("ip", "netns", "exec", host, "sysctl", "-qw", "net.ipv4.tcp_congestion_control=reno")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for namespace in (*self.hosts, self.switch):
            pids = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True).stdout
            for pid in pids.split():  # of a job that was stopped
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            subprocess.run(["ip", "netns", "delete", namespace], capture_output=True)

    def limit(self, megabits):
        """Limits what each host sends and what it receives."""
        burst = max(3200, megabits * 1000 // 8 // 4)  # bytes: a quarter of a millisecond
        for i, host in enumerate(self.hosts):
            for namespace, interface in ((host, "eth0"), (self.switch, f"port{i}")):
                call("ip", "netns", "exec", namespace, "tc", "qdisc", "replace", "dev", interface, "root",
                     "tbf", "rate", f"{megabits}mbit", "burst", str(burst), "limit", "4mb")

    def run(self, program):
        """Runs the program on all hosts, and returns what it prints."""
        with tempfile.TemporaryDirectory() as folder:
            # mpirun calls it with a host and a command.
            agent = pathlib.Path(folder) / "agent"
            agent.write_text('#!/bin/sh\nhost=$1\nshift\nexec ip netns exec "$host" unshare --uts '
                             'sh -c \'hostname "$0"; eval "$1"\' "$host" "$*"\n')
            agent.chmod(0o755)
            options = {"plm_rsh_agent": agent, "btl": "tcp,self", "pml": "ob1", "btl_tcp_if_include": "eth0",
                       "oob_tcp_if_include": "eth0", "mpi_yield_when_idle": 1}
            command = ["mpirun", "--allow-run-as-root", "-n", str(len(self.hosts)),
                       "--host", ",".join(f"{host}:1" for host in self.hosts), "-x", "OPKIT_DATA_DIR"]
            for name, value in options.items():
                command += ["--mca", name, str(value)]
            first = self.hosts[0]
            run = subprocess.run(["ip", "netns", "exec", first, "unshare", "--uts", "sh", "-c",
                                  'hostname "$0"; exec "$@"', first, *command, program],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=SECONDS)
        if run.returncode:
            sys.exit(f"namespaces.py: the job ended with {run.returncode}:\n{run.stdout}{run.stderr}")
        return json.loads(run.stdout)


def main():
    program, path = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2])
    if os.geteuid() != 0:
        sys.exit("namespaces.py: not measured: only root makes network namespaces")
    for tool in ("ip", "tc", "unshare", "mpirun"):
        if not shutil.which(tool):
            sys.exit(f"namespaces.py: not measured: there is no program '{tool}'")
    if "Open MPI" not in call("mpirun", "--version"):
        sys.exit("namespaces.py: not measured: mpirun is not Open MPI's, which starts processes in namespaces")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("namespaces.py: stopped"))
    found = []
    for processes in (2, 4):
        with Network(processes) as network:
            for megabits in MEGABITS:
                network.limit(megabits)
                found.append({"processes": processes, "megabits": megabits, **network.run(program)})
    command = f"bench/cluster/namespaces.py {os.path.relpath(program, ROOT)}"
    write(path, {"head": head(command), "networks": found})


if __name__ == "__main__":
    main()
