"""strata.offload_activations(): gradients of a run without it, what leaves, what stays, and what is refused."""

import gc
import os
import subprocess
import sys
import tempfile
import threading
import types
import unittest
import weakref
from unittest import mock

from activations_model import KIB, NOTHING, RAM, Bfloat16, Blocks, batches, checkpoint, loss_of, steps, torch
from torch_model import model, same

import strata
from strata._activations._hooks import untraced


class ActivationsTest(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext_(tempfile.TemporaryDirectory())

    def enterContext_(self, manager):  # TestCase.enterContext is of Python 3.11
        value = manager.__enter__()
        self.addCleanup(manager.__exit__, None, None, None)
        return value

    def make(self, **options):
        made = strata.offload_activations(**{**RAM, "nvme": self.folder, **options})
        self.addCleanup(made.close)
        return made

    def check(self, make, use=None, **options):
        """A run has the bits of one without, in RAM, on NVMe and with some in torch's memory; nothing is left."""
        expected = steps(make, None, use)
        for where in ({}, dict(pinned=8 * KIB), dict(pinned=8 * KIB, device=4 * KIB), dict(min_bytes=KIB)):
            activations = self.make(**{**where, **options})
            self.assertTrue(same(steps(make, activations, use), expected), where)
            gc.collect()
            stats = activations.stats()
            self.assertEqual(stats["n_activations"], 0)
            while stats["pinned_bytes"]:  # until writes that are in flight have ended
                stats = activations.stats()
            self.assertEqual(stats["nvme_bytes"], 0)
            self.assertGreater(stats["n_gets"], 0)
            self.assertEqual(stats["nvme_written_bytes"] > 0, "pinned" in where, stats)
            self.assertLessEqual(stats["peak_device_bytes"], where.get("device", 0))

    def test_a_chain_of_modules(self):
        self.check(model)

    def test_views_masks_buffers_and_writing_in_place(self):
        self.check(Blocks)

    def test_sixteen_bits(self):
        self.check(lambda: Bfloat16(model()))

    def test_checkpointing(self):
        self.check(lambda: Blocks(checkpoints=True))

    def test_backward_inside_the_context(self):
        def use(net, pair, activations):
            with activations or NOTHING:
                loss_of(net, *pair[0]).backward()

        self.check(Blocks, use)
        self.check(lambda: Blocks(checkpoints=True), use)

    def test_several_forwards_before_one_backward(self):
        def use(net, pair, activations):
            losses = []
            for batch in pair:
                with activations or NOTHING:
                    losses.append(loss_of(net, *batch))
            sum(losses).backward()

        self.check(Blocks, use)

    def test_graphs_that_are_used_twice_in_any_order(self):
        def use(net, pair, activations):
            with activations or NOTHING:
                losses = [loss_of(net, *batch) for batch in pair]
            losses[0].backward(retain_graph=True)
            losses[1].backward(retain_graph=True)
            losses[0].backward()
            losses[1].backward()

        self.check(Blocks, use)

    def test_gradients_of_gradients(self):
        def use(net, pair, activations):
            x = pair[0][0].clone().requires_grad_(True)
            with activations or NOTHING:
                (gradient,) = torch.autograd.grad(net(x).square().sum(), x, create_graph=True)
                penalty = gradient.square().sum()
            penalty.backward()
            return [x.grad]

        self.check(
            lambda: torch.nn.Sequential(*(kind for kind in model() if not isinstance(kind, torch.nn.LayerNorm))), use
        )

    def test_a_graph_that_is_dropped_leaves_nothing(self):
        activations = self.make()
        net = Blocks()
        for _ in range(3):
            with activations:
                loss = loss_of(net, *next(batches(1)))
            self.assertGreater(activations.stats()["n_activations"], 5)
            graph = weakref.ref(loss)
            del loss
            self.assertIsNone(graph())
            self.assertEqual(activations.stats()["n_activations"], 0, "without the help of the collector")

    def test_failures_in_forward_and_backward(self):
        activations = self.make()
        expected = steps(Blocks)
        net = Blocks()

        def fail(*_):
            raise KeyboardInterrupt

        for hook in (net.norm.register_forward_hook, net.first.weight.register_hook):
            handle = hook(fail)
            with self.assertRaises(KeyboardInterrupt):
                with activations:
                    loss = loss_of(net, *next(batches(1)))
                loss.backward()
            handle.remove()
            loss = None
        gc.collect()
        self.assertEqual(activations.stats()["n_activations"], 0)
        self.assertTrue(same(steps(Blocks, activations), expected))

    def test_threads_with_models_of_their_own(self):
        activations = self.make(pinned=16 * KIB)
        expected, found = steps(Blocks), []
        nets = [Blocks() for _ in range(3)]  # made here: the seed is one of the process
        threads = [
            threading.Thread(target=lambda net=net: found.append(steps(lambda: net, activations))) for net in nets
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(found), 3)
        for each in found:
            self.assertTrue(same(each, expected))

    def test_reentrant_checkpointing(self):
        def use(net, pair, activations):
            x = pair[0][0].clone().requires_grad_(True)
            with activations or NOTHING:
                for part in net:
                    x = checkpoint(part, x, use_reentrant=True)
            x.sum().backward()

        self.check(model, use, min_bytes=1)


class MemoryTest(unittest.TestCase):
    """The peak of a process of its own, which saves 48 times 4 MiB."""

    LOOP = """
import sys, torch, strata
torch.manual_seed(1)
torch.set_num_threads(1)
activations = strata.offload_activations(pinned="16MiB", nvme=sys.argv[1]) if len(sys.argv) > 1 else None
def peak():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) >> 10
def forward(x):
    for _ in range(48):
        x = x.tanh()
    return x.sum()
before = peak()
x = torch.randn(1 << 20, requires_grad=True)
for _ in range(2):
    if activations is None:
        y = forward(x)
    else:
        with activations:
            y = forward(x)
    y.backward()
if activations is not None:
    assert activations.stats()["peak_nvme_bytes"] > 150 << 20
print(peak() - before, x.grad.double().sum().item().hex())
"""

    def run_loop(self, *arguments):
        environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}  # freed memory goes back at once
        done = subprocess.run(
            [sys.executable, "-c", self.LOOP, *arguments], capture_output=True, text=True, env=environment
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        peak, total = done.stdout.split()
        return int(peak), total

    def test_resident_memory_is_lower(self):
        with tempfile.TemporaryDirectory() as folder:
            plain, expected = self.run_loop()
            found, total = self.run_loop(folder)
        print(f"peak of resident memory: {plain} MiB more by a loop, {found} MiB with its activations on NVMe")
        self.assertEqual(total, expected)
        self.assertGreater(plain, 180)
        self.assertLess(found, 60)


class RefusalsTest(unittest.TestCase):
    """Older versions of torch make a RuntimeError of whatever a hook raises."""

    def test_other_devices(self):
        activations = strata.offload_activations(**RAM)
        with self.assertRaisesRegex(RuntimeError, "is on meta; it must be in CPU memory or on a CUDA device"):
            with activations:
                torch.zeros(4, device="meta", requires_grad=True).exp()

    def test_what_does_not_fit(self):
        activations = strata.offload_activations(**{**RAM, "pinned": 32 * KIB})
        x = torch.randn(64, 64, requires_grad=True)
        with self.assertRaisesRegex(
            RuntimeError, r"float32 \(64, 64\): object 3 of 16384 bytes needs 16384 bytes, but 0 of 32768"
        ):
            with activations:
                kept = [x.exp() for _ in range(3)]
        self.assertEqual(activations.stats()["n_activations"], 0)
        with activations:
            kept = [x.exp() for _ in range(2)]
        sum(each.sum() for each in kept).backward()
        self.assertTrue(torch.allclose(x.grad, 2 * x.detach().exp()))

    def test_the_text_of_an_error_survives_the_collector(self):
        activations = strata.offload_activations(**{**RAM, "pinned": 32 * KIB})
        x = torch.randn(64, 64, requires_grad=True)
        with activations:
            kept = [x.exp()]
        put = activations._store._put

        def put_and_collect(*arguments):
            status = put(*arguments)
            kept.clear()
            return status

        activations._store._put = put_and_collect
        with self.assertRaisesRegex(RuntimeError, "of 65536 bytes needs 65536 bytes, but 16384 of 32768 are free"):
            with activations:
                torch.randn(128, 128, requires_grad=True).exp()
        self.assertEqual(activations.stats()["n_activations"], 0)

    def test_where_hooks_are_disabled(self):
        if not hasattr(torch.autograd.graph, "disable_saved_tensors_hooks"):
            self.skipTest("of a later torch")
        from torch.nn.modules.module import _global_forward_pre_hooks

        activations = strata.offload_activations(**RAM)
        with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
            with self.assertRaisesRegex(RuntimeError, "not here"):
                activations.__enter__()
        self.assertEqual(activations._n_entered, 0)
        self.assertEqual(len(_global_forward_pre_hooks), 0)
        with activations:
            y = torch.randn(64, 64, requires_grad=True).exp()
        self.assertEqual(activations.stats()["n_activations"], 1)
        self.assertEqual(len(_global_forward_pre_hooks), 0)
        del y

    def test_compilation_in_old_and_new_versions(self):
        dynamo = types.SimpleNamespace(disable=lambda function: ("_dynamo", function))
        compiler = types.SimpleNamespace(disable=lambda function: ("compiler", function))
        with mock.patch.dict(sys.modules, {"torch._dynamo": dynamo}):
            with mock.patch.object(torch, "_dynamo", dynamo, create=True):
                for found, name in ((compiler, "compiler"), (None, "_dynamo"), (types.SimpleNamespace(), "_dynamo")):
                    with mock.patch.object(torch, "compiler", found, create=True):
                        self.assertEqual(untraced(len), (name, len))

    def test_options(self):
        for options, text in (
            (dict(pinned="8 parsecs"), "pinned is '8 parsecs'"),
            (dict(pinned=4096), "pinned_bytes is 4096"),
            (dict(pinned="1MiB", page_bytes=100), "page_bytes is 100"),
            (dict(pinned="1MiB", nvme_bytes=100), "there is no folder"),
            (dict(pinned="1MiB", device=-1), "device is -1"),
        ):
            with self.assertRaises(ValueError) as caught:
                strata.offload_activations(**options)
            self.assertIn(text, str(caught.exception))

    def test_after_close(self):
        activations = strata.offload_activations(**RAM)
        x = torch.randn(64, 64, requires_grad=True)
        with activations:
            y = x.exp().sum()
        activations.close()
        activations.close()
        with self.assertRaisesRegex(RuntimeError, "closed"):
            y.backward()


if __name__ == "__main__":
    unittest.main()
