"""Whole training runs: losses compared with the host's, the same bits in other placements and orders, and
what is done with a run afterwards."""
import dataclasses
import json
import re

from check import folder_removed
from processes import CheckFailed, ProcessResult


@dataclasses.dataclass
class Run:
    """The output of a run, whether or not it finished."""

    done: ProcessResult
    steps: list  # the lines of metrics.jsonl, one for each finished step
    summary: dict
    plan: dict

    def whole(self):
        """Returns itself. Raises CheckFailed if the run did not finish."""
        if not self.done.ok:
            raise CheckFailed(f"{self.done.describe_exit()} after {len(self.steps)} steps: {self.done.output_tail()}")
        return self

    def losses(self):
        return [step["loss"] for step in self.steps]


def read_json(path):
    try:
        read = json.loads(path.read_text())
        return read if isinstance(read, dict) else {}
    except (OSError, ValueError):
        return {}


def finished_steps(path):
    """Skips the lines of validations between steps, and a last line that a killed run wrote only in part."""
    steps = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            step = json.loads(line)
        except ValueError:
            continue
        if isinstance(step, dict) and "loss" in step:
            steps.append(step)
    return steps


def plain_settings(machine, backend=None):
    return (f"memory.backend={backend or machine.backend}", "train.max_time=none", "log.sample_every=0", "train.eval_every=0", "data.val=[]",
            f"memory.nvme_dir={machine.out}/nvme", f"data.cache_dir={machine.out}/cache")  # fmt: skip


def train(check, name, *settings, backend=None, model=("--preset", "austen-5m"), environment=None, keep=False, limit=600.0):
    """Runs `strata train`. Deletes the run's folder unless `keep`."""
    machine = check.machine
    folder = folder_removed(machine.out / "run" / name)
    command = [machine.strata, "train", *model, "--out", folder, *plain_settings(machine, backend), f"checkpoint.at_end={str(keep).lower()}", *settings]
    done = check.run(name, command, limit, environment)
    result = Run(done, finished_steps(folder / "metrics.jsonl"), read_json(folder / "summary.json"), read_json(folder / "plan.json"))
    if not keep:
        folder_removed(folder)
    return result


# Some batches' gradient norms exceed 100 at the preset's learning rate, and what is rounded otherwise then leads elsewhere.
LOSSES = ("optim.warmup=3", "optim.lr=3e-4", "memory.device=256MiB", "memory.pinned=256MiB", "memory.nvme=0")


def losses_of(check, name, *settings, **how):
    steps = f"train.steps={12 if check.machine.quick else 30}"
    return train(check, name, steps, *LOSSES, *settings, **how).whole().losses()


def compare_losses(here, host, bar):
    """Checks that losses fall, and differ from the host's by a relative error of at most `bar`."""
    off = max(abs(a - b) / abs(b) for a, b in zip(here, host, strict=True))
    if not off <= bar or not here[-1] < here[0]:
        raise CheckFailed(f"relative error {off:.2e} to the host's losses, at most {bar} allowed; losses went from {here[0]} to {here[-1]}")
    return {"first": here[0], "last": here[-1], "max_relative_error": off, "tolerance": bar}


def losses(check):
    """Compares the small model's losses on the backend under test with the host's."""
    for dtype, bar in (("f32", 1e-3), ("bf16", 2e-2)):
        check.run_item(dtype, lambda: compare_losses(losses_of(check, f"{dtype} here", f"train.dtype={dtype}"),
                                           losses_of(check, f"{dtype} on the host", f"train.dtype={dtype}", backend="host"), bar))  # fmt: skip


CHOICES = {"fp8": ("train.fp8=true",), "wgmma": ("train.attention_backend=wgmma",), "cudnn": ("train.attention_backend=cudnn",)}


def choice(check, kind):
    asked = CHOICES[kind]
    try:
        here = losses_of(check, f"{kind} here", "train.dtype=bf16", *asked, limit=90)
    except CheckFailed as failure:
        if re.search(r"train\.(fp8|attention_backend) = [\w,/]+: ", str(failure)):  # unsupported by GPU, build or machine
            return {"skipped": str(failure)}
        raise
    return compare_losses(here, losses_of(check, f"{kind} on the host", "train.dtype=bf16", *(asked if kind == "fp8" else ()), backend="host"), 2e-2)


def choices(check):
    """Compares features that a run must opt into with the host, each by itself."""
    for kind in CHOICES:
        if check.machine.gpu:
            check.run_item(kind, lambda: choice(check, kind))
        else:
            check.skip(kind, "no GPU")


def placements(check):
    """Trains the small model in several placements, some with little device memory, and compares all bits."""
    machine = check.machine

    def verify():
        done = check.run("verify", [machine.strata, "verify", "--preset", "austen-5m", "--steps", "3" if machine.quick else "10",
                                    f"memory.backend={machine.backend}", f"memory.nvme_dir={machine.out}/nvme",
                                    f"data.cache_dir={machine.out}/cache", "log.sample_every=0"])  # fmt: skip
        return {"output": done.require_stdout().strip().split("\n")[-1]}

    check.run_item("verify", verify)


VARIANTS = {"layer by layer": ("offload.micro_batch_order=breadth_first",), "activations in RAM": ("offload.activations=pinned", "train.recompute=none"),
        "speculative updates": ("offload.step_mode=speculative",), "updates at the end": ("offload.step_mode=serial",)}  # fmt: skip


def lifecycle_settings(machine):
    full_budget, less = ("48MiB", "32MiB") if machine.backend == "host" else ("80MiB", "64MiB")  # GPU GEMMs have a workspace
    common = ("train.dtype=bf16", "optim.schedule=constant", "optim.warmup=2", "train.micro_batch=2", "train.grad_accum=4",
              f"memory.device={full_budget}", "memory.pinned=192MiB", "memory.nvme=0")  # fmt: skip
    return common, less


def digest_of(run):
    return run.whole().summary["state_digest"]


def resumed(check, common, less):
    folder = check.machine.out / "run" / "stopped"
    train(check, "stopped", *common, "train.steps=3", keep=True).whole()
    check.run("resumed", [check.machine.strata, "train", "--resume", folder, "train.steps=6", f"memory.device={less}"]).require_stdout()
    return read_json(folder / "summary.json")["state_digest"]


def texts_of(generated):
    return [json.loads(line)["text"] for line in generated.splitlines() if line.startswith("{")]


def evaluate_generate_export(check):
    """Evaluates, generates from and exports the run that was stopped and resumed."""
    machine, folder, exported = check.machine, check.machine.out / "run" / "stopped", folder_removed(check.machine.out / "run" / "exported")
    novel = "examples/data/austen/persuasion.txt"
    loss = json.loads(check.run("eval", [machine.strata, "eval", folder, "--data", novel, "--batches", "4", "--json"]).require_stdout())
    prompts = ("--prompt", "Elizabeth ", "--prompt", "It is a truth ", "--tokens", "24", "--temperature", "0", "--json")
    generated = texts_of(check.run("generate", [machine.strata, "generate", folder, *prompts]).require_stdout())
    check.run("export", [machine.strata, "export", folder, "--out", exported, "--check"]).require_stdout()
    again = texts_of(check.run("generate exported", [machine.strata, "generate", exported, *prompts, f"memory.backend={machine.backend}"]).require_stdout())
    if generated != again:
        raise CheckFailed(f"the exported model generates {again} instead of {generated}")
    return {"eval": {key: loss[key] for key in loss if key in ("loss", "bits_per_byte")}, "generated": generated}


def lifecycle(check):
    """Checks that a run in other orders, or stopped and resumed, ends with the same bits and can be used
    afterwards."""
    common, less = lifecycle_settings(check.machine)
    straight = []

    def straight_run():
        straight.append(digest_of(train(check, "straight", *common, "train.steps=6")))
        return {"digest": straight[0]}

    def same(other):
        if not straight:
            raise CheckFailed("the straight run has no digest to compare with")
        digest = other()
        if digest != straight[0]:
            raise CheckFailed(f"state digest {digest} differs from {straight[0]}")
        return {"digest": digest}

    check.run_item("straight", straight_run)
    for variant, settings in VARIANTS.items():
        check.run_item(variant, lambda: same(lambda: digest_of(train(check, variant, *common, "train.steps=6", *settings))))
    check.run_item("stopped, resumed with less memory", lambda: same(lambda: resumed(check, common, less)))
    check.run_item("eval, generate, export", lambda: evaluate_generate_export(check))
