#!/usr/bin/env python3
"""Runs of every kind, made by an earlier strata, go on with this one to the bits that the earlier one ended with.

    old_runs.py --strata PROGRAM           resumes the runs of old_runs.tar.xz from their first checkpoints
    old_runs.py --strata PROGRAM --expect  the bits that they end with become old_runs.json
    old_runs.py --strata PROGRAM --record  makes old_runs.tar.xz and old_runs.json with PROGRAM

What they end with changes with a change of all bits, which CHANGELOG.md then says. The archive is only made again when a run of an earlier strata may no longer be resumed, which CHANGELOG.md then says. On
another CPU model than the recorder's, a GEMM's blocking may give other bits: there the losses must agree to 1e-3."""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

from record_bits import ROOT, cpu_key

HERE = pathlib.Path(__file__).resolve().parent
ARCHIVE, EXPECTED = HERE / "old_runs.tar.xz", HERE / "old_runs.json"
STEPS = 4
PLACE = "/the/folder/of/the/runs"
COMMON = ["memory.backend=host", "cpu.bf16_matmul=widened", "cpu.threads=1", "log.progress=none", "checkpoint.interval=none",
          "log.sample_every=0", f"train.steps={STEPS}", "checkpoint.every=2", "checkpoint.keep=9", "train.micro_batch=2",
          "train.grad_accum=2", "optim.warmup=1", "optim.lr=0.01", "train.eval_batches=2", "data.val=val.txt"]  # fmt: skip
NEW = ["model.family=llama", "model.layers=1", "model.hidden=16", "model.heads=2", "model.kv_heads=1", "model.ffn=16",
       "model.vocab=300", "model.seq=32", "data.tokenizer=tokenizer.json"]  # fmt: skip
TEXT = ["data.train=train.txt"]
BASED = ["--init", "base", "model.seq=32"]
PAIRS = ["data.train=pairs.jsonl", "data.val=pairs.jsonl"]
ANSWERS = ["data.train=prompts.jsonl", "data.val=", "optim.lr=0.002", "align.prompts=3", "align.samples=4", "align.mini_batches=2",
           "align.max_tokens=8", "align.max_prompt=8", "align.reward=density:[aeiou]", "align.slots=5"]  # fmt: skip
LORA = ["adapter.method=lora", "adapter.rank=2"]
KINDS = {
    "lm": [*NEW, *TEXT], "lm_bf16": [*NEW, *TEXT, "train.dtype=bf16", "optim.clip=0.9"],
    "lm_on_nvme": [*NEW, *TEXT, "memory.device=1MiB", "memory.pinned=1MiB", "memory.nvme=8MiB", "memory.nvme_dir=nvme", "offload.chunk=8192"],
    "average": [*NEW, *TEXT, "optim.ema_decay=0.9"],
    "int8_states": [*NEW, *TEXT, "offload.states=int8", "train.dtype=bf16"],
    "lion": [*NEW, *TEXT, "optim.name=lion"],
    "galore": [*NEW, *TEXT, "optim.name=galore", "optim.galore_rank=4", "optim.galore_gap=2", "optim.weight_decay=0"],
    "frozen": [*BASED, *TEXT, "train.freeze=tokens.weight"],
    "chats": [*BASED, "--task", "sft", "data.train=chats.jsonl", "data.val=chats.jsonl"],
    "lora": [*BASED, *TEXT, *LORA, "adapter.dropout=0.1"], "qlora": [*BASED, *TEXT, *LORA, "train.base=nf4"],
    "prefix": [*BASED, *TEXT, "adapter.method=prefix", "adapter.virtual_tokens=2"],
    "reward": [*BASED, "--task", "reward", *PAIRS], "dpo": [*BASED, "--task", "dpo", *PAIRS],
    "grpo": [*BASED, "--task", "grpo", *ANSWERS], "ppo": [*BASED, "--task", "ppo", *ANSWERS]}  # fmt: skip


class Runs:
    def __init__(self, program, folder):
        self.program, self.folder = program, pathlib.Path(folder)

    def strata(self, *arguments):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("STRATA_")}
        environment |= {"ONEDNN_MAX_CPU_ISA": "AVX2", "XDG_CACHE_HOME": str(self.folder / "cache")}
        return subprocess.run([self.program, *arguments], cwd=self.folder, env=environment, capture_output=True, text=True)

    def must(self, *arguments):
        done = self.strata(*arguments)
        if done.returncode != 0:
            sys.exit(f"strata {' '.join(arguments)}: exit code {done.returncode}\n{done.stderr}")

    def outcome(self, run):
        """The digest of all states, and the losses of the steps."""
        summary = json.loads((self.folder / run / "summary.json").read_text())
        lines = [json.loads(line) for line in (self.folder / run / "metrics.jsonl").read_text().splitlines()]
        return {"digest": summary["state_digest"], "losses": {str(line["step"]): line["loss"] for line in lines if "loss" in line}}

    def move_paths(self, run, before, after):
        """A run that is used elsewhere finds its data there: its configuration has absolute paths."""
        config = self.folder / run / "config.resolved.toml"
        config.write_text(config.read_text().replace(before, after))

    def write_data(self):
        text = (ROOT / "examples/data/austen/persuasion.txt").read_text()
        (self.folder / "train.txt").write_text(text[2000:14000])
        (self.folder / "val.txt").write_text(text[70000:72000])
        words = ["She was", "He had", "They were", "Anne", "It is", "The captain", "A lady", "We"]
        rows = {"pairs": [{"prompt": f"Is {i} good?", "chosen": " It is YES" + " indeed" * (i % 3 == 0), "rejected": " It is no"} for i in range(40)],
                "prompts": [{"prompt": word} for word in words],
                "chats": [{"messages": [{"role": "user", "content": f"Say {i}"}, {"role": "assistant", "content": f"It is {i}."}]}
                          for i in range(40)]}  # fmt: skip
        for name, lines in rows.items():
            (self.folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.must("tokenizer", "train", "train.txt", "--vocab", "300", "--out", "tokenizer.json")
        self.must("train", "--out", "first", *settings([*NEW, *TEXT]))
        self.must("export", "first", "--out", "base")
        shutil.rmtree(self.folder / "first")


def settings(kind):
    """COMMON and those of the kind, which come last and replace what they repeat."""
    replaced = {word.partition("=")[0] for word in kind if "=" in word}
    return [word for word in COMMON if word.partition("=")[0] not in replaced] + kind


def record(runs):
    runs.write_data()
    expected = {}
    for name, kind in KINDS.items():
        runs.must("train", "--out", name, *settings(kind))
        expected[name] = runs.outcome(name)
        run = runs.folder / name
        for file in ["summary.json", ".lock"]:
            (run / file).unlink()
        for checkpoint in sorted((run / "checkpoints").iterdir())[1:]:
            shutil.rmtree(checkpoint)
        runs.move_paths(name, str(runs.folder), PLACE)
    for rest in ["cache", "nvme"]:
        shutil.rmtree(runs.folder / rest, ignore_errors=True)
    with tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
        for path in sorted(runs.folder.iterdir()):
            archive.add(path, path.name, filter=lambda info: info.replace(mtime=0, uid=0, gid=0, uname="", gname="", deep=False))
    EXPECTED.write_text(json.dumps({"cpu": cpu_key(), "runs": expected}, indent=1) + "\n")
    print(f"{len(KINDS)} runs, {ARCHIVE.stat().st_size} bytes")


def expect(runs):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(runs.folder)
    expected = {}
    for name in KINDS:
        runs.move_paths(name, PLACE, str(runs.folder))
        runs.must("train", "--resume", name)
        expected[name] = runs.outcome(name)
    EXPECTED.write_text(json.dumps({"cpu": cpu_key(), "runs": expected}, indent=1) + "\n")


def problem_of(runs, name, want, same_cpu):
    runs.move_paths(name, PLACE, str(runs.folder))
    done = runs.strata("train", "--resume", name)
    if done.returncode != 0:
        return f"exit code {done.returncode}: {done.stderr.strip()[-1000:]}"
    got = runs.outcome(name)
    if sorted(got["losses"]) != sorted(want["losses"]):
        return f"has the steps {sorted(got['losses'])}, not {sorted(want['losses'])}"
    if same_cpu:
        return None if got == want else f"has other bits: {got}, not {want}"
    far = [step for step, loss in want["losses"].items() if abs(got["losses"][step] - loss) > 1e-3 * max(1, abs(loss))]
    return f"has other losses in the steps {far}: {got}, not {want}" if far else None


def compare(runs):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(runs.folder)
    expected = json.loads(EXPECTED.read_text())
    same_cpu = expected["cpu"] == cpu_key()
    problems = {name: problem_of(runs, name, want, same_cpu) for name, want in expected["runs"].items()}
    for name, problem in problems.items():
        print(f"{name}: {problem or 'goes on to the same ' + ('bits' if same_cpu else 'losses')}")
    return 1 if any(problems.values()) or sorted(problems) != sorted(KINDS) else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--strata", required=True, type=pathlib.Path)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--expect", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(arguments.strata.resolve(), folder)
        if arguments.expect:
            return expect(runs)
        return record(runs) if arguments.record else compare(runs)


if __name__ == "__main__":
    sys.exit(main())
