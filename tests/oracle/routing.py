"""Routing that is replayed.

Experts differ as much as random matrices do. Where two experts are nearly as good for a token, rounding alone decides which
one computes it, and then one program's outputs are far from the other's although both are right. So PyTorch takes the
experts that strata chose, in every dtype: all then compute the same function, and their differences are rounding again.
PyTorch's own bf16 error is measured with strata's choices, too: with its own it would be an error against another function,
whose gradients have other norms.

What is not compared in this way is the choice itself, so it has a figure of its own: by how much an expert that strata took
is worse than the k-th best by float64, which may only be by rounding."""
import numpy as np
import torch

import tensors


class Choices:
    """What strata's routers chose, by the file of the probe, which it writes of mixtures of experts."""

    def __init__(self, out, family):
        self.arrays = tensors.read(out / "choices.safetensors") if getattr(family, "mixtures", None) else {}

    def of(self, what, like, run=None):
        """[routers, batch, seq, k], where the rows of `like` [batch, seq] are from all runs, or all are from one; None for
        a model without routers."""
        if not self.arrays:
            return None
        runs = self.arrays[what] if run is None else self.arrays[what][run : run + 1]
        routers, k = runs.shape[1], runs.shape[3]
        return torch.from_numpy(np.moveaxis(runs, 1, 0).reshape(routers, *like.shape, k).astype(np.int64))


class Worst:
    """The largest shortfall of replayed choices, and where it is."""

    def __init__(self):
        self.figure, self.where, self.other, self.all = 0.0, "", 0, 0

    def see(self, family, what):
        """Adds the last call of family.logits()."""
        if family.choices() is None:
            return
        shortfalls = family.shortfalls().flatten(1)
        self.other, self.all = self.other + int((shortfalls > 0).sum()), self.all + shortfalls.numel()
        if not (largest := shortfalls.max().item()) <= self.figure:
            router, token = divmod(int(shortfalls.argmax()), shortfalls.shape[1])
            self.figure, self.where = largest, f", in router {router} of token {token} of the {what}"

    def into(self, row, name):
        """Mixtures of experts have the figure; others are without it."""
        if not self.all:
            row["skipped"].append(name)
            return
        row["figures"][name] = self.figure
        row["worst"][name] = f"{self.where}; {self.other} of {self.all} choices are others"
