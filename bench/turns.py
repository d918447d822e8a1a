"""Programs that take turns: each has a model loaded and runs it on request (`opkit bench --serve`)."""
import json
import statistics
import subprocess


class Ended(Exception):
    """A program has ended; what it said last."""


class Server:
    """A process that has a model loaded, and runs it on request."""

    def __init__(self, command):
        self.process = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.first_result_ms = self.answer()["first_result_ms"]

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            said = self.process.communicate()[1].strip().splitlines()
            raise Ended(said[-1] if said else "it ended without a word")
        return json.loads(line)

    def run(self, seconds):
        try:
            self.process.stdin.write(f"{seconds}\n")
            self.process.stdin.flush()
        except BrokenPipeError:  # the process has ended, and answer() says why
            pass
        return self.answer()["median_ms"]

    def close(self):
        if self.process.poll() is None:
            self.process.communicate()


def measure(commands, rounds, seconds, shuffle):
    """{variant: milliseconds of each round}, and {variant: why it has none}. Every round runs each variant for the
    seconds, in a new order."""
    servers, times, failed = {}, {}, {}
    try:
        for variant, command in commands.items():
            try:
                servers[variant] = Server(command)
                times[variant] = []
            except Ended as why:
                failed[variant] = str(why)
        for _ in range(rounds):
            for variant in shuffle.sample(list(times), len(times)):
                try:
                    times[variant].append(servers[variant].run(seconds))
                except Ended as why:
                    failed[variant] = str(why)
                    del times[variant]
    finally:
        for server in servers.values():
            server.close()
    return times, failed


def ratio(times, ours, peer):
    """{"median", "middle_half"} of the rounds' ratios; None if a variant was not measured."""
    if not times.get(ours) or not times.get(peer):
        return None
    ratios = [a / b for a, b in zip(times[ours], times[peer])]
    low, median, high = statistics.quantiles(ratios * 2, n=4, method="inclusive")  # one round is enough
    return {"median": median, "middle_half": [low, high]}
