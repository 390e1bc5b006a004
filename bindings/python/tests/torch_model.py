"""A small model and its training loop; ends the test as skipped without torch."""

import sys

try:
    import torch
except ImportError:
    print("torch is not installed")
    sys.exit(77)

HAS_OFFLOAD = hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks")
NO_OFFLOAD = f"strata.offload needs PyTorch 2.8 or later; this is {torch.__version__}"
STEPS = 20


def skip_without_offload():
    if not HAS_OFFLOAD:
        print(NO_OFFLOAD)
        sys.exit(77)


def model(dtype=torch.float32):
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(32, 48),
        torch.nn.GELU(),
        torch.nn.Linear(48, 48),
        torch.nn.LayerNorm(48),
        torch.nn.Linear(48, 10),
    ).to(dtype)


def computes_in(dtype):
    """Whether this torch computes in `dtype` on the CPU."""
    try:
        model(dtype)(torch.zeros(1, 32, dtype=dtype))
    except RuntimeError:
        return False
    return True


def batches(steps, dtype=torch.float32, seed=3):
    random = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        x = torch.randn(16, 32, generator=random).to(dtype)
        yield x, torch.randint(0, 10, (16,), generator=random)


def loss_of(net, x, y):
    return torch.nn.functional.cross_entropy(net(x).float(), y)


def train(net, optimizer, steps=STEPS, accumulation=1, clip=0.5, seed=3, first=0):
    """Losses of the steps from `first` on."""
    dtype = next(net.parameters()).dtype
    losses = []
    for i, (x, y) in enumerate(batches(first + steps * accumulation, dtype, seed)):
        if i < first:
            continue
        loss = loss_of(net, x, y)
        (loss / accumulation).backward()
        losses.append(loss.item())
        if (i + 1) % accumulation == 0:
            if clip:
                torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()
    return torch.tensor(losses)


def train_scaled(net, optimizer, overflows=(2, 5), clips=True):
    """Losses of ten steps with a gradient scaler, of which some overflow; None if this torch has none for CPUs. Without
    clipping the optimizer unscales the gradients."""
    if not hasattr(torch.amp, "GradScaler"):
        return None
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
    losses = []
    for step, (x, y) in enumerate(batches(10)):
        loss = loss_of(net, x, y)
        scaler.scale(loss * (float("inf") if step in overflows else 1)).backward()
        if clips:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(loss.item())
    return torch.tensor(losses)


def values(net):
    return [param.detach().clone() for param in net.parameters()]


def same(first, second):
    return len(first) == len(second) and all(torch.equal(a, b) for a, b in zip(first, second))
