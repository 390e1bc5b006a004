"""The parts that the claims of GGUF files share: the models and their exports, and the programs of peers."""
import json
import pathlib
import subprocess
import sys

import claim
import interleaved

FAMILIES = ("gpt2", "bloom", "llama", "mistral", "qwen2", "qwen3", "glm", "glm4", "olmo2", "phi3", "smollm3", "gemma2", "gemma3_text",
            "qwen2_moe", "olmoe", "mixtral", "glm4_moe")  # fmt: skip
KEYS = ["data.train=text.txt", "data.val=", "data.tokenizer=tokenizer.json", "train.eval_every=0", "train.dtype=f32", "log.sample_every=0",
        "memory.device=unlimited", "memory.pinned=unlimited"]  # fmt: skip


class Absent(Exception):
    """A package that a peer needs is not there."""


def peer(script, *words, lines=()):
    """The JSON lines that a program of bench/peers prints."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run([interleaved.PYTHON, claim.ROOT / "bench/peers" / script, *words], input=text, stdout=subprocess.PIPE, text=True)
    if done.returncode == 77:
        raise Absent(f"{interleaved.PYTHON} cannot run {script}: a package is not installed (bench/peers/setup_peers.sh)")
    if done.returncode != 0:
        sys.exit(f"{script} ended with {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def prepare(scratch):
    """A text and its tokenizer of 320 tokens."""
    words = (claim.ROOT / "examples/data/austen/persuasion.txt").read_text()[:40000]
    pathlib.Path(scratch, "text.txt").write_text(words)
    claim.run(["tokenizer", "train", "text.txt", "--vocab", "320", "-o", "tokenizer.json"], scratch)


def random_models(scratch):
    """Runs that hold the models of gguf_folders.py almost as they are: {run: what a refusal must say, or None}."""
    (cases,) = peer("gguf_folders.py", scratch)
    for case in cases:
        claim.train(scratch, f"run-{case}", *KEYS, "--init", f"{case}/hf", "model.seq=32", "train.steps=1", "optim.lr=1e-4", preset="austen-tiny")
    return {f"run-{case}": refusal for case, refusal in cases.items()}


TRAINED = "trained-"


def trained_models(scratch, *keys):
    """The runs: TRAINED and the family."""
    for family in FAMILIES:
        claim.train(scratch, TRAINED + family, *KEYS, f"model.family={family}", *keys, preset="austen-tiny")
    return [TRAINED + family for family in FAMILIES]


def export_gguf(scratch, run, dtype="f32"):
    """The path of the file."""
    claim.run(["export", run, "--format", "gguf", "--dtype", dtype, "--out", f"{run}.{dtype}.gguf", "--check"], scratch)
    return f"{scratch}/{run}.{dtype}.gguf"
