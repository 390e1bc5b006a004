"""Runs programs with a time limit: no program can block or end the script, whatever it does."""
import dataclasses
import os
import pathlib
import signal
import subprocess
import threading
import time

TAIL = 4000  # characters of a program's output that go into the JSON


class CheckFailed(Exception):
    """A check does not hold; the message says what, with both figures."""


@dataclasses.dataclass
class ProcessResult:
    name: str
    code: int | None  # None: killed at its limit
    out: str
    err: str
    seconds: float
    limit: float

    @property
    def ok(self):
        return self.code == 0

    def describe_exit(self):
        """How the program ended, without its output."""
        if self.code is None:
            return f"{self.name}: timed out after {self.limit:.0f} s"
        if self.code < 0:
            return f"{self.name}: killed by {signal.Signals(-self.code).name}"
        return f"{self.name}: exit code {self.code}"

    def output_tail(self):
        return (self.err or self.out).strip()[-TAIL:]

    def require_stdout(self):
        """Returns the standard output. Raises CheckFailed if the program failed."""
        if not self.ok:
            raise CheckFailed(f"{self.describe_exit()}: {self.output_tail()}")
        return self.out


_running, _lock = set(), threading.Lock()


def end_all():
    """Kills all programs that still run, with their children."""
    with _lock:
        for process in _running:
            _kill(process)


def _kill(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)  # each has a session of its own, so this reaches its children
    except ProcessLookupError:
        pass


def run(command, limit, log, environment=None):
    """Runs `command` for at most `limit` seconds. Its output goes to the files LOG.out and LOG.err: reading
    from a pipe would wait for every child that holds it open, and output before a kill at the limit would be
    lost."""
    log = pathlib.Path(log)
    log.parent.mkdir(parents=True, exist_ok=True)
    paths = [log.with_name(log.name + end) for end in (".out", ".err")]
    begin = time.monotonic()
    with paths[0].open("wb") as out, paths[1].open("wb") as err:
        try:
            process = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                       env=environment, start_new_session=True)  # fmt: skip
        except OSError as error:
            raise CheckFailed(f"{command[0]}: {error.strerror or error}") from error
        with _lock:
            _running.add(process)
        try:
            code = process.wait(max(0.1, limit))
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _kill(process)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                pass  # stuck in a driver: give up on it
            with _lock:
                _running.discard(process)
    said = [path.read_bytes().decode(errors="replace") for path in paths]
    return ProcessResult(pathlib.Path(str(command[0])).name, code, *said, time.monotonic() - begin, limit)
