"""Compares the bfloat16 errors of strata with those of PyTorch, both measured against PyTorch in float64.

All of these errors are rounding errors, which are random in a tiny model. So each error is the root mean
square over several seeds, each with its own model and batches."""
import numpy as np
import torch

from figures import NOISE_FLOOR, as_numpy, by_max, by_ratio, gradients_of, guard, logits_of, losses_of, ratio_of, replay, worst_of
from reference import Batches, Reference
from routing import Choices, Worst


def compare_bf16(seeds, steps, lr, row):
    """Fills the figures, worst and problems of `row`. `seeds`: (weight folder, batches, output of the probe)
    of each seed; only the first one was also trained."""
    worst = Worst()
    guard(row, lambda: _compare_errors([_errors(*seed, worst) for seed in seeds], row))
    worst.into(row, "choices")
    guard(row, lambda: _compare_training(*seeds[0], steps, lr, row))


def _errors(hf, batches_path, out, worst):
    """{what: (strata's error, PyTorch's error)}: of the logits by the maximum, of each tensor's gradient by
    norm. `worst` sees the choices of routers."""
    batch, truth, peer = Batches(batches_path)[0], Reference(hf, "f64"), Reference(hf, "bf16")
    choices = Choices(out, truth.family)
    replay(choices.of("logits", batch[0]), truth, peer)
    want = truth.logits(batch).detach().numpy()
    worst.see(truth.family, "logits")
    theirs = peer.logits(batch).detach().to(torch.float64).numpy()
    errors = {"logits": (by_max(logits_of(out, want), want), by_max(theirs, want))}

    replay(choices.of("gradients", batch[0]), truth, peer)
    want, theirs, ours = as_numpy(truth.gradients(batch)), as_numpy(peer.gradients(batch)), gradients_of(truth.family, out)
    worst.see(truth.family, "gradients")
    floor = NOISE_FLOOR * np.sqrt(sum(np.sum(gradient**2) for gradient in want.values()))
    for name, gradient in want.items():
        size = max(np.linalg.norm(gradient), floor)
        errors[name] = tuple(float(np.linalg.norm(of[name] - gradient) / size) for of in (ours, theirs))
    return errors


def _compare_errors(by_seed, row):
    over_seeds = {}  # root mean squares of strata's errors and of PyTorch's errors for each figure
    for what in by_seed[0]:
        over_seeds[what] = np.sqrt(np.mean(np.square([errors[what] for errors in by_seed]), axis=0))
    ratios = {what: ratio_of(float(ours), float(theirs)) for what, (ours, theirs) in over_seeds.items()}
    figures = row["figures"]
    figures["logits"] = ratios.pop("logits")
    figures["gradients"], worst = worst_of([(ratio, name) for name, ratio in ratios.items()])
    figures["median"] = float(np.median(list(ratios.values())))
    row["worst"]["gradients"] = f", in {worst}: {over_seeds[worst][0]:.2g} against {over_seeds[worst][1]:.2g}"
    row["torch_errors"] = {what: float(theirs) for what, (_, theirs) in over_seeds.items()}


def _compare_training(hf, batches_path, out, steps, lr, row):
    batches = Batches(batches_path)

    def train(dtype):
        model = Reference(hf, dtype)
        choices = Choices(out, model.family)
        return model.train(batches, steps, lr, lambda step: choices.of("steps", batches[step][0], step))

    losses = train("f64")
    row["figures"]["losses"] = by_ratio(losses_of(out, steps), losses)
    row["figures"]["torch_losses"] = by_ratio(train("bf16"), losses)
