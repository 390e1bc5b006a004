"""A memory cgroup without swap, in which claims run programs. Needs root and a memory controller, version 1 or 2."""
import os
import pathlib
import signal
import subprocess

V1, V2 = pathlib.Path("/sys/fs/cgroup/memory"), pathlib.Path("/sys/fs/cgroup")


class Absent(Exception):
    """This process cannot make a memory cgroup."""


class MemoryCgroup:
    """A context; the cgroup is removed at its end."""

    def __init__(self):
        self.folder = (V1 if (V1 / "memory.limit_in_bytes").exists() else V2) / f"strata-claim-{os.getpid()}"
        self.first = self.folder.parent == V1

    def __enter__(self):
        try:
            self.folder.mkdir()
            self._put("cgroup.procs", "")
        except OSError as error:
            if not self._file("memory.limit_in_bytes", "memory.max").exists():
                raise Absent(f"{self.folder}: {error}") from None
        return self

    def __exit__(self, *_):
        self.folder.rmdir()

    def run(self, command, limit, **options):
        """Runs a program inside, of which all memory, with its file cache, is at most `limit` bytes."""
        self._file("memory.limit_in_bytes", "memory.max").write_text(str(limit))
        self._file("memory.swappiness", "memory.swap.max").write_text("0")
        if self.first:
            self._put("memory.max_usage_in_bytes", 0)

        def enter():
            self._put("cgroup.procs", os.getpid())

        return subprocess.run(command, capture_output=True, text=True, preexec_fn=enter, **options)

    def peak_bytes(self):
        return int(self._file("memory.max_usage_in_bytes", "memory.peak").read_text())

    def _file(self, first, second):
        """By version of the controller."""
        return self.folder / (first if self.first else second)

    def _put(self, name, value):
        (self.folder / name).write_text(str(value))


def was_killed(done):
    return done.returncode == -signal.SIGKILL
