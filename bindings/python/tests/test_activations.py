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

from torch_model import batches, loss_of, model, same, torch, values

if not hasattr(torch.autograd.graph, "saved_tensors_hooks"):
    print("strata.offload_activations needs a later torch")
    raise SystemExit(77)

import strata
from strata._activations._hooks import untraced
from strata._activations._saved import storage_of
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.checkpoint import checkpoint

try:
    import numpy
except ImportError:
    numpy = None

torch.set_num_threads(1)
KIB = 1 << 10
RAM = dict(pinned=1024 * KIB, page_bytes=4 * KIB, min_bytes=1)  # nearly all that is saved moves


class Blocks(torch.nn.Module):
    """In-place operations, views of one storage, a mask, a buffer, a frozen layer, and a tied weight."""

    def __init__(self, checkpoints=False):
        super().__init__()
        torch.manual_seed(1)
        self.checkpoints = checkpoints
        self.first = torch.nn.Linear(32, 96)
        self.frozen = torch.nn.Linear(32, 32).requires_grad_(False)
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(inplace=True), torch.nn.Linear(64, 32))
            for _ in range(4)
        )
        self.norm = torch.nn.BatchNorm1d(32)
        self.register_buffer("table", torch.randn(32, 32))
        self.last = torch.nn.Linear(32, 10)

    def forward(self, x):
        q, k, v = self.first(x).split(32, dim=1)  # views of one storage
        x = torch.softmax(q @ k.t(), dim=1) @ v
        for block in self.blocks:
            x = x + (checkpoint(block, x, use_reentrant=False) if self.checkpoints else block(x))
            x = torch.where(x > 0, x, 0.1 * x)
        x = self.norm(torch.tanh(self.frozen(x) @ self.table.t()))
        return self.last(x @ self.blocks[0][0].weight.t() @ self.blocks[0][0].weight)


def gradients_of(net):
    return [torch.zeros(1) if param.grad is None else param.grad.clone() for param in net.parameters()]


def steps(make, activations=None, use=None, n=3):
    """Losses and gradients of some steps with plain SGD."""
    net = make()
    found = []
    for pair in (list(batches(2, seed=step)) for step in range(n)):
        if use is not None:
            found += use(net, pair, activations) or ()
        else:
            with activations or NOTHING:
                loss = loss_of(net, *pair[0])
            loss.backward()
            found.append(loss.detach())
        found += gradients_of(net)
        with torch.no_grad():
            for param in net.parameters():
                if param.grad is not None:
                    param -= 0.1 * param.grad
        net.zero_grad()
    return [*found, *values(net)]


class Nothing:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


NOTHING = Nothing()


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


class Bfloat16(torch.nn.Module):
    """Activations are of 16 bits where this torch computes in them."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        x = self.net[0](x).to(torch.bfloat16)
        return self.net[4](self.net[2]((x * x).float()))


class StorageTest(unittest.TestCase):
    """What is saved, and how often."""

    def setUp(self):
        self.activations = strata.offload_activations(**{**RAM, "min_bytes": 4 * KIB})  # no scalars
        self.addCleanup(self.activations.close)

    def saved(self):
        stats = self.activations.stats()
        return stats["n_activations"], stats["activation_bytes"]

    def test_memory_leaves_torch(self):
        x = torch.randn(64, 64, requires_grad=True)
        with self.activations:
            y = x.exp()  # saves its result
            z = y.sum()
        storage = StorageWeakRef(storage_of(y))
        self.assertEqual(self.saved(), (1, 64 * 64 * 4))
        self.assertFalse(storage.expired())
        del y
        self.assertTrue(storage.expired())
        z.backward()
        self.assertTrue(torch.equal(x.grad, x.detach().exp()))
        self.assertEqual(self.saved(), (0, 0))

    def test_views_of_a_storage_are_saved_once_and_share_it_again(self):
        seen = []

        class Save(torch.autograd.Function):
            @staticmethod
            def forward(ctx, *views):
                ctx.save_for_backward(*views)
                return sum(view.sum() for view in views)

            @staticmethod
            def backward(ctx, gradient):
                seen.extend(ctx.saved_tensors)
                return tuple(torch.zeros_like(view) for view in ctx.saved_tensors)

        base = torch.randn(12, 160, requires_grad=True) * 1
        views = [base[2:5], base.t(), base.view(-1)[7:90:3], base[:, 1:2].expand(12, 9)]
        with self.activations:
            total = Save.apply(*views)
        self.assertEqual(self.saved(), (1, 12 * 160 * 4))
        total.backward()
        self.assertEqual(len({storage_of(view).data_ptr() for view in seen}), 1)
        for view, found in zip(views, seen):
            self.assertTrue(torch.equal(view, found))
            self.assertEqual((view.stride(), view.storage_offset()), (found.stride(), found.storage_offset()))

    def test_parameters_buffers_and_other_leaves_stay(self):
        net, frozen = torch.nn.BatchNorm1d(1024).eval(), torch.nn.Linear(1024, 8).requires_grad_(False)
        weight, x = torch.nn.Parameter(torch.randn(1024, 64)), torch.randn(32, 64, requires_grad=True)
        with self.activations:
            y = (x @ weight.t()) * 2
            z = frozen(net(y.detach().requires_grad_(True)))
        self.assertEqual(self.saved(), (0, 0))
        del y, z

    def test_what_is_small_stays(self):
        self.activations.min_bytes = 64 * 64 * 4
        x = torch.randn(64, 64, requires_grad=True)
        with self.activations:
            y = x.exp()
            z = x[1:].exp()
        self.assertEqual(self.saved(), (1, 64 * 64 * 4))
        (y.sum() + z.sum()).backward()

    def test_what_stays_is_not_held_by_itself(self):
        for min_bytes, device in ((1 << 20, 0), (1, 1 << 20)):
            self.activations.min_bytes, self.activations.device_bytes = min_bytes, device
            x = torch.randn(64, 64, requires_grad=True)
            with self.activations:
                y = x.exp()
            storage = StorageWeakRef(storage_of(y))
            del y
            self.assertTrue(storage.expired(), "without the help of the collector")

    def test_integers_and_masks_leave(self):
        x = torch.randn(64, 64, requires_grad=True)
        index = torch.randint(0, 64, (50, 64))
        with self.activations:
            y = torch.where(x * 2 > 0, x * 1, x * 3).gather(0, index).sum()
        self.assertIn(
            self.saved(), [(2, 64 * 64 + 50 * 64 * 8), (3, 5 * 64 * 64 + 50 * 64 * 8)]
        )  # gather may save itself
        y.backward()
        self.assertEqual(self.saved(), (0, 0))
        found, x.grad = x.grad, None
        torch.where(x * 2 > 0, x * 1, x * 3).gather(0, index).sum().backward()
        self.assertTrue(torch.equal(found, x.grad))

    def test_the_newest_stay_by_the_budget_of_device(self):
        n = 64 * 64 * 4
        self.activations.device_bytes = 2 * n
        x = torch.randn(64, 64, requires_grad=True)
        with self.activations:
            y = x
            for _ in range(5):
                y = y.exp().clamp(max=1.5) * 1
        kept = self.activations.stats()["peak_device_bytes"]
        self.assertEqual(kept, 2 * n)
        self.assertEqual(self.saved(), (3, 3 * n))
        y.sum().backward()
        with self.activations:  # those that backward has used up take no room
            z = [x.exp(), x.exp()]
        self.assertEqual(self.saved(), (0, 0))
        del z
        self.assertEqual(self.saved(), (0, 0))

    def test_a_storage_that_was_written_to_is_saved_as_it_was(self):
        x = torch.randn(64, 64, requires_grad=True)
        with self.activations:
            y = x * 1
            first = y.square()  # saves y
            with torch.no_grad():
                y += 1
            second = y.square()  # saves y as it is now
        self.assertEqual(self.saved()[0], 2)
        (first.sum() + second.sum()).backward()
        self.assertTrue(torch.equal(x.grad, 2 * x.detach() + 2 * (x.detach() + 1)))

    def test_what_stays_and_was_written_to_is_refused_as_by_torch(self):
        for options in (dict(min_bytes=1 << 20), dict(device_bytes=1 << 20)):
            self.activations.min_bytes, self.activations.device_bytes = 1, 0
            for name, value in options.items():
                setattr(self.activations, name, value)
            x = torch.randn(64, 64, requires_grad=True)
            with self.activations:
                y = x * 1
                z = y.square().sum()
                with torch.no_grad():
                    y += 1
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                z.backward()

    def test_what_was_written_to_in_torchs_memory_and_then_left_is_refused(self):
        self.activations.device_bytes = 64 * 64 * 4
        x = torch.randn(64, 64, requires_grad=True)
        with self.activations:
            y = x * 1
            z = y.square()
            with torch.no_grad():
                y += 1
            w = x.exp()  # takes its place
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            (z.sum() + w.sum()).backward()

    def test_a_part_of_the_callers_memory_stays(self):
        dataset, w = torch.randn(256, 64), torch.randn(64, 64, requires_grad=True)
        for part in (dataset[64:128], dataset[128:], dataset[7].expand(64, 64), dataset[9:12].t()[:, :1].t()):
            with self.activations:
                y = (part @ w).sum()
            self.assertEqual(self.saved(), (0, 0), part.shape)
            y.backward()
        with self.activations:
            y = (dataset[1:] @ w).sum()  # most of it leaves with the rest
        self.assertEqual(self.saved(), (1, dataset.numel() * 4))
        y.backward()

    def test_a_part_of_the_callers_memory_is_checked_as_by_torch(self):
        dataset, w = torch.randn(256, 64), torch.randn(64, 64, requires_grad=True)
        with self.activations:
            y = (dataset[:64] @ w).sum()
        dataset[100] += 1
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            y.backward()

    def test_a_part_of_an_activation_leaves_with_its_storage(self):
        x = torch.randn(64, 64, requires_grad=True)
        with self.activations:
            y = x * 1
            z = y[:1].square().sum() + y[1:2].square().sum()
        self.assertEqual(self.saved(), (1, 64 * 64 * 4))
        z.backward()

    def test_memory_that_was_written_to_unnoticed_is_saved_again(self):
        w = torch.randn(64, 64, requires_grad=True)
        memory = torch.randn(64, 64)
        ways = [lambda new: memory.data.copy_(new)]
        inputs = [memory]
        if numpy is not None:
            array = numpy.zeros((64, 64), dtype=numpy.float32)
            inputs.append(torch.from_numpy(array))
            ways.append(lambda new: numpy.copyto(array, new.numpy()))
        for device in (0, 1 << 20):
            self.activations.device_bytes = device
            for x, write in zip(inputs, ways):
                expected, losses = [], []
                for _ in range(2):
                    new = torch.randn(64, 64)
                    write(new)
                    expected.append(new.t() @ torch.ones(64, 64))
                    with self.activations:
                        losses.append((x @ w).sum())  # the graph before lives
                losses[1].backward()
                self.assertTrue(torch.allclose(w.grad, expected[1], atol=1e-4))
                w.grad = None
                if device == 0:  # the bytes are in the store
                    losses[0].backward()
                    self.assertTrue(torch.allclose(w.grad, expected[0], atol=1e-4))
                    w.grad = None

    def test_what_several_operations_use_is_saved_once(self):
        x, mask = torch.randn(64, 64, requires_grad=True), torch.rand(64, 64) > 0.5
        with self.activations:
            with self.activations:
                y = torch.where(mask, x, x * 2).sum()
            z = torch.where(mask, x, x * 3).sum()
        self.assertEqual(self.saved(), (1, 64 * 64))
        del y, z

    def test_a_storage_at_the_address_of_another_is_not_taken_for_it(self):
        x = torch.randn(64, 64, requires_grad=True)
        with self.activations:
            losses = [(x + i / 8).exp().sum() for i in range(20)]  # a result may lie where the one before was
        self.assertEqual(self.saved()[0], 20)
        sum(losses).backward()
        self.assertTrue(torch.allclose(x.grad, sum((x.detach() + i / 8).exp() for i in range(20))))


class MemoryTest(unittest.TestCase):
    """Of a process of its own, which saves 48 times 4 MiB."""

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
