"""A model with checkpointed blocks, and steps with and without strata.offload_activations()."""

from torch_model import batches, loss_of, torch, values

if not hasattr(torch.autograd.graph, "saved_tensors_hooks"):
    print("strata.offload_activations needs a later torch")
    raise SystemExit(77)

from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)
KIB = 1 << 10
RAM = dict(pinned=1024 * KIB, page_bytes=4 * KIB, min_bytes=1)  # nearly all that is saved moves


class Blocks(torch.nn.Module):
    """In-place operations, views of one storage, a mask, a buffer, a frozen layer, and a tied weight."""

    def __init__(self, checkpoints=False):
        super().__init__()
        torch.manual_seed(1)
        self.checkpoints = checkpoints
        self.first = torch.nn.Linear(32, 96)
        self.frozen = torch.nn.Linear(32, 32).requires_grad_(False)
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(inplace=True), torch.nn.Linear(64, 32))
            for _ in range(4)
        )
        self.norm = torch.nn.BatchNorm1d(32)
        self.register_buffer("table", torch.randn(32, 32))
        self.last = torch.nn.Linear(32, 10)

    def forward(self, x):
        q, k, v = self.first(x).split(32, dim=1)  # views of one storage
        x = torch.softmax(q @ k.t(), dim=1) @ v
        for block in self.blocks:
            x = x + (checkpoint(block, x, use_reentrant=False) if self.checkpoints else block(x))
            x = torch.where(x > 0, x, 0.1 * x)
        x = self.norm(torch.tanh(self.frozen(x) @ self.table.t()))
        return self.last(x @ self.blocks[0][0].weight.t() @ self.blocks[0][0].weight)


class Bfloat16(torch.nn.Module):
    """Activations are of 16 bits where this torch computes in them."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        x = self.net[0](x).to(torch.bfloat16)
        return self.net[4](self.net[2]((x * x).float()))


def gradients_of(net):
    return [torch.zeros(1) if param.grad is None else param.grad.clone() for param in net.parameters()]


def steps(make, activations=None, use=None, n=3):
    """Losses and gradients of some steps with plain SGD."""
    net = make()
    found = []
    for pair in (list(batches(2, seed=step)) for step in range(n)):
        if use is not None:
            found += use(net, pair, activations) or ()
        else:
            with activations or NOTHING:
                loss = loss_of(net, *pair[0])
            loss.backward()
            found.append(loss.detach())
        found += gradients_of(net)
        with torch.no_grad():
            for param in net.parameters():
                if param.grad is not None:
                    param -= 0.1 * param.grad
        net.zero_grad()
    return [*found, *values(net)]


class Nothing:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


NOTHING = Nothing()
