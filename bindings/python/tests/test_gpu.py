"""Parameters on a GPU, for which a part of CPU memory stands: what is copied, and what is waited for."""

import contextlib
import tempfile
import unittest

from fake_gpu import FakeGpu
from torch_model import HAS_OFFLOAD, NO_OFFLOAD, batches, computes_in, loss_of, model, same, torch, train, train_scaled, values

import strata
from strata import errors, optim

DTYPES = [dtype for dtype in (torch.float32, torch.bfloat16) if computes_in(dtype)]


def adamw(net, **options):
    return optim.AdamW(net.parameters(), lr=1e-2, **{**dict(pinned="64MiB", threads=1), **options})


class OptimizerTest(unittest.TestCase):
    def test_the_bits_are_those_of_parameters_in_cpu_memory(self):
        for dtype in DTYPES:
            for accumulation in (1, 2):
                plain, net = model(dtype), model(dtype)
                expected = train(plain, adamw(plain), 6, accumulation)
                with FakeGpu() as gpu:
                    found = train(net, adamw(net), 6, accumulation)
                self.assertTrue(torch.equal(found, expected))
                self.assertTrue(same(values(net), values(plain)))
                size = sum(param.numel() * param.element_size() for param in net.parameters())
                # The values once, then in each step a gradient to the host and the values back.
                self.assertEqual(gpu.copied_bytes, size * (1 + 2 * 6))

    def test_states_on_nvme_and_frozen_parameters(self):
        plain, net = model(), model()
        for each in (plain, net):
            each[0].weight.requires_grad_(False)
        expected = train(plain, adamw(plain), 6)
        with FakeGpu(), tempfile.TemporaryDirectory() as folder:
            optimizer = adamw(net, nvme=folder, placement="nvme")
            self.assertTrue(torch.equal(train(net, optimizer, 6), expected))
            optimizer.close()

    def test_parameters_that_the_program_writes_are_read_anew(self):
        def halved(net):
            optimizer = adamw(net)
            train(net, optimizer, 2)
            with torch.no_grad():
                for param in net.parameters():
                    param.mul_(0.5)
            train(net, optimizer, 2, first=2)
            return values(net)

        plain = halved(model())
        with FakeGpu():
            self.assertTrue(same(halved(model()), plain))

    def test_states_are_saved_and_loaded(self):
        for dtype in DTYPES:
            plain, net = model(dtype), model(dtype)
            reference = adamw(plain)
            train(plain, reference, 3)
            with FakeGpu():
                optimizer = adamw(net)
                train(net, optimizer, 3)
                state, resumed = optimizer.state_dict(), model(dtype)
                resumed.load_state_dict(net.state_dict())
                again = adamw(resumed)
                again.load_state_dict(state)
                expected = train(plain, reference, 3, first=3)
                self.assertTrue(torch.equal(train(resumed, again, 3, first=3), expected))
            for ours, theirs in zip(state["state"].values(), reference.state_dict()["state"].values()):
                self.assertEqual(ours.keys(), theirs.keys())

    def test_a_checkpoint_is_loaded_to_the_gpu(self):
        plain, net, other = model(), model(), model()
        reference = adamw(plain)
        train(plain, reference, 3)
        expected = train(plain, reference, 3, first=3)
        with FakeGpu(), tempfile.TemporaryDirectory() as folder:
            optimizer = adamw(net)
            train(net, optimizer, 3)
            saved = strata.save_checkpoint(net, optimizer, folder)
            again = adamw(other)
            strata.load_checkpoint(other, again, saved)
            self.assertTrue(torch.equal(train(other, again, 3, first=3), expected))

    def test_other_devices_are_refused_by_name(self):
        param = torch.nn.Parameter(torch.empty(3, device="meta"))
        with self.assertRaisesRegex(
            errors.UnsupportedError, "parameter 'param.0' is on meta; it must be in CPU memory"
        ):
            optim.AdamW([param])


@unittest.skipUnless(HAS_OFFLOAD, NO_OFFLOAD)
class OffloadTest(unittest.TestCase):
    """Parameters that come from the session to the GPU, and gradients that leave it."""

    LARGEST = (48 * 48 + 48) * 4

    def run_offloaded(self, net, options, run=train, **arguments):
        with FakeGpu() as gpu, tempfile.TemporaryDirectory() as folder:
            if options.pop("nvme", False):
                options |= dict(nvme=folder, placement="nvme")
            strata.offload(net, pinned="64MiB", threads=1, **options)
            optimizer = adamw(net)
            found = run(net, optimizer, **arguments)
            state = net.state_dict()
            optimizer.close()
        self.assertGreater(gpu.copied_bytes, 0)
        return found, state

    def check(self, make, options, run=train, **arguments):
        plain = make()
        expected = run(plain, adamw(plain), **arguments)
        found, state = self.run_offloaded(make(), options, run, **arguments)
        self.assertTrue(torch.equal(found, expected))
        self.assertTrue(same(list(state.values()), [value.detach() for value in plain.state_dict().values()]))

    def test_the_bits_are_those_of_a_model_in_cpu_memory(self):
        for accumulation in (1, 2):
            for options in (dict(device="1MiB"), dict(device=self.LARGEST), dict(device=self.LARGEST, nvme=True)):
                self.check(model, options, steps=5, accumulation=accumulation)
        self.check(model, dict(device=self.LARGEST), steps=5, clip=0)  # nothing asks for a norm before the step

    def test_gradients_leave_while_backward_goes_on(self):
        net = model()
        with FakeGpu():
            strata.offload(net, device="1MiB", pinned="64MiB", threads=1)
            optimizer = adamw(net)
            leaving = net.strata_offload._leaving
            under_way = []
            leaving.add, add = lambda *given: (add(*given), under_way.append(len(leaving._queue))), leaving.add
            train(net, optimizer, 1)
            optimizer.close()
        self.assertEqual(max(under_way), leaving.MOST)

    def test_a_step_is_planned(self):
        net = model()
        with FakeGpu():
            strata.offload(net, device=self.LARGEST, pinned="64MiB", threads=1)
            optimizer = adamw(net)
            x, y = next(batches(1))
            planned = strata.plan(net, x, lambda output: torch.nn.functional.cross_entropy(output, y.new_zeros(16)))
            train(net, optimizer, 2)
            self.assertEqual(planned["device_bytes"], net.strata_offload.stats()["peak_device_bytes"])
            optimizer.close()

    def test_gradients_are_scaled_and_skipped(self):
        self.check(model, dict(device=self.LARGEST), train_scaled)

    def test_sixteen_bits(self):
        runs = []
        for options in (dict(device=self.LARGEST), dict(device="1MiB")):
            runs.append(self.run_offloaded(model(torch.bfloat16), options, steps=5)[0])
        plain = strata.offload(model(torch.bfloat16), device="1MiB", pinned="64MiB", threads=1)
        self.assertTrue(torch.equal(runs[0], runs[1]))
        self.assertTrue(torch.equal(runs[0], train(plain, adamw(plain), steps=5)))

    def test_a_model_in_cpu_memory_comes_to_where_pytorch_computes(self):
        self.check(model, dict(device=self.LARGEST, to="cpu"), steps=5)
        with self.assertRaisesRegex(errors.UnsupportedError, "to is meta; it must be"):
            strata.offload(model(), to="meta")


class ActivationsTest(unittest.TestCase):
    def test_what_autograd_saves_leaves_and_comes_back(self):
        def run(context):
            net = model()
            optimizer = adamw(net)
            losses = []
            for x, y in batches(4):
                with context:
                    loss = loss_of(net, x, y)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.item())
            return losses

        expected = run(contextlib.nullcontext())
        with FakeGpu() as gpu:
            activations = strata.offload_activations(pinned="1MiB", min_bytes=1)
            self.assertEqual(run(activations), expected)
            self.assertGreater(activations.stats()["peak_pinned_bytes"], 0)
            activations.close()
        self.assertGreater(gpu.copied_bytes, 0)


if __name__ == "__main__":
    unittest.main()
