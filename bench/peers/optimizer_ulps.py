#!/usr/bin/env python3
"""Runs PyTorch's optimizers in float64 and in float32, as a reference for other implementations.

Both run the same steps on the same bytes, so that the error of another implementation can be measured in ulps
of float32 and compared with PyTorch's own.

    optimizer_ulps.py --optimizer adam|adamw|adagrad|sgd|lion|lamb --lr X [--beta1 X --beta2 X] [--eps X] [--weight-decay X]
                      [--momentum X [--nesterov]] [--steps N] --params P.f32 --grads G.f32 [--out P.f64] [--out32 P.f32]
                      [--compare RESULT.f32] [--make N SEED]

Files are raw, little-endian, without a header: P.f32 has n floats, G.f32 steps * n floats, step by step; the
results are the parameters after the last step. The step is PyTorch's plain one (neither foreach nor fused).
Adam's weight decay is added to the gradient, AdamW's is decoupled; the optimizers' names mean what they mean
in torch.optim. Lion and LAMB, which torch.optim lacks, are the formulas of their papers (Chen et al. 2023,
Alg. 2; You et al. 2020, Alg. 2, with decay in the direction and no bound on the ratio of norms).
--make first writes both inputs: N normal parameters (deviation 0.02) and gradients (1e-3) from SEED.

Prints one line of JSON: the error of PyTorch's float32, and with --compare that of RESULT.f32, against the
float64 result in float32 units in the last place: of the result (of_value), and of the largest magnitude that
the parameter had in the float64 run (of_path), since any implementation loses the last places of a value that
ends near zero. Each has the maximum error, its index, the mean, the median and the 99.9th percentile. Exits
with 77 without torch."""
import argparse
import json
import pathlib
import sys

try:
    import numpy as np
    import torch
except ImportError as error:
    print(f"optimizer_ulps: {error}", file=sys.stderr)
    sys.exit(77)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--optimizer", choices=("adam", "adamw", "adagrad", "sgd", "lion", "lamb"), required=True)
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
    """Lion and LAMB on one tensor, in its dtype."""

    def __init__(self, given, parameters):
        self.given, self.parameters, self.steps = given, parameters, 0
        self.m, self.v = torch.zeros_like(parameters), torch.zeros_like(parameters)

    @torch.no_grad()
    def step(self):
        self.steps += 1
        self.parameters.sub_(self.given.lr * (self.lion() if self.given.optimizer == "lion" else self.lamb()))

    def lion(self):
        given, g = self.given, self.parameters.grad
        direction = torch.sign(given.beta1 * self.m + (1 - given.beta1) * g)
        self.m = given.beta2 * self.m + (1 - given.beta2) * g
        return direction + given.weight_decay * self.parameters

    def lamb(self):
        given, g = self.given, self.parameters.grad
        self.m = given.beta1 * self.m + (1 - given.beta1) * g
        self.v = given.beta2 * self.v + (1 - given.beta2) * g * g
        m, v = self.m / (1 - given.beta1**self.steps), self.v / (1 - given.beta2**self.steps)
        eps = 1e-8 if given.eps is None else given.eps
        direction = m / (v.sqrt() + eps) + given.weight_decay * self.parameters
        return self.parameters.norm() / direction.norm() * direction


def optimizer_of(given, parameters):
    """PyTorch's optimizer, with its default eps if none is given (1e-8; Adagrad 1e-10)."""
    if given.optimizer in ("lion", "lamb"):
        return Formula(given, parameters)
    settings = {"lr": given.lr, "weight_decay": given.weight_decay, "foreach": False}
    if given.optimizer == "sgd":
        return torch.optim.SGD([parameters], momentum=given.momentum, nesterov=given.nesterov, **settings)
    if given.eps is not None:
        settings["eps"] = given.eps
    if given.optimizer == "adagrad":
        return torch.optim.Adagrad([parameters], **settings)
    kind = torch.optim.Adam if given.optimizer == "adam" else torch.optim.AdamW
    return kind([parameters], betas=(given.beta1, given.beta2), **settings)


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


main()
