"""strata.offload_activations() with a model of strata.offload() and an optimizer of strata.optim."""

import contextlib
import gc
import tempfile
import unittest

from torch_model import batches, loss_of, model, same, skip_without_offload, torch, train

skip_without_offload()

import strata
from torch.utils.checkpoint import checkpoint

KIB = 1 << 10
SMALL = dict(pinned="64MiB", threads=1)
LARGEST = (48 * 48 + 48) * 4  # the largest module of the model


class Within(torch.nn.Module):
    """A model whose forward is in a context."""

    def __init__(self, net, context):
        super().__init__()
        self.net, self.context = net, context

    def forward(self, x):
        with self.context:
            return self.net(x)


class Checkpointed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = model()

    def forward(self, x):
        for part in self.net:
            x = checkpoint(part, x, use_reentrant=False)
        return x


def run(make, context, offloads=True, accumulation=1, device=LARGEST):
    net = make()
    if offloads:
        strata.offload(net, device=device, **SMALL)
    optimizer = strata.optim.AdamW(net.parameters(), lr=1e-2, **SMALL)
    losses = train(Within(net, context), optimizer, 6, accumulation)
    return [losses, *(value.clone() for value in net.state_dict().values())]


class OffloadTest(unittest.TestCase):
    def test_parameters_and_activations_are_away(self):
        for make, device in ((model, LARGEST), (Checkpointed, 2 * LARGEST)):
            for accumulation in (1, 3):
                expected = run(make, contextlib.nullcontext(), False, accumulation)
                for offloads in (True, False):
                    with tempfile.TemporaryDirectory() as folder:
                        activations = strata.offload_activations(
                            pinned=8 * KIB, page_bytes=4 * KIB, nvme=folder, min_bytes=1
                        )
                        found = run(make, activations, offloads, accumulation, device)
                        self.assertTrue(same(found, expected), (make, accumulation, offloads))
                        gc.collect()
                        stats = activations.stats()
                        self.assertEqual(stats["n_activations"], 0)
                        self.assertGreater(stats["nvme_read_bytes"], 0)
                        activations.close()

    def test_parameters_are_left_alone(self):
        activations = strata.offload_activations(pinned="1MiB", min_bytes=1)
        net = strata.offload(model(), device=LARGEST, **SMALL)
        weights = {tuple(param.shape) for param in model().parameters() if param.dim() == 2}
        x, y = next(batches(1))
        with activations:
            loss = loss_of(net, x, y)
        saved = [entry[2]() for entry in activations._saved.values()]
        sizes = {each.bytes for each in saved if each is not None}
        self.assertFalse(sizes & {4 * rows * columns for rows, columns in weights})
        self.assertLess(activations.stats()["activation_bytes"], 4 * 16 * (32 + 4 * 48 + 10 + 10))
        loss.backward()
        activations.close()


if __name__ == "__main__":
    unittest.main()
