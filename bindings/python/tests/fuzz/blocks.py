"""Random modules that map (batch, D) to (batch, D), of what torch.nn has and of what people write."""

import dataclasses

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

D = 8


class Wrapped(nn.Module):
    """A module of torch.nn that needs another shape than (batch, D)."""

    def __init__(self, inner, call):
        super().__init__()
        self.inner, self.call = inner, call

    def forward(self, x):
        return self.call(self.inner, x)


class Listed(nn.Module):
    """Reads parameters of a child that is never called."""

    def __init__(self, n):
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(D, D) / 3) for _ in range(n)])

    def forward(self, x):
        for weight in self.weights:
            x = torch.tanh(x @ weight)
        return x


class Keyed(nn.Module):
    def __init__(self):
        super().__init__()
        self.all = nn.ParameterDict({"w": nn.Parameter(torch.randn(D, D) / 3), "b": nn.Parameter(torch.zeros(D))})

    def forward(self, x):
        return F.linear(x, self.all["w"], self.all["b"])


class ReadsChild(nn.Module):
    def __init__(self, calls):
        super().__init__()
        self.child, self.calls = nn.Linear(D, D), calls

    def forward(self, x):
        y = F.linear(x, self.child.weight * 0.5, self.child.bias)
        return y + self.child(x) if self.calls else y


@dataclasses.dataclass
class Output:
    hidden: torch.Tensor
    scale: float


class GivesDataclass(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.linear, self.kind = nn.Linear(D, D), kind

    def forward(self, x):
        y = self.linear(x)
        return {"dataclass": Output(y, 0.5), "dict": {"hidden": [y]}, "tuple": (None, (y,)), "object": lambda: y}[self.kind]


class TakesDataclass(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.inner, self.last = GivesDataclass(kind), nn.Linear(D, D)

    def forward(self, x):
        given, kind = self.inner(x), self.inner.kind
        y = {"dataclass": lambda: given.hidden * given.scale, "dict": lambda: given["hidden"][0],
             "tuple": lambda: given[1][0], "object": lambda: given()}[kind]()  # fmt: skip
        return self.last(y)


class InPlace(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.linear, self.norm, self.kind = nn.Linear(D, D), nn.LayerNorm(D), kind

    def forward(self, x):
        y = self.linear(x)
        if self.kind == "relu_":
            y.relu_()
        elif self.kind == "add_":
            y.add_(x)
        elif self.kind == "slice":
            y[:, :2] = 0.5
        else:
            y.mul_(2)
            return self.norm(y).sub_(0.25)
        return self.norm(y)


class Viewed(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.weight, self.bias, self.kind = nn.Parameter(torch.randn(D, D) / 3), nn.Parameter(torch.zeros(1)), kind

    def forward(self, x):
        w = self.weight
        if self.kind == "t":
            return x @ w.t() + self.bias
        if self.kind == "chunk":
            a, b = w.chunk(2, dim=1)
            return torch.cat([x @ a, torch.sigmoid(x @ b)], dim=1) + self.bias.expand(D)
        if self.kind == "einsum":
            return torch.einsum("bi,ji->bj", x, w) + self.bias
        if self.kind == "held":
            view = w.view(-1)
            y = x @ view.view(D, D)
            return y * (1 + view[:D]) + self.bias
        if self.kind == "twice":
            return (x @ w) @ w + w.mean() * self.bias
        return x @ (w.detach() + w) * 0.5 + w[0] + self.bias


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return gradient @ weight.t(), x.t() @ gradient


class KeepsWeight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.weight, ctx.x = weight, x
        return x @ weight

    @staticmethod
    def backward(ctx, gradient):
        return gradient @ ctx.weight.t(), ctx.x.t() @ gradient


class OwnFunction(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.weight, self.function = nn.Parameter(torch.randn(D, D) / 3), function

    def forward(self, x):
        return self.function.apply(x, self.weight)


class Remembers(nn.Module):
    """Leaves something of its parameters in an attribute, which another method reads."""

    def __init__(self):
        super().__init__()
        self.weight, self.scale = nn.Parameter(torch.randn(D, D) / 3), nn.Parameter(torch.tensor(1.5))
        self.last = nn.Linear(D, D)

    def mix(self, x):
        return self.last.forward(x) + self.cached.sum()

    def forward(self, x):
        self.cached = self.weight * self.scale
        y = self.mix(x @ self.cached)
        return y


class Checkpointed(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.first, self.second = make(), make()

    def forward(self, x):
        x = checkpoint(self.first, x, use_reentrant=False)
        return checkpoint(lambda y: self.second(torch.tanh(y)), x, use_reentrant=False)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(D, D), nn.Linear(D, D)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


class Target(nn.Module):
    """A part is computed without gradients, and a part's parameter is in a penalty."""

    def __init__(self):
        super().__init__()
        self.net, self.target, self.empty = nn.Linear(D, D), nn.Linear(D, D), nn.Parameter(torch.zeros(0))

    def forward(self, x):
        with torch.no_grad():
            goal = self.target(x)
        return self.net(x) - 0.1 * goal + 0.01 * self.target.weight.abs().mean()


def _sequence(inner, x):
    y = inner(x.unsqueeze(1))
    return (y[0] if isinstance(y, tuple) else y).squeeze(1)


def _attend(inner, x):
    y = x.view(-1, 2, D // 2)
    return inner(y, y, y, need_weights=False)[0].reshape(x.shape)


def _ids(x):
    return (x.detach().abs() * 7).long().clamp(max=9)


def _weight_norm(random):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.utils.weight_norm(nn.Linear(D, D), dim=random.choice([0, None]))


MAKERS = {
    "linear": lambda r: nn.Linear(D, D, bias=r.random() < 0.7),
    "mlp": lambda r: nn.Sequential(nn.Linear(D, 12), r.choice([nn.GELU(), nn.ReLU(inplace=True), nn.Tanh()]), nn.Linear(12, D)),
    "wide": lambda r: nn.Sequential(nn.Linear(D, 300), nn.Tanh(), nn.Linear(300, D)),
    "layer_norm": lambda r: nn.LayerNorm(D),
    "batch_norm": lambda r: nn.BatchNorm1d(D),
    "group_norm": lambda r: nn.GroupNorm(2, D),
    "prelu": lambda r: nn.PReLU(r.choice([1, D])),
    "conv1d": lambda r: Wrapped(nn.Conv1d(1, 1, 3, padding=1), lambda m, x: m(x.unsqueeze(1)).squeeze(1)),
    "conv2d": lambda r: Wrapped(nn.Conv2d(2, 2, 1).to(memory_format=r.choice([torch.channels_last, torch.contiguous_format])),
                                lambda m, x: m(x.view(-1, 2, 2, 2)).reshape(x.shape)),
    "embedding": lambda r: Wrapped(nn.Embedding(10, D), lambda m, x: x + m(_ids(x)).mean(1)),
    "bag": lambda r: Wrapped(nn.EmbeddingBag(10, D, mode="sum"), lambda m, x: x + m(_ids(x))),
    "bilinear": lambda r: Wrapped(nn.Bilinear(D, D, D), lambda m, x: m(x, x) * 0.1),
    "attention": lambda r: Wrapped(nn.MultiheadAttention(D // 2, 2, batch_first=True), _attend),
    "encoder": lambda r: Wrapped(nn.TransformerEncoderLayer(D, 2, 12, dropout=0.0, batch_first=True), _sequence),
    "lstm": lambda r: Wrapped(nn.LSTM(D, D, batch_first=True), _sequence),
    "gru": lambda r: Wrapped(nn.GRU(D, D, batch_first=True), _sequence),
    "listed": lambda r: Listed(r.randint(1, 3)),
    "keyed": lambda r: Keyed(),
    "reads_child": lambda r: ReadsChild(r.random() < 0.5),
    "output": lambda r: TakesDataclass(r.choice(["dataclass", "dict", "tuple", "object"])),
    "in_place": lambda r: InPlace(r.choice(["relu_", "add_", "slice", "mul_"])),
    "viewed": lambda r: Viewed(r.choice(["t", "chunk", "einsum", "held", "twice", "detach"])),
    "function": lambda r: OwnFunction(r.choice([Square, KeepsWeight])),
    "remembers": lambda r: Remembers(),
    "checkpointed": lambda r: Checkpointed(lambda: r.choice([Tied, lambda: nn.Linear(D, D)])()),
    "tied": lambda r: Tied(),
    "target": lambda r: Target(),
    "weight_norm": _weight_norm,
    "parametrized": lambda r: nn.utils.parametrizations.weight_norm(nn.Linear(D, D)),
    "spectral": lambda r: nn.utils.parametrizations.spectral_norm(nn.Linear(D, D)),
}  # fmt: skip


class Net(nn.Module):
    """A chain of random blocks, with residual connections, and some of them used twice."""

    def __init__(self, random, n):
        super().__init__()
        names = [random.choice(list(MAKERS)) for _ in range(n)]
        self.blocks = nn.ModuleList(MAKERS[name](random) for name in names)
        self.again = random.randrange(n) if random.random() < 0.2 else None
        self.residual = [random.random() < 0.4 for _ in names]
        self.nested = nn.ModuleDict({"head": nn.Sequential(nn.Sequential(nn.Linear(D, D)))})

    def forward(self, x):
        for residual, block in zip(self.residual, self.blocks):
            y = block(x)
            x = x + y if residual else y
        if self.again is not None:
            x = self.blocks[self.again](torch.tanh(x))
        return self.nested["head"](x)
