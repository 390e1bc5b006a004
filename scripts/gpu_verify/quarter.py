"""A quarter of an hour on a GPU: what decides about kernels, plans and defaults, in the order of its worth. Each part
has so many seconds, and later parts have what earlier ones leave."""
import dataclasses
import os
import pathlib
import subprocess

import rates
import scenarios
from conformance import conformance
from processes import CheckFailed
from scenarios import LLAMA_1B, LLAMA_7B, QUARTER_7B, SMALL, Scenario

ANYWHERE = "where the plan wants"
CHANGED_OPS = "Attention|Elementwise|Norms|Rope|LinearCrossEntropy|LogProbs|Update|Accumulat"
MOST_OVER_TRIAD = 1.3  # AdamW reads and writes RAM, and does not outrun it


def facts(check):
    def of_machine():
        text = {name: pathlib.Path(path).read_text().strip() for name, path in (("huge_pages", "/sys/kernel/mm/transparent_hugepage/enabled"),) if pathlib.Path(path).exists()}
        cpu = subprocess.run(["lscpu"], capture_output=True, text=True).stdout.splitlines()
        return {"cores": os.cpu_count(), "ram_bytes": check.machine.ram_bytes(), "cpu": [line for line in cpu if line.startswith(("Model name", "L2", "L3", "NUMA node"))], **text}

    check.run_item("machine", of_machine)


def machine_rates(check):
    for part in ("peak", "dram", "link"):
        check.run_item(part, lambda: rates.rate_of(check, part))


def changed_ops(check):
    conformance(check, CHANGED_OPS if check.machine.gpu else "")


def kernel_rates(check):
    for part in ("attention", "elementwise", "heads", "gemms", "updates"):
        check.run_item(part, lambda: rates.rate_of(check, part, "kernel_rates"))


def profile(check):
    machine = check.machine

    def measured():
        found = rates.bench(check, "bench", rates.profile_path(machine), "--quick")
        host = found["host"]
        update, triad = 26 / host["update_ns"][0], host["memory_gb_per_s"]
        if update > MOST_OVER_TRIAD * triad:
            raise CheckFailed(f"AdamW at {update:.1f} GB/s, but RAM at {triad:.1f} GB/s: it was measured in a cache")
        return {**found, "update_gb_per_s": update, "update_by_triad": update / triad}

    check.run_item("machine", measured)


def free(model, *extra, grad_accum=2):
    return Scenario(model, ANYWHERE, grad_accum, extra=extra, free=True)


def runs(of_gpu):
    """A part that runs scenarios, on the host the same with a small model."""

    def work(check):
        on_host = [dataclasses.replace(one, model=SMALL, extra=tuple(word for word in one.extra if not word.startswith(("memory.", "train.attention_backend=")))) for one in of_gpu]
        scenarios.run_scenarios(check, of_gpu if check.machine.gpu and not check.machine.quick else list({one.name(): one for one in on_host}.values()))

    return work


IN_HBM = [free(QUARTER_7B, "offload.policy=device", "train.recompute=full", f"train.attention_backend={attention}") for attention in ("mma", "wgmma", "cudnn", "auto")]
SMALL_GPU = ("memory.device=19GiB", "memory.pinned=26GiB")  # the ratios of 6.5 B on a card of 80 GB

# Name, seconds, work.
PARTS = (("facts", 5, facts),
         ("rates", 30, machine_rates),
         ("conformance", 60, changed_ops),
         ("kernels", 40, kernel_rates),
         ("profile", 40, profile),
         ("in HBM", 90, runs([*IN_HBM, free(QUARTER_7B)])),
         ("offloaded", 80, runs([free(QUARTER_7B, *SMALL_GPU), free(QUARTER_7B, *SMALL_GPU, grad_accum=8),
                                 free(QUARTER_7B, *SMALL_GPU, "offload.policy=pinned", grad_accum=8)])),
         ("6.5B", 100, runs([free(LLAMA_7B)])),
         ("1.2B", 45, runs([free(LLAMA_1B)])))  # fmt: skip
