"""A GPT-2 of transformers whose activations are in RAM and on NVMe: losses and parameters of a run without, with and
without activation checkpointing."""

import contextlib
import tempfile
import unittest
import warnings

from language_models import LR, batches, gpt2, llama, loss_of, same, torch, train, values

import strata

torch.set_num_threads(1)
KIB = 1 << 10
SMALL = dict(pinned="256MiB", threads=1)


def prepared(make, checkpointing):
    net = make()
    net.train()
    if checkpointing:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            net.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return net


def run(make, checkpointing=False, context=None, offloads=False, accumulation=1):
    """Losses and parameters after some steps, of which forward is in the context."""
    net = prepared(make, checkpointing)
    if offloads:
        strata.offload(net, device="1MiB", **SMALL)
    optimizer = strata.optim.AdamW(net.parameters(), lr=LR, weight_decay=0.1, **SMALL)
    forward = net.forward

    def within(*arguments, **keywords):
        with context or contextlib.nullcontext():
            return forward(*arguments, **keywords)

    net.forward = within
    losses = train(net, optimizer, 8, accumulation)
    return [losses, *(values(net) if not offloads else net.state_dict().values())]


class Gpt2Test(unittest.TestCase):
    def activations(self, folder, **options):
        made = strata.offload_activations(
            **{**dict(pinned=64 * KIB, page_bytes=4 * KIB, nvme=folder, min_bytes=KIB), **options}
        )
        self.addCleanup(made.close)
        return made

    def test_losses_and_parameters_have_the_bits_of_a_run_without(self):
        for make in (gpt2, llama):
            for checkpointing in (False, True):
                for accumulation in (1, 2):
                    with tempfile.TemporaryDirectory() as folder:
                        activations = self.activations(folder)
                        expected = run(make, checkpointing, accumulation=accumulation)
                        found = run(make, checkpointing, activations, accumulation=accumulation)
                        case = (make.__name__, checkpointing, accumulation)
                        self.assertTrue(same(found, expected), case)
                        stats = activations.stats()
                        self.assertEqual(stats["n_activations"], 0, case)
                        self.assertGreater(stats["n_gets"], 0, case)
                        if not checkpointing:
                            self.assertGreater(stats["nvme_read_bytes"], 0, case)

    def test_with_parameters_that_are_away(self):
        for checkpointing in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                expected = run(gpt2, checkpointing, offloads=True)
                found = run(gpt2, checkpointing, self.activations(folder), offloads=True)
                self.assertTrue(same(found, expected), checkpointing)

    def test_with_automatic_mixed_precision(self):
        found = []
        with tempfile.TemporaryDirectory() as folder:
            for context in (contextlib.nullcontext(), self.activations(folder)):
                net = prepared(gpt2, True)
                for tokens in batches(3):
                    with context, torch.autocast("cpu", torch.bfloat16):
                        loss = loss_of(net, tokens)
                    loss.backward()
                found.append([param.grad for param in net.parameters()])
        self.assertTrue(same(*found))

    def test_with_torch_compile(self):
        found = []
        with tempfile.TemporaryDirectory() as folder:
            for context in (contextlib.nullcontext(), self.activations(folder)):
                net = prepared(gpt2, False)
                compiled = torch.compile(net, backend="aot_eager")
                for tokens in batches(3):
                    with context:
                        loss = loss_of(compiled, tokens)
                    loss.backward()
                found.append([param.grad for param in net.parameters()])
        self.assertTrue(same(*found))
        self.assertGreater(context.stats()["n_gets"], 0)

    def test_checkpointing_leaves_only_the_inputs_of_blocks(self):
        stored = []
        for checkpointing in (False, True):
            activations = strata.offload_activations(pinned="64MiB", min_bytes=KIB)
            self.addCleanup(activations.close)
            net = prepared(gpt2, checkpointing)
            with activations:
                loss = loss_of(net, next(iter(batches(1))))
            stored.append(activations.stats()["activation_bytes"])
            del loss
        print(f"saved by a forward: {stored[0] / KIB:.0f} KiB, {stored[1] / KIB:.0f} KiB with checkpointing")
        self.assertGreater(stored[1], 0)
        self.assertLess(stored[1], stored[0] / 2)


if __name__ == "__main__":
    unittest.main()
