"""The actions of a program on a model. Each returns what it saw, which must not depend on the world."""

import copy
import io
import threading

import torch

from .world import batch


def loss_of(net, x, y):
    return torch.nn.functional.mse_loss(net(x), y)


def _gradient_norms(world):
    return [p.grad.norm() for p in world.net.parameters() if p.grad is not None]


def step(world, random):
    net, seen = world.net, []
    micro_batches, together = random.choice([1, 1, 2, 3]), random.random() < 0.2
    losses = []
    for _ in range(micro_batches):
        loss = loss_of(net, *batch(random)) / micro_batches
        seen.append(loss.detach().clone())
        losses.append(loss) if together else loss.backward()
    if together:
        sum(losses).backward()
    seen += _gradient_norms(world)
    if random.random() < 0.4:
        seen.append(torch.nn.utils.clip_grad_norm_(net.parameters(), 0.3))
    world.optimizer.step()
    return seen + _zero_grad(world, random.random() < 0.8)


def _zero_grad(world, to_none):
    world.optimizer.zero_grad(set_to_none=to_none)
    for param in world.net.parameters():  # also parameters that the optimizer does not have
        param.grad = None if to_none else param.grad
    return []


def backward_alone(world, random):
    loss_of(world.net, *batch(random)).backward()
    seen = _gradient_norms(world)
    if random.random() < 0.5:
        _zero_grad(world, True)
    return seen


def retained(world, random):
    loss = loss_of(world.net, *batch(random))
    loss.backward(retain_graph=True)
    with torch.no_grad():
        seen = [world.net(batch(random)[0]).clone()]
    loss.backward()
    seen += _gradient_norms(world)
    world.optimizer.step()
    return seen + _zero_grad(world, True)


def step_without_zero_grad(world, random):
    loss_of(world.net, *batch(random)).backward()
    world.optimizer.step()
    world.optimizer.zero_grad()
    return []


def infer(world, random):
    context = random.choice([torch.no_grad, torch.inference_mode, torch.enable_grad])
    world.net.train(random.random() < 0.5)
    with context():
        seen = [world.net(batch(random)[0]).clone().detach()]
    world.net.train()
    return seen


def infer_in_threads(world, random):
    world.net.eval()
    inputs, outputs, failures = [batch(random)[0] for _ in range(2)], [None] * 2, []

    def work(i):
        try:
            with torch.no_grad():
                outputs[i] = world.net(inputs[i]).clone()
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    world.net.train()
    if failures:
        raise failures[0]
    return outputs if not any(hasattr(m, "cached") for m in world.net.modules()) else []


def read(world, random):
    return [p.detach().clone() for p in world.net.parameters()]


def read_some(world, random):
    p = world.param(random)
    kind = random.choice(["norm", "data", "item", "numpy", "sum", "list", "index", "shape"])
    if kind == "data":
        return [p.data.clone()]
    if kind == "numpy":
        return [torch.from_numpy(p.detach().numpy().copy())]
    if kind == "list":
        return [torch.tensor(p.tolist())]
    if kind == "item":
        return [torch.tensor(p.view(-1)[0].item())] if p.numel() else []
    if kind == "index":
        return [p.view(-1)[:2].detach().clone()]
    if kind == "shape":
        return [torch.tensor([*p.shape, *p.stride(), p.numel(), p.is_contiguous()])]
    return [getattr(p.detach(), kind)().clone()]


def write(world, random):
    p, kind = world.param(random), random.choice(WRITES)
    source = torch.Generator().manual_seed(random.randrange(1 << 30))
    if not torch.is_floating_point(p):
        return []
    other = torch.randn(p.shape, generator=source) / 3
    WRITE[kind](p, other)
    world.log(f"{kind} {[name for name, q in world.net.named_parameters() if q is p]}")
    return [p.detach().clone()] if random.random() < 0.5 else []


def _no_grad(function):
    def call(p, other):
        with torch.no_grad():
            function(p, other)

    return call


WRITE = {
    "clamp_": _no_grad(lambda p, other: p.clamp_(-0.1, 0.1)),
    "copy_": _no_grad(lambda p, other: p.copy_(other)),
    "lerp_": _no_grad(lambda p, other: p.lerp_(other, 0.1)),
    "fill_": _no_grad(lambda p, other: torch.nn.init.constant_(p, 0.25)),
    "data.mul_": lambda p, other: p.data.mul_(0.9),
    "data.copy_": lambda p, other: p.data.copy_(other),
    "data=": lambda p, other: setattr(p, "data", other),
    "detach": lambda p, other: p.detach().add_(other),
    "part": _no_grad(lambda p, other: p.view(-1)[:3].zero_()),
    "setitem": _no_grad(lambda p, other: p.__setitem__(..., other)),
    "numpy": lambda p, other: p.detach().numpy().__iadd__(other.numpy()),
    "foreach": _no_grad(lambda p, other: torch._foreach_add_([p], [other])),
    "out": _no_grad(lambda p, other: torch.add(other, 1, out=p)),
    "inference": lambda p, other: _in_inference(p, other),
}
WRITES = list(WRITE)


def _in_inference(p, other):
    with torch.inference_mode():
        p.add_(other)


def keep_alias(world, random):
    p = world.param(random)
    world.kept["alias"] = p.data if random.random() < 0.5 else p.detach()
    return []


def use_alias(world, random):
    alias = world.kept.pop("alias", None)
    if alias is None:
        return []
    seen = [alias.clone()]
    if random.random() < 0.6:
        alias.mul_(0.5)
    return seen


def vector(world, random):
    params = list(world.net.parameters())
    strides = [param.stride() for param in params]
    vec = torch.nn.utils.parameters_to_vector(params).detach()
    torch.nn.utils.vector_to_parameters(vec * 0.95, params)
    for param, stride in zip(params, strides):  # parts of a vector are not aligned: kernels add in another order
        param.data = torch.empty_strided(param.shape, stride).copy_(param.data)
    return [vec]


def ema(world, random):
    with torch.no_grad():
        shadow = world.kept.setdefault("ema", [p.clone() for p in world.net.parameters()])
        for average, p in zip(shadow, world.net.parameters()):
            average.lerp_(p, 0.3)
        if random.random() < 0.3:
            for average, p in zip(shadow, world.net.parameters()):
                p.copy_(average)
    return [average.clone() for average in shadow]


def states(world, random):
    module = world.net if random.random() < 0.4 else world.module(random)
    found = module.state_dict()
    if random.random() < 0.4:
        file = io.BytesIO()
        torch.save(found, file)
        file.seek(0)
        found = torch.load(file, weights_only=True)
    world.kept["states"] = {key: value.clone() for key, value in found.items()}
    world.kept["module"] = module
    return list(world.kept["states"].values())


def load_states(world, random):
    if "states" in world.kept:
        changed = {k: v * 0.9 if v.is_floating_point() else v for k, v in world.kept["states"].items()}
        world.kept["module"].load_state_dict(changed)
    return []


def copy_part(world, random):
    module, x = world.net.nested["head"], batch(random)[0]
    if random.random() < 0.5:
        copied = copy.deepcopy(module)
    else:
        file = io.BytesIO()
        torch.save(module, file)
        file.seek(0)
        copied = torch.load(file, weights_only=False)
    return [copied(x).detach(), *[p.detach() for p in copied.parameters()]]


def part_alone(world, random):
    """A block without the model around it, and functions that read a parameter outside of any forward."""
    x, y = batch(random)
    head = world.net.nested["head"]
    loss = (head(x) - y).square().mean() + (head[0][0].weight.square().sum() * 0.1)
    loss = loss + sum(p.sin().sum() for p in world.net.parameters()) * 0.01  # abs() has another sign next to 0
    loss.backward()
    seen = [loss.detach(), *_gradient_norms(world)]
    world.optimizer.step()
    return seen + _zero_grad(world, True)


def freeze(world, random):
    module, on = world.module(random), random.random() < 0.4
    for param in module.parameters():
        param.requires_grad_(on)
        if not on:
            param.grad = None
    return []


def optimizer_states(world, random):
    if world.setup.beside_torch:
        return []
    found = world.optimizer.state_dict()
    world.optimizer.load_state_dict(found)
    return [found["state"][i][key] for i in sorted(found["state"]) for key in sorted(found["state"][i])]


def penalty(world, random):
    """Double backward through gradients of inputs and of parameters."""
    x, y = batch(random)
    x.requires_grad_(True)
    params = [p for p in world.net.parameters() if p.requires_grad]
    loss = loss_of(world.net, x, y)
    of = [x] if random.random() < 0.5 or not params else [x, params[0]]
    found = torch.autograd.grad(loss, of, create_graph=True, allow_unused=True)
    total = loss + sum(g.square().sum() for g in found if g is not None)
    total.backward()
    seen = [total.detach(), *_gradient_norms(world)]
    world.optimizer.step()
    return seen + _zero_grad(world, True)


def graph_of_gradients(world, random):
    """Gradients in .grad that have a graph of their own."""
    loss_of(world.net, *batch(random)).backward(create_graph=True)
    penalty = sum(p.grad.square().sum() for p in world.net.parameters() if p.grad is not None)
    seen = [penalty.detach().clone()]
    world.optimizer.zero_grad()
    _zero_grad(world, True)
    return seen


def hooks(world, random):
    module, kind = world.module(random), random.choice(["forward", "pre", "full", "param", "grad"])
    handles = world.kept.setdefault("handles", [])
    if kind == "forward":
        handles.append(module.register_forward_hook(
            lambda m, i, out: out * 1.5 if isinstance(out, torch.Tensor) else None))  # fmt: skip
    elif kind == "pre":
        handles.append(module.register_forward_pre_hook(
            lambda m, i: (i[0] * 0.5, *i[1:]) if i and isinstance(i[0], torch.Tensor) and i[0].is_floating_point() else None))
    elif kind == "full" and not hasattr(module, "kind"):
        handles.append(module.register_full_backward_hook(lambda m, i, o: None))
    else:
        handles += [p.register_hook(lambda g: g * 0.5) for p in module.parameters() if p.requires_grad]
    if len(handles) > 3:
        while handles:
            handles.pop().remove()
    return []


def settings(world, random):
    for group in world.optimizer.param_groups:
        group["lr"] *= random.choice([0.5, 2.0])
    return []


def gradients(world, random):
    """Changes gradients as people do between backward and step."""
    loss_of(world.net, *batch(random)).backward()
    kind = random.choice(["mul_", "none", "norm", "set", "value", "clone"])
    params = [p for p in world.net.parameters() if p.grad is not None]
    seen = []
    if kind == "none":
        params[0].grad = None
    elif kind == "set":
        params[0].grad = torch.ones(params[0].shape)
    elif kind == "value":
        torch.nn.utils.clip_grad_value_(params, 0.01)
    elif kind == "clone":
        seen.append(params[-1].grad.clone())
    elif kind == "norm":
        seen.append(params[-1].grad.norm(2))
    else:
        for p in params:
            p.grad.mul_(0.5)
    world.optimizer.step()
    return seen + _zero_grad(world, True)


def late_group(world, random):
    have = {id(p) for group in world.optimizer.param_groups for p in group["params"]}
    missing = [p for p in world.net.parameters() if id(p) not in have]
    if missing:
        for p in missing:
            p.requires_grad_(True)
        world.optimizer.add_param_group(dict(params=missing))
    return []


def saved_over_step(world, random):
    """A graph that is used after its parameters have changed, which PyTorch refuses."""
    loss = loss_of(world.net, *batch(random))
    step_without_zero_grad(world, random)
    loss.backward()
    return _gradient_norms(world)


def save_hooks(world, random):
    with torch.autograd.graph.save_on_cpu():
        loss = loss_of(world.net, *batch(random))
    loss.backward()
    seen = _gradient_norms(world)
    world.optimizer.step()
    return seen + _zero_grad(world, True)


def functional(world, random):
    values = {name: p.detach() * 0.5 for name, p in world.net.named_parameters()}
    return [torch.func.functional_call(world.net, values, (batch(random)[0],)).detach()]


def transforms(world, random):
    """Derivatives of torch.func, by inputs and by parameters."""
    x, net = batch(random)[0], world.net
    if random.random() < 0.5:
        return [torch.func.grad(lambda given: net(given).square().sum())(x)]
    params = dict(net.named_parameters())
    found = torch.func.grad(lambda given: torch.func.functional_call(net, given, (x,)).square().sum())(params)
    return [found[name].detach() for name in sorted(found)]


def replace(world, random):
    head = world.net.nested["head"][0][0]
    head.bias = torch.nn.Parameter(head.bias.detach() * 0.5)
    return []


COMMON = [step] * 10 + [infer, infer, read, read_some, write, write, write, states]
RARE = [backward_alone, retained, infer_in_threads, keep_alias, use_alias, use_alias, vector, ema, load_states, copy_part, part_alone,
        freeze, optimizer_states, penalty, graph_of_gradients, hooks, settings, gradients, late_group, saved_over_step,
        save_hooks, functional, transforms, replace]  # fmt: skip


def choose(random):
    return random.choice(COMMON) if random.random() < 0.6 else random.choice(RARE)
