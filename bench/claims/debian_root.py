"""A fresh Debian root of debootstrap, from the mirror of this machine's apt, for claims about packages."""
import os
import pathlib
import re
import shutil
import subprocess

ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive"}


def run(*command, timeout=1800, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, errors="replace", timeout=timeout, **options)


def missing():
    """Why no root can be made here; empty if one can."""
    return "" if os.geteuid() == 0 and shutil.which("debootstrap") else "debootstrap, or root for it, is missing"


def mirror():
    for source in [*pathlib.Path("/etc/apt").glob("sources.list"), *pathlib.Path("/etc/apt/sources.list.d").glob("*")]:
        text = source.read_text(errors="replace")
        if found := re.search(r"(?:^deb(?:\s+\[[^]]*\])?\s+|^URIs:\s*)(\S+/debian/?)(?=\s|$)", text, re.M):
            return found[1]
    return "http://deb.debian.org/debian"


class DebianRoot:
    """The root at `path`, with /proc and /dev while the context lasts. `problem`: why debootstrap failed, or empty."""

    def __init__(self, path, suite="bookworm"):
        self.path = path
        made = run("debootstrap", "--variant=minbase", suite, path, mirror())
        self.problem = "" if made.returncode == 0 else f"debootstrap: {(made.stdout + made.stderr).strip()[-300:]}"

    def __enter__(self):
        if self.problem:
            return self
        # The machine's own way to the mirror, but not its other archives.
        if pathlib.Path("/etc/apt/apt.conf.d").is_dir():
            shutil.copytree("/etc/apt/apt.conf.d", self.path / "etc/apt/apt.conf.d", dirs_exist_ok=True)
        for name in ("etc/resolv.conf", "etc/hosts"):
            shutil.copy(pathlib.Path("/", name), self.path / name)
        for point in ("proc", "dev"):
            run("mount", "--bind", f"/{point}", self.path / point)
        return self

    def __exit__(self, *_):
        if not self.problem:
            for point in ("proc", "dev"):
                run("umount", "--lazy", self.path / point)  # the command that deletes the folder must not find the machine's devices

    def run(self, script):
        return run("chroot", self.path, "bash", "-ec", script, env=ENVIRONMENT)
