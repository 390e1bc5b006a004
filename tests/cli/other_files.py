#!/usr/bin/env python3
"""Runs random commands over files and folders that are not theirs, and two commands at once on the same files.

    other_files.py --strata PROGRAM [--commands 200] [--pairs 200] [--seed 1]

No command may change a file that another program, or another command, has written: every file is digested before and after.
Two commands at once leave what one of them alone would have left, whole. Exit code 1 if one does not."""
import argparse
import hashlib
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

SMALL = ["model.layers=1", "model.hidden=32", "model.heads=2", "model.ffn=64", "model.vocab=300", "model.seq=32", "train.micro_batch=2",
         "train.grad_accum=1", "train.steps=3", "train.dtype=f32", "memory.backend=host", "cpu.threads=1", "train.eval_every=0",
         "log.sample_every=0", "log.progress=none", "data.train=texts.txt", "data.tokenizer=given.json", "data.cache_dir=cache"]  # fmt: skip


class Place:
    """A folder with texts, a run, its export, and files of others."""

    def __init__(self, program, folder):
        self.program, self.folder = program, pathlib.Path(folder)
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("STRATA_")} | {"XDG_CACHE_HOME": str(self.folder / "cache")}
        (self.folder / "texts.txt").write_text("".join(f"Tea number {i} is hot, and cup {i * i} is cold.\n" for i in range(400)))
        (self.folder / "lines.jsonl").write_text('{"text": "Tea"}\n')
        self.must(["tokenizer", "train", "texts.txt", "--vocab", "300", "-o", "given.json"])
        self.must(self.train("run", "log.trace=2-2"))
        self.must(["export", "run", "--out", "hf"])
        (self.folder / "mine").mkdir()
        for name, text in {"notes.txt": "mine", "metrics.jsonl": '{"mine": 1}\n', "samples.txt": "mine\n", "tokenizer.json": "{}", "config.json": "{}",
                           "report.html": "<html>mine</html>", "trace.json": "{}", "scores.jsonl": '{"mine": 1}\n', "run.toml": "mine = 1\n", "all.gguf": "mine"}.items():  # fmt: skip
            (self.folder / "mine" / name).write_text(text)
        (self.folder / "mine" / "checkpoints" / "step-00000001").mkdir(parents=True)
        (self.folder / "mine" / "checkpoints" / "step-00000001" / "model.bin").write_text("mine")
        (self.folder / "new.unfinished").mkdir()
        (self.folder / "new.unfinished" / "notes.txt").write_text("mine")
        os.symlink("../texts.txt", self.folder / "mine" / "link.txt")

    def train(self, out, *more):
        return ["train", "--out", out, *SMALL, *more]

    def start(self, arguments):
        return subprocess.Popen([self.program, *arguments], cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, arguments):
        process = self.start(arguments)
        output = process.communicate()[0]
        return process.returncode, output

    def must(self, arguments):
        code, output = self.run(arguments)
        if code != 0:
            sys.exit(f"strata {' '.join(arguments)} ended with {code}: {output[-2000:]}")

    def digests(self, below="."):
        """Digests all files but caches and locks; a link counts with its target."""
        found = {}
        for path in sorted((self.folder / below).rglob("*")):
            name = path.relative_to(self.folder).as_posix()
            if name.startswith("cache/") or path.name == ".lock":
                continue
            found[name] = "link " + os.readlink(path) if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        return found


def random_command(place, random_source):
    """A command whose output is a path of somebody else, spelled in one of several ways."""
    everything = [name for name, digest in place.digests().items() if not name.startswith("made/")]
    target = random_source.choice(everything)
    spelled = random_source.choice([target, f"./{target}", str(place.folder / target), f"mine/../{target}"])
    out = random_source.choice(["--out", "-o"])
    return random_source.choice([
        place.train(spelled), place.train(spelled, "--overwrite") if not target.startswith("run") else place.train(spelled),
        place.train("made/run", "--overwrite", f"log.prometheus={spelled}"), place.train("made/saved", "--overwrite", f"checkpoint.dir={spelled}"),
        ["train", "--resume", random_source.choice(["mine", "hf", "cache", "."]), "train.steps=4"],
        ["score", "hf", "--in", random_source.choice(["lines.jsonl", spelled]), "--out", spelled], ["tokenizer", "train", "texts.txt", "--vocab", "300", out, spelled],
        ["trace", "run", "--out", spelled], ["report", "run", "--out", spelled], ["report", "run", "--svg", spelled], ["export", "run", "--out", spelled],
        ["export", "run", "--format", "gguf", "--out", spelled], ["data", "pack", "texts.txt", "-t", "given.json", out, spelled],
        ["ckpt", "average", "run", "--last", "1", "--out", spelled], ["ckpt", "prune", spelled, "--keep", "1"],
        ["init", spelled, "--overwrite", "--yes", "--model", "5m", "--data", "texts.txt"], ["bench", "--quick", "--out", spelled],
        ["plan", *(word for word in SMALL if word != "model.layers=1"), "parallel.pp=2", "parallel.ranks=2", "model.layers=2", "--timeline", spelled], ["budget", spelled, "memory.device=1GiB"],
    ])  # fmt: skip


def changed(before, after):
    return sorted(name for name, digest in before.items() if after.get(name) != digest)


def own_outputs(arguments):
    """Files that a command has written itself, and may replace: a report or a trace in the folder of the run."""
    return {"run/report.html", "run/trace-perfetto.json", "run/budget.request"} if arguments[0] in ("report", "trace", "budget") else set()


REFUSALS = (2, 3, 5)  # usage or configuration, does not fit, a file that cannot be read or written


def run_commands(place, n, random_source):
    wrong, refused = 0, 0
    succeeded = set()
    for _ in range(n):
        before, arguments = place.digests(), random_command(place, random_source)
        code, output = place.run(arguments)
        refused += code != 0
        if code == 0:
            succeeded.add(arguments[0])
        elif code not in REFUSALS:
            wrong += 1
            print(f"strata {' '.join(arguments)} ended with {code}:\n{output[-500:]}")
        lost = [name for name in changed(before, place.digests()) if not name.startswith("made/") and name not in own_outputs(arguments)]
        if lost:
            wrong += 1
            print(f"strata {' '.join(arguments)} ended with {code} and changed {', '.join(lost[:5])}")
        shutil.rmtree(place.folder / "made", ignore_errors=True)
    print(f"{n} commands: {refused} refused, {wrong} changed a file of others or ended otherwise; verbs that wrote: {sorted(succeeded)}")
    return wrong + (not succeeded)


# Pairs of commands, the folder or file that they write, and how many of them may succeed.
def pairs_of(place):
    return [
        (["export", "run", "--out", "both"], ["export", "run", "--out", "both"], "both", {1}),
        (["export", "run", "--format", "gguf", "--out", "both"], ["export", "run", "--format", "gguf", "--out", "both"], "both", {1}),
        (place.train("both"), place.train("both"), "both", {1}),
        (["ckpt", "average", "run", "--last", "1", "--out", "both"], ["ckpt", "average", "run", "--last", "1", "--out", "both"], "both", {1}),
        (["tokenizer", "train", "texts.txt", "--vocab", "300", "-o", "both"], ["tokenizer", "train", "texts.txt", "--vocab", "300", "-o", "both"], "both", {1, 2}),
        (["report", "run", "--out", "both"], ["report", "run", "--out", "both"], "both", {1, 2}),
        (["train", "--resume", "more", "train.steps=5"], ["train", "--resume", "more", "train.steps=5"], "more", {1, 2}),
        (["train", "--resume", "more", "train.steps=5"], ["ckpt", "prune", "more/checkpoints", "--keep", "1"], "more", {1, 2}),
    ]


# These files differ from run to run: times, and the order of two that both succeed.
VARIES = ("metrics.jsonl", "summary.json", "plan.json", "config.resolved.toml", "report.html", "trace.json")


def result_of(place, name):
    path = place.folder / name
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return {key: digest for key, digest in place.digests(name).items() if not key.endswith(VARIES)}


def run_pairs(place, n, random_source):
    place.must(place.train("kept", "checkpoint.every=1", "checkpoint.keep=1"))
    pairs, expected, wrong = pairs_of(place), {}, 0

    def clear():
        for name in ("both", "more"):
            shutil.rmtree(place.folder / name, ignore_errors=True)
            (place.folder / name).unlink(missing_ok=True)
        shutil.copytree(place.folder / "kept", place.folder / "more")

    for i in range(n):
        k = i % len(pairs)
        first, second, name, may_succeed = pairs[k]
        if k not in expected:
            clear()
            begin = time.monotonic()
            place.must(first)
            expected[k] = (result_of(place, name), time.monotonic() - begin)
        clear()
        before = {key: digest for key, digest in place.digests().items() if not key.startswith(("both", "more"))}
        processes = [place.start(first)]
        time.sleep(random_source.random() * expected[k][1])
        processes.append(place.start(second))
        outputs = [process.communicate()[0] for process in processes]
        codes = [process.returncode for process in processes]
        lost = changed(before, {key: digest for key, digest in place.digests().items()})
        same = result_of(place, name) == expected[k][0]
        # A run that ends before the other command begins lets it run, too.
        if lost or codes.count(0) not in may_succeed or (not same and "report" not in first and "prune" not in second):
            wrong += 1
            print(f"{first[:3]} and {second[:3]} ended with {codes}, same result: {same}, changed: {lost[:5]}\n{outputs[0][-500:]}\n{outputs[1][-500:]}")
    clear()
    print(f"{n} pairs of commands at once: {wrong} left something else than one of them alone")
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--strata", required=True)
    parser.add_argument("--commands", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    print(f"seed {asked.seed}")
    random_source = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as folder:
        place = Place(os.path.abspath(asked.strata), folder)
        wrong = run_commands(place, asked.commands, random_source) + run_pairs(place, asked.pairs, random_source)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
