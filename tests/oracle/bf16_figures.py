"""The errors of strata and of PyTorch where both compute in bfloat16, side by side: against PyTorch in float64.

Every one of them is rounding, which is chance in a tiny model: they are the root mean square over several seeds, each of
which is a model and batches of its own."""
import numpy as np
import torch

from figures import NOISE_FLOOR, as_numpy, by_max, by_ratio, gradients_of, guard, logits_of, losses_of, worst_of
from reference import Batches, Reference


def compare_bf16(seeds, steps, lr, row):
    """Fills row's figures, worst and problems. `seeds`: (weight folder, batches, the probe's output) of each; the first one
    was trained too."""
    guard(row, lambda: _compare_errors([_errors(*seed) for seed in seeds], row))
    guard(row, lambda: _compare_training(*seeds[0], steps, lr, row))


def _errors(hf, batches_path, out):
    """{what: (strata's error, PyTorch's)}: the logits by their greatest, each tensor's gradient by norm."""
    batch = Batches(batches_path)[0]
    truth, peer = Reference(hf, "f64"), Reference(hf, "bf16")
    want = truth.logits(batch).detach().numpy()
    theirs = peer.logits(batch).detach().to(torch.float64).numpy()
    errors = {"logits": (by_max(logits_of(out, want), want), by_max(theirs, want))}

    want, theirs, ours = as_numpy(truth.gradients(batch)), as_numpy(peer.gradients(batch)), gradients_of(truth.family, out)
    floor = NOISE_FLOOR * np.sqrt(sum(np.sum(gradient**2) for gradient in want.values()))
    for name, gradient in want.items():
        size = max(np.linalg.norm(gradient), floor)
        errors[name] = tuple(float(np.linalg.norm(of[name] - gradient) / size) for of in (ours, theirs))
    return errors


def _compare_errors(by_seed, row):
    over_seeds = {}  # what: root mean squares of strata's errors and of PyTorch's
    for what in by_seed[0]:
        over_seeds[what] = np.sqrt(np.mean(np.square([errors[what] for errors in by_seed]), axis=0))
    ratios = {what: float(ours / theirs) for what, (ours, theirs) in over_seeds.items()}
    figures = row["figures"]
    figures["logits"] = ratios.pop("logits")
    figures["gradients"], worst = worst_of([(ratio, name) for name, ratio in ratios.items()])
    figures["median"] = float(np.median(list(ratios.values())))
    row["worst"]["gradients"] = f", in {worst}: {over_seeds[worst][0]:.2g} against {over_seeds[worst][1]:.2g}"
    row["torch_errors"] = {what: float(theirs) for what, (_, theirs) in over_seeds.items()}


def _compare_training(hf, batches_path, out, steps, lr, row):
    batches = Batches(batches_path)
    losses = Reference(hf, "f64").train(batches, steps, lr)
    row["figures"]["losses"] = by_ratio(losses_of(out, steps), losses)
    row["figures"]["torch_losses"] = by_ratio(Reference(hf, "bf16").train(batches, steps, lr), losses)
