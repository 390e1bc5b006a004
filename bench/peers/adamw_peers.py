#!/usr/bin/env python3
"""Measures AdamW of the Python packages on the CPU: that of torch, of DeepSpeed, of torchao, and strata's.

Needs a Python that has the peer (setup_peers.sh in this folder creates one); exits with 77 if it does not.

    adamw_peers.py --peer torch-fused|torch-foreach|torch-plain|deepspeed|torchao|strata
                   --flow kernel|cast|cast2|bf16 [--unscale] [--n N] [--tensors N] [--threads N] [--rounds N]
                   [--memory kept|huge|ordinary] [--json | --serve]

N float32 parameters in one flat tensor, or in as many tensors as --tensors says, of which the first is as large as the
embedding of GPT-2 124M in proportion; float32 moments, decoupled weight decay. The flows, pass by pass:
  kernel  the optimizer's step with float32 gradients
  cast    kernel, then the parameters are copied to bfloat16: the host's part of DeepSpeed's ZeRO-2 with the optimizer
          offloaded (deepspeed/runtime/zero/stage_1_and_2.py, step()), where gradients arrive widened to float32
  cast2   cast, after the gradients were widened on the host from bfloat16
  bf16    strata alone: the step with bfloat16 parameters and gradients, which keeps float32 masters itself
--unscale adds the work of unscale_and_clip_grads() there: the gradients are multiplied by 1 / (loss scale *
clip factor), which is 1 here so that rounds repeat. strata and torch-fused have `grad_scale` for that, which their step
divides by; the others need a pass before it. DeepSpeed computes norm and overflow on the device, at no cost to the
host; so both are left out here.

Prints the median over the rounds of ns per parameter and step; a round is as many steps as take 0.2 s. The
first steps, which touch the moments, are not timed. detail has a plain copy of N floats in the same round,
with which two runs can be compared on a machine whose memory bandwidth drifts, and the microseconds of a step
of 16 parameters, which is Python overhead only.
--memory configures malloc: ordinary: unchanged; huge: huge pages (glibc 2.35 and later); kept: huge pages,
and freed memory is kept, so that steps of many operations do not get their scratch from the kernel page by
page each time.
--serve runs one round for each line on stdin and prints its figures, for a caller that interleaves rounds,
and the summary at the end; the first reply comes when the program is warm."""
import argparse
import importlib.util
import json
import math
import os
import pathlib
import re
import statistics
import sys
import time

PEERS = ("torch-fused", "torch-foreach", "torch-plain", "deepspeed", "torchao", "strata")
MODULES = {"deepspeed": "deepspeed", "torchao": "torchao", "strata": "strata"}
TORCH_KINDS = {"torch-fused": {"fused": True}, "torch-foreach": {"foreach": True}, "torch-plain": {"foreach": False}}
SETTINGS = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
ROUND_S, WARM_STEPS, TINY_N, ABSENT = 0.2, 3, 16, 77
EMBEDDING = 0.31  # the embedding's share of the parameters of GPT-2 124M
MEMORY = {"ordinary": "", "huge": "glibc.malloc.hugetlb=1"}
MEMORY["kept"] = MEMORY["huge"] + ":glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776"
# Pins each OpenMP thread to a core, unless the caller has set these variables.
ENVIRONMENT = {"OMP_PROC_BIND": "true", "OMP_PLACES": "cores", "DS_ACCELERATOR": "cpu"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--peer", choices=PEERS, required=True)
    parser.add_argument("--flow", choices=("kernel", "cast", "cast2", "bf16"), default="kernel")
    parser.add_argument("--unscale", action="store_true", help="multiply the gradients by a factor first")
    parser.add_argument("--n", type=lambda text: int(float(text)), default=100_000_000, help="parameters")
    parser.add_argument("--tensors", type=int, default=1, help="tensors that the parameters are in")
    parser.add_argument("--threads", type=int, default=cores)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", choices=("kept", "huge", "ordinary"), default="kept")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="print JSON instead of text")
    shown.add_argument("--serve", action="store_true", help="run one round for each line on stdin, print JSON")
    given = parser.parse_args()
    problems = [f"--{name} is {value}, at least 1 is needed" for name, value in
                (("n", given.n), ("tensors", given.tensors), ("threads", given.threads), ("rounds", given.rounds)) if value < 1]  # fmt: skip
    if given.threads > cores:
        problems.append(f"--threads is {given.threads}, {cores} cores are there")
    if given.flow == "bf16" and given.peer != "strata":
        problems.append(f"--flow bf16 is for strata, not for {given.peer}")
    if problems:
        parser.error("; ".join(problems))
    return given


def restart_settled(given):
    """Executes this program again with the environment, which malloc and OpenMP read only at start."""
    pinned = {} if given.peer == "strata" else ENVIRONMENT  # its threads would inherit the core of the first one
    wanted = {**pinned, **os.environ, "OMP_NUM_THREADS": str(given.threads), "GLIBC_TUNABLES": MEMORY[given.memory]}
    if wanted != dict(os.environ):
        os.execve(sys.executable, [sys.executable, *sys.argv], wanted)


def absent(why):
    print(f"adamw_peers: {why}", file=sys.stderr)
    sys.exit(ABSENT)


def optimizer_of(given, parameters):
    import torch

    if given.peer == "strata":
        from strata import optim

        return optim.AdamW(parameters, threads=given.threads, **SETTINGS)
    if given.peer == "deepspeed":
        from deepspeed.ops.adam import DeepSpeedCPUAdam

        return DeepSpeedCPUAdam(parameters, adamw_mode=True, **SETTINGS)
    if given.peer == "torchao":
        from torchao.optim import CPUOffloadOptimizer

        try:
            return CPUOffloadOptimizer(parameters, torch.optim.AdamW, fused=True, **SETTINGS)
        except AssertionError as error:
            absent(f"torchao's CPUOffloadOptimizer refuses CPUs: {error}")
    try:
        return torch.optim.AdamW(parameters, **TORCH_KINDS[given.peer], **SETTINGS)
    except (RuntimeError, TypeError) as error:  # fused: only CUDA before 2.4, absent before 2.0
        absent(f"torch {torch.__version__} has no {given.peer} AdamW for the CPU: {error}")


def sizes_of(n, tensors):
    """Elements of each tensor."""
    if tensors == 1 or n < 4 * tensors:
        return [n]
    first = int(n * EMBEDDING)
    others, more = divmod(n - first, tensors - 1)
    return [first, *(others + (i < more) for i in range(tensors - 1))]


class Job:
    """The tensors of one flow and its passes by name."""

    def __init__(self, given, n):
        import torch

        random = torch.Generator().manual_seed(1)
        dtype = torch.bfloat16 if given.flow == "bf16" else torch.float32

        def normal(size, deviation):
            return torch.empty(size).normal_(0, deviation, generator=random).to(dtype)

        sizes = sizes_of(n, given.tensors)
        self.parameters = [torch.nn.Parameter(normal(size, 0.02)) for size in sizes]
        for parameter, size in zip(self.parameters, sizes):
            parameter.grad = normal(size, 1e-3)
        self.gradients = [parameter.grad for parameter in self.parameters]
        casts = given.flow in ("cast", "cast2")
        self.narrow = [torch.zeros(size, dtype=torch.bfloat16) for size in sizes] if casts else []
        self.arrived = [gradient.to(torch.bfloat16) for gradient in self.gradients] if given.flow == "cast2" else []
        self.factor = torch.tensor(1.0)  # a tensor in DeepSpeed too, since it is computed from the norm
        self.optimizer = optimizer_of(given, self.parameters)
        self.passes = {"widen the bf16 gradients": self.widen} if given.flow == "cast2" else {}
        divides = given.peer in ("strata", "torch-fused")
        if given.unscale and divides:
            self.optimizer.grad_scale = self.factor
        elif given.unscale:
            self.passes[f"multiply the {'bf16' if given.flow == 'bf16' else 'f32'} gradients"] = self.unscale
        self.passes["the optimizer's step" + (", which divides by grad_scale" if given.unscale and divides else "")] = self.optimizer.step
        if casts:
            self.passes["copy the f32 parameters to bf16"] = self.cast

    def widen(self):
        for gradient, arrived in zip(self.gradients, self.arrived):
            gradient.copy_(arrived)

    def unscale(self):
        factor = 1.0 / self.factor
        for gradient in self.gradients:
            gradient.mul_(factor)

    def cast(self):
        for narrow, parameter in zip(self.narrow, self.parameters):
            narrow.copy_(parameter.data)

    def run(self, steps=1):
        passes = list(self.passes.values())
        begin = time.perf_counter()
        for _ in range(steps):
            for one_pass in passes:
                one_pass()
        return time.perf_counter() - begin


def steps_a_round(job):
    job.run(WARM_STEPS)
    steps = 1
    while (seconds := job.run(steps)) < ROUND_S / 2:
        steps *= 2
    return max(1, math.ceil(ROUND_S * steps / seconds))


class Rounds:
    def __init__(self, given):
        import torch

        self.given, self.job = given, Job(given, given.n)
        self.steps = steps_a_round(self.job)
        self.copied = [torch.zeros_like(parameter) for parameter in self.job.parameters]
        self.figures = []

    def one(self):
        """Returns ns per parameter of a step and of a plain copy of the parameters, and their ratio."""
        begin = time.perf_counter()
        for _ in range(self.steps):
            for copied, parameter in zip(self.copied, self.job.parameters):
                copied.copy_(parameter.data)
        copy = (time.perf_counter() - begin) / self.steps / self.given.n * 1e9
        step = self.job.run(self.steps) / self.steps / self.given.n * 1e9
        self.figures.append({"ns_per_param": round(step, 4), "copy_ns_per_param": round(copy, 4),
                             "over_copy": round(step / copy, 3)})  # fmt: skip
        return self.figures[-1]


def huge_pages_mib():
    found = re.search(r"AnonHugePages: *(\d+)", pathlib.Path("/proc/self/smaps_rollup").read_text())
    return int(found.group(1)) // 1024 if found else 0


def report(given, rounds):
    import torch

    tiny = Job(given, TINY_N)
    tiny_steps = steps_a_round(tiny)
    values = [figure["ns_per_param"] for figure in rounds.figures]
    version = sys.modules[MODULES.get(given.peer, "torch")].__version__
    detail = {"unscale": given.unscale, "passes": list(rounds.job.passes), "rounds": rounds.figures,
              "steps_per_round": rounds.steps, "us_per_step_of_16": round(tiny.run(tiny_steps) / tiny_steps * 1e6, 2),
              "median_over_copy": statistics.median(figure["over_copy"] for figure in rounds.figures),
              "memory": given.memory, "huge_pages_mib": huge_pages_mib(),
              "torch": torch.__version__, "torch_threads": torch.get_num_threads(),
              "environment": {name: os.environ[name]
                              for name in (*ENVIRONMENT, "OMP_NUM_THREADS", "GLIBC_TUNABLES") if name in os.environ}}  # fmt: skip
    return {"peer": given.peer, "version": version, "flow": given.flow, "n": given.n, "tensors": given.tensors, "threads": given.threads,
            "ns_per_param": statistics.median(values), "spread": [min(values), max(values)], "detail": detail}  # fmt: skip


def main():
    given = arguments()
    restart_settled(given)
    out = os.fdopen(os.dup(1), "w", buffering=1)  # only for the JSON; peers also print to stdout
    os.dup2(2, 1)
    for module in {"torch", MODULES.get(given.peer, "torch")}:
        if importlib.util.find_spec(module) is None:
            absent(f"{sys.executable} has no {module}")
    import torch

    torch.set_num_threads(given.threads)
    rounds = Rounds(given)
    if given.serve:
        for _ in sys.stdin:
            print(json.dumps(rounds.one()), file=out)
        if not rounds.figures:
            return
    else:
        for _ in range(given.rounds):
            rounds.one()
    result = report(given, rounds)
    if given.json or given.serve:
        print(json.dumps(result), file=out)
    else:
        low, high = result["spread"]
        print(f"{given.peer} {result['version']}, {' + '.join(rounds.job.passes)}, {given.n} parameters, "
              f"{given.threads} threads: {result['ns_per_param']} ns per parameter ({low} .. {high})", file=out)  # fmt: skip


main()
