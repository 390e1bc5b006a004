"""A training loop that prints what memory it used, as JSON.

    memory_loop.py KIND [WORKERS]

KIND: sgd (torch's, without momentum, which keeps nothing), torch (its AdamW), or strata, whose other keywords are JSON
in the variable MEMORY_LOOP. With WORKERS, batches come from a DataLoader with as many forked processes, of which the
largest resident memory is printed, too: a page that a worker shares with the others counts in full, since the workers
keep a copy together when the main process writes to what it has in common with them."""

import json
import os
import sys

import torch

LAYERS, WIDTH, BATCH, STEPS = 24, 1024, 4, 4  # 25 million parameters


def kib_of(file, *names):
    with open(f"/proc/self/{file}") as lines:
        return sum(int(line.split()[1]) for line in lines if line.split(":")[0] in names)


class Batches(torch.utils.data.Dataset):
    """Each row has the resident memory of the process that made it."""

    def __len__(self):
        return BATCH * 16 * STEPS

    def __getitem__(self, i):
        return torch.ones(WIDTH), torch.tensor(kib_of("status", "VmRSS"))


def optimizer_of(kind, params):
    if kind == "sgd":
        return torch.optim.SGD(params, lr=1e-3)
    if kind == "torch":
        return torch.optim.AdamW(params, lr=1e-3, fused=True)
    from strata import optim

    return optim.AdamW(params, lr=1e-3, threads=1, **json.loads(os.environ["MEMORY_LOOP"]))


def main():
    kind, workers = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
    torch.set_num_threads(1)
    torch.manual_seed(1)
    net = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    optimizer = optimizer_of(kind, net.parameters())
    planned = optimizer.plan()["pinned_bytes"] if kind == "strata" else 0

    def step(x):
        net(x).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(STEPS):
        step(torch.ones(BATCH, WIDTH))
    of_workers = 0
    if workers:
        loader = torch.utils.data.DataLoader(Batches(), BATCH, num_workers=workers, multiprocessing_context="fork")
        for number, (x, resident) in enumerate(loader):
            if number % 8 == 0:
                step(x)
            of_workers = max(of_workers, resident.max().item())
    print(json.dumps({"planned": planned, "peak": kib_of("status", "VmHWM") << 10, "of_workers": of_workers << 10,
                      "params": sum(param.numel() for param in net.parameters())}))  # fmt: skip


if __name__ == "__main__":
    main()
