"""A model with its optimizer: offloaded, or as PyTorch alone has it."""

import torch

import strata

from . import blocks

OPTIMIZERS = {
    "adamw": (strata.optim.AdamW, torch.optim.AdamW, dict(lr=1e-2, eps=1e-3, weight_decay=0.01)),
    "adam": (strata.optim.Adam, torch.optim.Adam, dict(lr=1e-2, eps=1e-3, weight_decay=0.01)),
    "adagrad": (strata.optim.Adagrad, torch.optim.Adagrad, dict(lr=1e-2, eps=1e-3)),
    "sgd": (strata.optim.SGD, torch.optim.SGD, dict(lr=1e-2)),
    "momentum": (strata.optim.SGD, torch.optim.SGD, dict(lr=1e-2, momentum=0.9, nesterov=True)),
    "lion": (strata.optim.Lion, None, dict(lr=1e-3)),
    "lamb": (strata.optim.LAMB, None, dict(lr=1e-2)),
}


class Setup:
    """The settings of a case; both worlds are built from it."""

    def __init__(self, random, folder):
        self.model_seed, self.n_blocks = random.randrange(1 << 30), random.randint(1, 4)
        self.optimizer = random.choice(list(OPTIMIZERS))
        # torch's own optimizer beside ours differs by rounding; ours on plain tensors has the same bits.
        self.beside_torch = OPTIMIZERS[self.optimizer][1] is not None and random.random() < 0.3
        self.frozen = random.random() < 0.15
        self.before = random.random() < 0.15  # the optimizer is made before strata.offload()
        self.groups = random.random() < 0.2
        self.room = random.choice(["largest", "largest", "twice", "half", "all", None])
        self.options = dict(pinned="16MiB", threads=1, chunk_elems=random.choice([None, 4096]))
        self.nvme = dict(nvme=folder, placement="nvme") if random.random() < 0.1 else {}
        self.tolerance = 2e-4 if self.beside_torch else 0


def _make_net(setup):
    import random

    torch.manual_seed(setup.model_seed)
    made = blocks.Net(random.Random(setup.model_seed), setup.n_blocks)
    if setup.frozen:
        for param in made.blocks[0].parameters():
            param.requires_grad_(False)
    return made


def _device(net, room):
    if room is None:
        return None
    largest = max(sum(p.numel() * p.element_size() for p in module.parameters(recurse=isinstance(
        module, (torch.nn.MultiheadAttention, torch.nn.TransformerEncoderLayer)))) for module in net.modules())  # fmt: skip
    all_bytes = sum(p.numel() * p.element_size() for p in net.parameters())
    return {"largest": largest, "twice": 2 * largest, "half": max(largest, all_bytes // 2), "all": 2 * all_bytes}[room]


class World:
    log = staticmethod(lambda text: None)

    def __init__(self, setup, offloads):
        self.offloads, self.kept, self.setup = offloads, {}, setup
        self.net = _make_net(setup)
        ours, theirs, settings = OPTIMIZERS[setup.optimizer]
        params = [p for p in self.net.parameters() if p.requires_grad]
        if setup.groups:
            params = [dict(params=params[::2], lr=5e-3), dict(params=params[1::2])]
            params = [group for group in params if group["params"]]
        if offloads and not setup.before:
            self._offload()
        if offloads or not setup.beside_torch:
            self.optimizer = ours(params, **settings, **({} if offloads else dict(pinned="16MiB", threads=1)))
        else:
            self.optimizer = theirs(params, **settings)
        if offloads and setup.before:
            self._offload()

    def _offload(self):
        device = _device(self.net, self.setup.room)
        strata.offload(self.net, device=device, **self.setup.options, **self.setup.nvme)

    def module(self, random):
        return random.choice([m for m in self.net.modules() if m is not self.net])

    def param(self, random):
        return random.choice(list(self.net.parameters()))


def batch(random, rows=4):
    source = torch.Generator().manual_seed(random.randrange(1 << 30))
    return torch.randn(rows, blocks.D, generator=source), torch.randn(rows, blocks.D, generator=source)
