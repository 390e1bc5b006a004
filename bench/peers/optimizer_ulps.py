#!/usr/bin/env python3
"""Runs PyTorch's optimizers in float64 and in float32, as a reference for other implementations.

Both run the same steps on the same bytes, so that the error of another implementation can be measured in ulps
of float32 and compared with PyTorch's own.

    optimizer_ulps.py --optimizer NAME --lr X [--beta1 X --beta2 X] [--eps X] [--weight-decay X] [--momentum X [--nesterov]]
                      [--steps N] --params P.f32 --grads G.f32 [--out P.f64] [--out32 P.f32] [--compare RESULT.f32]
                      [--make N SEED]

Files are raw, little-endian, without a header: P.f32 has n floats, G.f32 steps * n floats, step by step; the
results are the parameters after the last step. The step is PyTorch's plain one (neither foreach nor fused).
Adam's weight decay is added to the gradient, AdamW's is decoupled; the optimizers' names mean what they mean
in torch.optim. An optimizer that torch.optim lacks is the formula of its paper.
--make first writes both inputs: N normal parameters (deviation 0.02) and gradients (1e-3) from SEED.

Prints one line of JSON: the error of PyTorch's float32, and with --compare that of RESULT.f32, against the
float64 result in float32 units in the last place: of the result (of_value), and of the largest magnitude that
the parameter had in the float64 run (of_path), since any implementation loses the last places of a value that
ends near zero. Each has the maximum error, its index, the mean, the median and the 99.9th percentile. Exits
with 77 without torch. The claims optimizer_accuracy and optimizer_demo read OPTIMIZERS."""
import argparse
import inspect
import json
import pathlib
import sys
import typing

try:
    import numpy as np
    import torch
except ImportError as error:  # OPTIMIZERS needs neither
    if __name__ == "__main__":
        print(f"optimizer_ulps: {error}", file=sys.stderr)
        sys.exit(77)


def lion(s, given, g):
    """Chen et al. 2023, Alg. 2."""
    direction = (given.beta1 * s.m + (1 - given.beta1) * g).sign()
    s.m = given.beta2 * s.m + (1 - given.beta2) * g
    return direction + given.weight_decay * s.parameters


def lamb(s, given, g):
    """You et al. 2020, Alg. 2, with decay in the direction and no bound on the ratio of norms."""
    s.m = given.beta1 * s.m + (1 - given.beta1) * g
    s.v = given.beta2 * s.v + (1 - given.beta2) * g * g
    m, v = s.m / (1 - given.beta1**s.steps), s.v / (1 - given.beta2**s.steps)
    eps = 1e-8 if given.eps is None else given.eps
    direction = m / (v.sqrt() + eps) + given.weight_decay * s.parameters
    return s.parameters.norm() / direction.norm() * direction


class Optimizer(typing.NamedTuple):
    step: typing.Any  # a class of torch.optim, by name, or the formula of a step divided by lr
    accuracy: dict  # options of this program in the claim optimizer_accuracy, by variant
    demo: str  # keys in the claim optimizer_demo


BETAS = "--beta1 0.9 --beta2 0.95"
ADAPTIVE = f"{BETAS} --eps 1e-8"
SGD = "--lr 0.1 --weight-decay 0.01"
OPTIMIZERS = {
    "adamw": Optimizer("AdamW", {"": f"--lr 1e-3 --weight-decay 0.1 {ADAPTIVE}"}, ""),
    "adam": Optimizer("Adam", {"": f"--lr 1e-3 --weight-decay 0.01 {ADAPTIVE}"}, "optim.weight_decay=0"),
    "lion": Optimizer(lion, {"": f"--lr 1e-4 --weight-decay 0.1 {BETAS}"}, "optim.lr=6e-4 optim.beta2=0.99 optim.weight_decay=0.3"),
    "lamb": Optimizer(lamb, {"": f"--lr 1e-3 --weight-decay 0.01 {ADAPTIVE}"}, "optim.lr=1e-2 optim.eps=1e-6"),
    "adagrad": Optimizer("Adagrad", {"": "--lr 1e-2 --weight-decay 0.01 --eps 1e-8"}, "optim.lr=1e-2 optim.eps=1e-10 optim.weight_decay=0"),
    "sgd": Optimizer("SGD", {"": SGD, " momentum": f"{SGD} --momentum 0.9", " nesterov": f"{SGD} --momentum 0.9 --nesterov"},
                     "optim.lr=1 optim.nesterov=true optim.weight_decay=0"),
}  # fmt: skip


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--optimizer", choices=OPTIMIZERS, required=True)
    parser.add_argument("--lr", type=float, required=True)
    for name, default in (("beta1", 0.9), ("beta2", 0.999), ("eps", None), ("weight-decay", 0.0), ("momentum", 0.0)):
        parser.add_argument(f"--{name}", type=float, default=default)
    parser.add_argument("--nesterov", action="store_true")
    parser.add_argument("--steps", type=int, default=100)
    for name in ("params", "grads"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    for name in ("out", "out32", "compare"):
        parser.add_argument(f"--{name}", type=pathlib.Path)
    parser.add_argument("--make", type=int, nargs=2, metavar=("N", "SEED"))
    return parser.parse_args()


def make(given):
    n, seed = given.make
    random = np.random.default_rng(seed)
    random.normal(0, 0.02, n).astype("<f4").tofile(given.params)
    random.normal(0, 1e-3, (given.steps, n)).astype("<f4").tofile(given.grads)


def read(path, count=None):
    values = np.fromfile(path, dtype="<f4")
    if path.stat().st_size % 4 or values.size == 0 or count not in (None, values.size):
        expected = "a multiple of 4 above 0" if count is None else f"{4 * count}"
        sys.exit(f"optimizer_ulps: {path} has {path.stat().st_size} bytes, {expected} expected")
    return values


class Formula:
    """A formula on one tensor, in its dtype."""

    def __init__(self, given, parameters):
        self.given, self.parameters, self.steps = given, parameters, 0
        self.m, self.v = torch.zeros_like(parameters), torch.zeros_like(parameters)

    def step(self):
        self.steps += 1
        with torch.no_grad():
            step = OPTIMIZERS[self.given.optimizer].step(self, self.given, self.parameters.grad)
            self.parameters.sub_(self.given.lr * step)


def optimizer_of(given, parameters):
    """PyTorch's optimizer, with its default eps if none is given (1e-8; Adagrad 1e-10)."""
    step = OPTIMIZERS[given.optimizer].step
    if callable(step):
        return Formula(given, parameters)
    kind = getattr(torch.optim, step)
    settings = {"lr": given.lr, "betas": (given.beta1, given.beta2), "eps": given.eps, "weight_decay": given.weight_decay,
                "momentum": given.momentum, "nesterov": given.nesterov, "foreach": False}  # fmt: skip
    reads = inspect.signature(kind).parameters
    return kind([parameters], **{name: value for name, value in settings.items() if name in reads and value is not None})


def trained(given, first, gradients, dtype):
    """Returns the parameters after the steps and the largest magnitude that each had during them."""
    parameters = torch.from_numpy(first.astype(dtype)).requires_grad_()
    try:
        optimizer = optimizer_of(given, parameters)
    except ValueError as error:
        sys.exit(f"optimizer_ulps: {given.optimizer}: {error}")
    greatest = parameters.detach().abs()
    for gradient in gradients:
        parameters.grad = torch.from_numpy(gradient.astype(dtype))
        optimizer.step()
        torch.maximum(greatest, parameters.detach().abs(), out=greatest)
    return parameters.detach().numpy(), greatest.numpy()


def ulps(result, exact, greatest):
    """The distance of `result` (float32) from `exact` (float64) in units in the last place; rounding alone
    gives up to 0.5. NaN for NaN and an infinity for itself are no error; NaN or infinity for a number is an
    infinite one."""
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(result.astype(np.float64) - exact)
        same = (np.isnan(result) & np.isnan(exact)) | (np.isinf(result) & (result == exact.astype(np.float32)))
        figures = {}
        for name, magnitude in (("of_value", np.abs(exact)), ("of_path", greatest)):
            error = distance / np.spacing(magnitude.astype(np.float32)).astype(np.float64)
            error = np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))
            figures[name] = {"max": float(error.max()), "at": int(error.argmax()), "mean": float(error.mean()),
                             "median": float(np.median(error)), "p999": float(np.quantile(error, 0.999))}  # fmt: skip
    return figures


def main():
    given = arguments()
    torch.set_num_threads(1)
    if given.make:
        make(given)
    first = read(given.params)
    gradients = read(given.grads, given.steps * first.size).reshape(given.steps, first.size)
    exact, greatest = trained(given, first, gradients, np.float64)
    single, _ = trained(given, first, gradients, np.float32)
    if given.out:
        exact.astype("<f8").tofile(given.out)
    if given.out32:
        single.astype("<f4").tofile(given.out32)
    report = {"optimizer": given.optimizer, "n": first.size, "steps": given.steps, "torch": torch.__version__}
    report["torch_ulps"] = ulps(single, exact, greatest)
    if given.compare:
        report["ulps"] = ulps(read(given.compare, first.size), exact, greatest)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
