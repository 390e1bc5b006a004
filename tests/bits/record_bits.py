#!/usr/bin/env python3
"""Records the bits of small runs, or compares them with a record: losses and state digests of every decoder family in every
compute dtype and step mode over three tiers, a few steps of the demo's model, and exported folders.

    record_bits.py --strata PROGRAM --record FILE    adds this CPU's bits to FILE
    record_bits.py --strata PROGRAM --compare FILE   exit code 1 when a bit differs, 77 when FILE has none of this CPU

A refactoring changes no bit: record before, compare after. GEMMs run with oneDNN's AVX2 kernels and bf16 operands widened to
f32, so that a record does not depend on which newer instructions a CPU has; it is kept apart by CPU model, because a GEMM's
blocking may follow the caches."""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
OLD_FAMILIES = {"gpt2": [], "opt": [], "bloom": ["model.ffn=256"]}
GROUPED = ["model.kv_heads=2"]  # the others have grouped queries
EXPERTS = dict.fromkeys(["qwen2_moe", "qwen3_moe", "olmoe", "mixtral", "glm4_moe", "gpt_oss"], [*GROUPED, "model.experts=4", "model.ffn=32"])
ROOM = ["memory.device=4MiB", "memory.pinned=3MiB", "memory.nvme=32MiB"]
EXPERTS |= dict.fromkeys(["qwen3_5_moe_text", "qwen3_next"], [*GROUPED, *ROOM, "model.experts=4", "model.ffn=32", "model.layers=4"])
EXPERTS |= dict.fromkeys(["deepseek_v2", "deepseek_v3", "glm4_moe_lite"], [*ROOM, "model.experts=4", "model.ffn=32"])
EXPERTS |= dict.fromkeys(["lfm2_moe", "granitemoehybrid"], [*GROUPED, *ROOM, "model.experts=4", "model.ffn=32", "model.layers=3"])
EXPERTS["nemotron_h"] = [*GROUPED, *ROOM, "model.experts=4", "model.ffn=32", "model.layers=7"]
MIXERS = {"qwen3_5_text": [*GROUPED, *ROOM, "model.layers=4"], "lfm2": [*GROUPED, *ROOM, "model.layers=3"]}  # one layer of attention, too
MIXERS |= {"falcon_h1": [*GROUPED, *ROOM], "gemma4_text": [*GROUPED, *ROOM, "model.experts=4", "model.ffn=32"]}
DTYPES = ["f32", "bf16", "f16"]
MODES = ["serial", "two_phase", "speculative", "hybrid", "auto"]
SMALL = ["model.layers=2", "model.hidden=64", "model.heads=4", "model.ffn=128", "model.vocab=300", "model.seq=32",
         "train.steps=4", "train.micro_batch=2", "train.grad_accum=2", "optim.warmup=1", "optim.clip=0.9",
         "memory.device=2MiB", "memory.pinned=1MiB", "memory.nvme=8MiB", "offload.chunk=8192"]  # fmt: skip
COMMON = ["memory.backend=host", "cpu.bf16_matmul=widened", "cpu.threads=1", "log.sample_every=0", "log.progress=none",
          "train.eval_every=0", "checkpoint.interval=none"]  # fmt: skip


def without(settings, overridden):
    """The settings whose keys are not among the overridden ones."""
    keys = {setting.partition("=")[0] for setting in overridden}
    return [setting for setting in settings if setting.partition("=")[0] not in keys]


def cpu_key():
    facts = dict(re.findall(r"^(vendor_id|cpu family|model)\s*:\s*(\S+)", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE))
    if "vendor_id" not in facts:
        return f"{os.uname().machine}, AVX2 GEMM"
    return f"{facts['vendor_id']} family {facts['cpu family']} model {facts['model']}, AVX2 GEMM"


def families_of(program):
    """The choices of model.family."""
    reference = subprocess.run([program, "config", "reference"], check=True, capture_output=True, text=True).stdout
    return re.search(r"^\| `model.family` \|[^|]*\| ([\w ]+) \|", reference, re.MULTILINE).group(1).split(" or ")


def is_recorded(family, bits):
    return f"{family}-{DTYPES[0]}-{MODES[0]}" in bits


class Recorder:
    def __init__(self, program, folder):
        self.program, self.folder = program, pathlib.Path(folder)
        text = (ROOT / "examples/data/austen/pride_and_prejudice.txt").read_bytes()
        (self.folder / "train.txt").write_bytes(text[:60000])
        (self.folder / "val.txt").write_bytes(text[60000:66000])
        self.run(["tokenizer", "train", "train.txt", "--vocab", "300", "--out", "tokenizer.json"], "tokenizer")

    def run(self, arguments, name):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("STRATA_")}
        environment |= {"ONEDNN_MAX_CPU_ISA": "AVX2", "XDG_CACHE_HOME": str(self.folder / "cache")}
        done = subprocess.run([self.program, *arguments], cwd=self.folder, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{name}: strata {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr[-2000:]}")

    def train(self, name, settings):
        self.run(["train", "--out", f"runs/{name}", *settings], name)
        run = self.folder / "runs" / name
        lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        summary = json.loads((run / "summary.json").read_text())
        return {"loss_bits": [line["loss_bits"] for line in lines if "loss_bits" in line], "state_digest": summary["state_digest"]}

    def family(self, family, dtype, mode):
        name = f"{family}-{dtype}-{mode}"
        own = (OLD_FAMILIES | EXPERTS | MIXERS).get(family, GROUPED)
        data = ["data.train=train.txt", "data.val=val.txt", "data.tokenizer=tokenizer.json"]
        found = {name: self.train(name, [f"model.family={family}", f"train.dtype={dtype}", f"offload.step_mode={mode}",
                                         *without(SMALL, own), *own, *COMMON, *data])}  # fmt: skip
        if mode == "serial":
            self.run(["export", f"runs/{name}", "--out", f"exports/{name}"], f"export of {name}")
            weights = sorted((self.folder / "exports" / name).glob("*.safetensors"))
            digest = hashlib.sha256(b"".join(path.read_bytes() for path in weights)).hexdigest()
            found[f"export of {name}"] = {"files": len(weights), "sha256": digest}
        return found

    def demo(self):
        return {"demo, 6 steps": self.train("demo", ["--preset", "austen-5m", "train.steps=6", "train.dtype=bf16", *COMMON])}


def record(program, families):
    with tempfile.TemporaryDirectory(prefix="strata-bits-") as folder:
        recorder = Recorder(os.path.abspath(program), folder)
        with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            jobs = [pool.submit(recorder.demo)]
            jobs += [pool.submit(recorder.family, *case) for case in ((f, d, m) for f in families for d in DTYPES for m in MODES)]
            found = {}
            for job in jobs:
                found |= job.result()
    return found


def differences(then, now):
    gone = [f"{name}: not run" for name in then if name not in now]
    return gone + [f"{name}: {bits} is not what was recorded: {then.get(name, 'nothing')}"
                   for name, bits in now.items() if then.get(name) != bits]  # fmt: skip


def modes_that_differ(found, families):
    """Step modes of one model and dtype have the same bits; this holds on any CPU, with or without a record."""
    bits = {}
    for family in families:
        for dtype in DTYPES:
            bits[f"{family} in {dtype}"] = {json.dumps(found[f"{family}-{dtype}-{mode}"]) for mode in MODES}
    return [f"{name}: {len(kinds)} different results among {len(MODES)} step modes" for name, kinds in bits.items() if len(kinds) > 1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", required=True, help="the program")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--record", type=pathlib.Path)
    what.add_argument("--compare", type=pathlib.Path)
    options = parser.parse_args()
    path = options.record or options.compare
    records = json.loads(path.read_text()) if path.exists() else {}
    key = cpu_key()
    if options.compare and key not in records:
        print(f"skipped: {path} has no record of a CPU like this one ({key}); --record adds one")
        sys.exit(77)
    families, problems = families_of(options.strata), []
    if options.compare:
        problems = [f"no record has the bits of {family}; --record adds them" for family in families
                    if not any(is_recorded(family, bits) for bits in records.values())]  # fmt: skip
        families = [family for family in families if is_recorded(family, records[key])]
    found = record(options.strata, families)
    problems += modes_that_differ(found, families)
    if options.record:
        records[key] = found
        path.write_text(json.dumps(records, indent=1, sort_keys=True) + "\n")
        print(f"{len(found)} results recorded in {path} for {key}")
    else:
        problems += differences(records[key], found)
        print(f"{len(found)} results compared with those of {key}: {len(problems)} problems")
    print("\n".join(problems[:20]))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
