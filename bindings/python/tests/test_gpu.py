"""Parameters on a GPU, for which a part of CPU memory stands: what is copied, and what is waited for."""

import tempfile
import unittest

from torch_model import computes_in, model, same, torch, train, values

from strata import errors, optim

from fake_gpu import FakeGpu

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

    def test_other_devices_are_refused_by_name(self):
        param = torch.nn.Parameter(torch.empty(3, device="meta"))
        with self.assertRaisesRegex(errors.UnsupportedError, "parameter 'param.0' is on meta; it must be in CPU memory"):
            optim.AdamW([param])


if __name__ == "__main__":
    unittest.main()
