#!/usr/bin/env python3
"""Trains a LLaMA-like decoder as the stages of a pipeline with torch.distributed.pipelining over gloo, in float32, for
comparison with strata's pipelines. Needs torch 2.5 or later; exits with 77 without it.

    torch_pipeline.py --ranks 2 --schedule 1f1b --micro-batches 8 ...

Every rank is a process with one thread and as many layers as the others; the embedding is in the first stage, and the
head, which is not tied to it, in the last one. A step runs the schedule over random tokens and then fused AdamW. Prints
the seconds of each step as JSON; with --serve it runs --steps further steps for each line on stdin."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

ABSENT = 77
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"  # read when torch is imported
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all ranks are on this machine


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schedule", choices=("gpipe", "1f1b"), default="1f1b")
    for name, default in (("ranks", 2), ("layers", 8), ("hidden", 384), ("heads", 6), ("ffn", 1024), ("vocab", 1024), ("seq", 128),
                          ("micro-batch", 2), ("micro-batches", 8), ("steps", 5), ("rank", 0)):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--serve", action="store_true", help="run steps for each line on stdin")
    parser.add_argument("--meet", help=argparse.SUPPRESS)  # the file through which the ranks find each other
    return parser.parse_args()


def stage_of(given):
    """The layers of this rank as a module."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            h = given.hidden
            self.attn_norm, self.mlp_norm = nn.RMSNorm(h), nn.RMSNorm(h)
            self.qkv, self.out = nn.Linear(h, 3 * h, bias=False), nn.Linear(h, h, bias=False)
            self.up, self.down = nn.Linear(h, 2 * given.ffn, bias=False), nn.Linear(given.ffn, h, bias=False)
            half = torch.arange(0, h // given.heads, 2).float() / (h // given.heads)
            angles = torch.outer(torch.arange(given.seq).float(), 10000.0**-half)
            self.register_buffer("cos", torch.cat([angles.cos()] * 2, -1))
            self.register_buffer("sin", torch.cat([angles.sin()] * 2, -1))

        def rotate(self, x):
            first, second = x.chunk(2, -1)
            return x * self.cos + torch.cat([-second, first], -1) * self.sin

        def forward(self, x):
            b, s, h = x.shape
            q, k, v = (t.view(b, s, given.heads, -1).transpose(1, 2) for t in self.qkv(self.attn_norm(x)).chunk(3, -1))
            y = nn.functional.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, s, h))
            gate, up = self.up(self.mlp_norm(x)).chunk(2, -1)
            return x + self.down(nn.functional.silu(gate) * up)

    parts = [Block() for _ in range(given.layers // given.ranks)]
    if given.rank == 0:
        parts.insert(0, nn.Embedding(given.vocab, given.hidden))
    if given.rank == given.ranks - 1:
        parts += [nn.RMSNorm(given.hidden), nn.Linear(given.hidden, given.vocab, bias=False)]
    return nn.Sequential(*parts)


class Rank:
    def __init__(self, given):
        import torch
        from torch.distributed import pipelining

        torch.set_num_threads(1)
        torch.manual_seed(given.rank)
        torch.distributed.init_process_group("gloo", init_method=f"file://{given.meet}", rank=given.rank, world_size=given.ranks)
        self.given, module = given, stage_of(given)
        stage = pipelining.PipelineStage(module, given.rank, given.ranks, torch.device("cpu"))

        def loss(logits, targets):
            return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

        made = {"gpipe": pipelining.ScheduleGPipe, "1f1b": pipelining.Schedule1F1B}[given.schedule]
        self.schedule = made(stage, n_microbatches=given.micro_batches, loss_fn=loss)
        self.optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=True)

    def step(self):
        import torch

        given, losses = self.given, []
        shape = (given.micro_batches * given.micro_batch, given.seq)
        tokens, targets = torch.randint(given.vocab, shape), torch.randint(given.vocab, shape)
        torch.distributed.barrier()
        begin = time.perf_counter()
        inputs = (tokens,) if given.rank == 0 else ()
        last = {"target": targets, "losses": losses} if given.rank == given.ranks - 1 else {}
        self.schedule.step(*inputs, **last)
        self.optimizer.step()
        self.optimizer.zero_grad()
        torch.distributed.barrier()
        return time.perf_counter() - begin

    def round(self):
        return {"seconds": [round(self.step(), 6) for _ in range(self.given.steps)]}


def main():
    given = arguments()
    try:
        from torch.distributed import pipelining  # noqa: F401
    except ImportError as why:
        print(f"torch_pipeline: {why}", file=sys.stderr)
        sys.exit(ABSENT)
    with tempfile.TemporaryDirectory(prefix="torch-pipeline-") as folder, os.fdopen(os.dup(1), "w", buffering=1) as out:
        os.dup2(2, 1)  # stdout is for the JSON alone
        given.meet = given.meet or f"{folder}/meet"
        command = [sys.executable, *sys.argv, "--meet", given.meet, "--rank"]
        others = [subprocess.Popen([*command, str(rank)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
                  for rank in range(1, given.ranks) if given.rank == 0]  # fmt: skip
        rank = Rank(given)
        for _ in sys.stdin if given.serve or given.rank > 0 else [""]:
            for other in others:
                other.stdin.write("\n")
                other.stdin.flush()
            found = rank.round()
            if given.rank == 0:
                print(json.dumps(found), file=out)
        for other in others:
            other.stdin.close()
        if any([other.wait() for other in others]):
            sys.exit("torch_pipeline: another rank failed")


main()
