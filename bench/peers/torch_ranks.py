#!/usr/bin/env python3
"""Trains a GPT-2 or LLaMA folder with PyTorch on one or several ranks over gloo, in float32, for comparison with strata's
ranks. Needs torch and transformers (setup_peers.sh in this folder installs them); exits with 77 without them.

    torch_ranks.py --model DIR --batches FILE --mode plain|ddp|fsdp|tp --world N --local K [--steps N] [--serve] ...

--batches is a file of int32 rows of seq + 1 tokens; micro-batch k is rows k * --micro-batch and following. A
step takes N x K micro-batches in a row, of which rank r computes r, r + N, ...; at its end the file begins
again. Gradients are exchanged once a step: during the other micro-batches of a step DDP runs under no_sync()
and FSDP2 without requires_gradient_sync.
  plain  no process group; with --world 2, two programs that only run side by side
  ddp    DistributedDataParallel with its default buckets
  fsdp   FSDP2: fully_shard() of each block and of the model, resharded after forward (ZeRO-3)
  tp     parallelize_module(): DTensor's tensor parallelism of each block of a LLaMA; all ranks compute the same
         micro-batches, of which a step takes K
The optimizer is AdamW with a warm-up and a cosine schedule, clipping by the global norm, and weight decay for
matrices only.

This process is rank 0 and starts the others as processes. Each rank has one thread and, with --bound, one core
to itself. Prints the loss of each step (the mean over all ranks), its learning rate, gradient norm and seconds
as JSON; with --serve it trains --steps further steps for each line on stdin, and prints the steps of all rounds
again at the end. --describe prints the versions only. Losses are averaged over ranks after the last step of a
round, outside the measured time."""
import argparse
import contextlib
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
import time

ABSENT = 77
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"  # read when torch is imported
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all ranks are on this machine
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TRANSFORMERS_VERBOSITY": "error"}


def absent(why):
    print(f"torch_ranks: {why}", file=sys.stderr)
    sys.exit(ABSENT)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="Hugging Face folder")
    parser.add_argument("--batches", help="file of tokens")
    parser.add_argument("--mode", choices=("plain", "ddp", "fsdp", "tp"), default="plain")
    for name, default, what in (("world", 1, "ranks"), ("local", 1, "micro-batches of a rank in a step"), ("micro-batch", 1, "sequences"),
                                ("seq", 128, "tokens of a sequence"), ("steps", 1, "steps, or those of a round"),
                                ("warmup", 0, "steps of warm-up"), ("total-steps", 1000, "steps of the schedule")):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default, help=what)
    for name, default in (("lr", 1e-3), ("min-lr-ratio", 0.1), ("beta1", 0.9), ("beta2", 0.95), ("eps", 1e-8),
                          ("weight-decay", 0.1), ("clip", 1.0)):  # fmt: skip
        parser.add_argument(f"--{name}", type=float, default=default)
    parser.add_argument("--bound", action="store_true", help="rank r runs on the r-th core of this process alone")
    parser.add_argument("--serve", action="store_true", help="train a round for each line on stdin")
    parser.add_argument("--describe", action="store_true", help="print the versions of the peers")
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--meet", help=argparse.SUPPRESS)  # the file through which the ranks find each other
    given = parser.parse_args()
    if not given.describe and not (given.model and given.batches):
        parser.error("--model and --batches are needed")
    return given


def learning_rate(given, step):
    """The rate of step `step`, counted from 1."""
    if step < given.warmup:
        return given.lr * step / given.warmup
    least = given.lr * given.min_lr_ratio
    done = min(1.0, max(0, step - 1 - given.warmup) / max(1, given.total_steps - given.warmup))
    return least + (given.lr - least) * 0.5 * (1 + math.cos(math.pi * done))


class Rank:
    """The model, optimizer and data of one rank."""

    def __init__(self, given):
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(1)
        self.given, self.step = given, 0
        if given.mode != "plain":
            torch.distributed.init_process_group("gloo", init_method=f"file://{given.meet}", rank=given.rank, world_size=given.world)
        self.rows = torch.from_file(given.batches, size=os.path.getsize(given.batches) // 4, dtype=torch.int32).view(-1, given.seq + 1)
        model = AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32, attn_implementation="sdpa")
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        self.model = self.distribute(model.train())
        self.parameters = list(self.model.parameters())
        # The kernels of several tensors take no DTensors beside others.
        groups = [{"params": [p for p in self.parameters if (p.dim() >= 2) == decays and is_shared(p) == shared],
                   "weight_decay": given.weight_decay if decays else 0.0}
                  for decays in (True, False) for shared in (True, False)]  # fmt: skip
        groups = [group for group in groups if group["params"]]
        self.optimizer = torch.optim.AdamW(groups, lr=given.lr, betas=(given.beta1, given.beta2), eps=given.eps, fused=True)

    def distribute(self, model):
        import torch

        if self.given.mode == "ddp":
            return torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        if self.given.mode == "fsdp":
            try:
                from torch.distributed.fsdp import fully_shard
            except ImportError:  # before 2.6
                absent(f"torch {torch.__version__} has no FSDP2")
            mesh = torch.distributed.init_device_mesh("cpu", (self.given.world,))
            for block in model.transformer.h:
                fully_shard(block, mesh=mesh)
            fully_shard(model, mesh=mesh)
        if self.given.mode == "tp":
            from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

            mesh = torch.distributed.init_device_mesh("cpu", (self.given.world,))
            columns = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
            rows = ("self_attn.o_proj", "mlp.down_proj")
            for block in model.model.layers:
                parallelize_module(block, mesh, {name: ColwiseParallel() for name in columns} | {name: RowwiseParallel() for name in rows})
        return model

    @property
    def data_ranks(self):
        """Ranks that compute different micro-batches."""
        return 1 if self.given.mode == "tp" else self.given.world

    @contextlib.contextmanager
    def exchange(self, last):
        """Gradients are exchanged in the last micro-batch of a step alone."""
        if self.given.mode == "fsdp":
            self.model.set_requires_gradient_sync(last)
        with contextlib.nullcontext() if last or self.given.mode != "ddp" else self.model.no_sync():
            yield

    def micro_batch(self, local):
        given = self.given
        ranks = self.data_ranks
        index = (self.step - 1) * ranks * given.local + local * ranks + given.rank % ranks
        at = index % (len(self.rows) // given.micro_batch) * given.micro_batch
        rows = self.rows[at : at + given.micro_batch].long()
        return rows[:, :-1], rows[:, 1:]

    def loss(self, local):
        import torch

        tokens, targets = self.micro_batch(local)
        logits = self.model(input_ids=tokens, use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def clip(self):
        """Clips by the global norm and returns it."""
        import torch

        whole = torch.zeros(())
        kinds = [[p for p in self.parameters if is_shared(p) == shared and p.grad is not None] for shared in (True, False)]
        for parameters in filter(None, kinds):
            norm = torch.nn.utils.get_total_norm([p.grad for p in parameters])
            whole = torch.hypot(whole, norm.full_tensor() if is_shared(norm) else norm)
        for parameters in filter(None, kinds):
            torch.nn.utils.clip_grads_with_norm_(parameters, self.given.clip, whole)
        return whole

    def train_step(self):
        """Returns the mean loss of this rank, a tensor, with learning rate, gradient norm and seconds."""
        import torch

        given, losses = self.given, []
        self.step += 1
        begin = time.perf_counter()
        for local in range(given.local):
            with self.exchange(last=local + 1 == given.local):
                loss = self.loss(local)
                (loss / given.local).backward()
            losses.append(loss.detach())
        norm = self.clip()
        lr = learning_rate(given, self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        self.optimizer.zero_grad()
        seconds = time.perf_counter() - begin
        return torch.stack(losses).mean(), {"lr": lr, "grad_norm": norm.item(), "seconds": round(seconds, 6)}

    def round(self):
        import torch

        losses, steps = zip(*(self.train_step() for _ in range(self.given.steps)))
        losses = torch.stack(losses).double()
        if self.given.mode != "plain":
            torch.distributed.all_reduce(losses)
            losses /= self.given.world
        return {name: [step[name] for step in steps] for name in ("lr", "grad_norm", "seconds")} | {"loss": losses.tolist()}


def is_shared(tensor):
    return hasattr(tensor, "full_tensor")  # a DTensor


class OtherRanks:
    """The processes of ranks 1 and above. A line on stdin begins a round; they end with their stdin."""

    def __init__(self, world, meet):
        command = [sys.executable, *sys.argv, "--meet", meet, "--rank"]
        self.processes = [subprocess.Popen([*command, str(rank)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
                          for rank in range(1, world)]  # fmt: skip

    def begin_round(self):
        for process in self.processes:
            process.stdin.write("\n")
            process.stdin.flush()

    def end(self):
        for process in self.processes:
            process.stdin.close()
        if any([process.wait() for process in self.processes]):
            sys.exit("torch_ranks: another rank failed")


def bind(rank):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})


def follow(given):
    rank = Rank(given)
    for _ in sys.stdin:
        rank.round()


def lead(given, others, out):
    rank, rounds = Rank(given), []
    for _ in sys.stdin if given.serve else [""]:
        others.begin_round()
        rounds.append(rank.round())
        print(json.dumps(rounds[-1]), file=out)
    if given.serve:
        print(json.dumps({"rounds": rounds}), file=out)


def versions():
    import torch
    import transformers

    return {"torch": torch.__version__, "transformers": transformers.__version__, "gloo": torch.distributed.is_gloo_available()}


def main():
    given = arguments()
    for module in ("torch", "transformers"):
        if importlib.util.find_spec(module) is None:
            absent(f"{sys.executable} has no {module}")
    if given.describe:
        print(json.dumps(versions()))
        return
    with tempfile.TemporaryDirectory(prefix="torch-ranks-") as folder, os.fdopen(os.dup(1), "w", buffering=1) as out:
        os.dup2(2, 1)  # stdout is for the JSON alone; the peers log there, too
        given.meet = given.meet or f"{folder}/meet"
        others = OtherRanks(given.world if given.rank == 0 else 1, given.meet)
        if given.bound:
            bind(given.rank)  # after the others have inherited all cores
        if given.rank == 0:
            lead(given, others, out)
        else:
            follow(given)
        others.end()
        if given.mode != "plain":
            import torch

            torch.distributed.destroy_process_group()


main()
