"""Functions that the optimizer's claims share: programs that run interleaved rounds (cpuopt_bench and
bench/peers/adamw_peers.py with --serve), verdicts over several bars, and the locations of programs and peers.

$CLAIMS_PEERS, or $CLAIMS_PYTHON, or python3, has the newest torch and DeepSpeed (bench/peers/setup_peers.sh
makes one); $CLAIMS_DEBIAN_PYTHON, or /usr/bin/python3, has Debian's torch."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import claim

PEERS = claim.ROOT / "bench" / "peers"
PYTHON = os.environ.get("CLAIMS_PEERS") or os.environ.get("CLAIMS_PYTHON") or "python3"
DEBIAN_PYTHON = os.environ.get("CLAIMS_DEBIAN_PYTHON") or "/usr/bin/python3"


class Absent(Exception):
    """This machine lacks a peer or an instruction set."""


class Server:
    """A program that measures one round for each line on its stdin. The constructor waits until it is warm,
    so several are started one after the other."""

    def __init__(self, command):
        self.command = [str(word) for word in command]
        self.log = tempfile.TemporaryFile("w+")
        try:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)
        except OSError as error:
            raise Absent(f"{self.command[0]}: {error}") from None
        self.round()

    def round(self):
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # its stdout ends too, which is handled below
        line = self.process.stdout.readline()
        while line and not line.startswith("{"):  # skip log output of a peer
            line = self.process.stdout.readline()
        return json.loads(line) if line else self.fail()

    def fail(self):
        code = self.process.wait()
        self.log.seek(0)
        words = self.log.read()[-2000:].strip()
        if code in (2, 77):
            raise Absent(words.splitlines()[-1] if words else f"{self.command[0]} ended with {code}")
        sys.exit(f"{' '.join(self.command)} ended with {code}: {words}")

    def close(self):
        """Ends the program and returns its summary."""
        rest = self.process.communicate()[0].splitlines()
        return json.loads(rest[-1]) if rest and self.process.returncode == 0 else self.fail()


def bench(n, threads, *options):
    """Command for strata's own AdamW step."""
    return [claim.need("bench/cpuopt_bench"), "--serve", "--size", n, "--threads", threads, *options]


def peer(python, name, n, threads, *options):
    return [python, PEERS / "adamw_peers.py", "--serve", "--peer", name, "--n", n, "--threads", threads, *options]


def run_interleaved(commands, rounds, before=lambda: None):
    """Runs the commands of {name: command} in interleaved rounds, and before() at the beginning of each. Returns
    {name: [figures of each round]}, {name: summary} and {name: why it is absent}."""
    servers, absent = {}, {}
    for name, command in commands.items():
        try:
            servers[name] = Server(command)
        except Absent as why:
            absent[name] = str(why)
    figures = {name: [] for name in servers}
    for _ in range(rounds):
        before()
        for name, server in servers.items():
            figures[name].append(server.round())
    return figures, {name: server.close() for name, server in servers.items()}, absent


def ratios(figures, name, over, field="ns_per_param"):
    return [one[field] / other[field] for one, other in zip(figures[name], figures[over])]


def combine_verdicts(verdicts):
    """False if any verdict is False, else None if any is None (a peer or hardware is absent), else True."""
    verdicts = set(verdicts)
    return False if False in verdicts else None if None in verdicts or not verdicts else True


def rounded(values, digits=4):
    return {name: round(value, digits) if name != "n" else value for name, value in claim.spread(values).items()}
