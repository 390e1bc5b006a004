"""Tests what strata.offload_activations() saves, and how often: storages, views, and what stays."""

import unittest

from activations_model import KIB, RAM, torch

import strata
from strata._activations._saved import storage_of
from torch.multiprocessing.reductions import StorageWeakRef

try:
    import numpy
except ImportError:
    numpy = None


class StorageTest(unittest.TestCase):
    """Tests what is saved, and how often."""

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
        with self.activations:  # tensors that backward has used up take no room
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


if __name__ == "__main__":
    unittest.main()
