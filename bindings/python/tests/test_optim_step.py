"""Tests what a step notices about parameters and gradients, and when it looks."""

import unittest
from unittest import mock

from torch_model import batches, loss_of, model, same, torch, train, values

import strata
from strata import optim
from strata.optim import _sealed

SMALL = dict(pinned="64MiB", threads=1)


def square(steps=2):
    """A layer with a square weight after a few steps, with a new gradient, and its optimizer."""
    torch.manual_seed(1)
    net = torch.nn.Linear(16, 16)
    optimizer = optim.AdamW(net.parameters(), lr=1e-2, **SMALL)
    for step in range(steps + 1):
        optimizer.zero_grad()
        net(torch.ones(2, 16)).square().sum().backward()
        if step < steps:
            optimizer.step()
    return net, optimizer


def transposed(tensor):
    return tensor.t()


def first_half_as_bf16(tensor):
    return tensor.view(torch.bfloat16).flatten()[:256].view(16, 16)


def free(tensor):
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
    storage.resize_(0)


class StepTest(unittest.TestCase):
    def refuses(self, text, change):
        net, optimizer = square()
        memory = net.weight.data
        before = memory.clone(), net.bias.detach().clone()
        change(net)
        with self.assertRaises(strata.errors.StrataError) as caught:
            optimizer.step()
        self.assertIn(text, str(caught.exception))
        self.assertTrue(same((memory, net.bias.detach()), before))

    def test_a_parameter_whose_memory_became_another_one_is_refused_before_anything_is_written(self):
        # All but the last keep the address.
        for text, change in (("and is torch.float32 with 256 and (1, 16)", transposed),
                             ("and is torch.bfloat16 with 512 and (32, 1)", lambda w: w.view(torch.bfloat16)),
                             ("and is torch.bfloat16 with 256 and (16, 1)", first_half_as_bf16),
                             ("and is torch.float32 with 48 and (16, 1)", lambda w: w[:3]),
                             ("and is torch.float32 with 256 and (32, 1)", lambda w: w.view(8, 32)),
                             ("with strides (0, 1)", lambda w: w[:1].expand(16, 16)),
                             ("and is torch.float16 with 256", lambda w: w.half())):  # fmt: skip

            def replace(net, change=change):
                net.weight.data = change(net.weight.data)

            self.refuses(text, replace)

    def test_memory_that_was_given_back_is_refused(self):
        net, optimizer = square()
        free(net.weight)
        with self.assertRaisesRegex(strata.errors.InvalidError, "'param.0' has no values"):
            optimizer.step()
        self.refuses("'param.0' has no gradient", lambda net: free(net.weight.grad))

    def test_a_gradient_that_became_another_one_is_refused(self):
        for text, change in (("the gradient of parameter 'param.0' is torch.float64", lambda g: g.double()),
                             ("has the shape (3, 16)", lambda g: g[:3])):  # fmt: skip

            def replace(net, change=change):
                net.weight.grad.data = change(net.weight.grad.data)

            self.refuses(text, replace)

    def test_a_gradient_in_another_order_or_dtype_is_taken_as_it_is(self):
        for change in (transposed, lambda g: torch.ones(1).expand(16, 16), lambda g: g.bfloat16()):
            found = []
            for reference in (False, True):
                net, optimizer = square()
                gradient = change(net.weight.grad.data)
                if reference:
                    gradient = gradient.float().contiguous().clone()
                net.weight.grad.data = gradient
                optimizer.step()
                found.append(values(net))
            self.assertTrue(same(*found))

    def test_a_gradient_may_become_what_it_was_before(self):
        found = []
        for with_other_between in (False, True):
            net, optimizer = square()
            other = net.weight.grad.t()
            net.weight.grad.data = other.bfloat16() if with_other_between else other.bfloat16().float().contiguous()
            optimizer.step()
            net.weight.grad.data = torch.full((16, 16), 0.5)
            optimizer.step()
            found.append(values(net))
        self.assertTrue(same(*found))

    def test_a_parameter_may_move_to_other_memory(self):
        found = []
        for moves in (False, True):
            net, optimizer = square()
            if moves:
                net.weight.data = net.weight.data.clone()
            optimizer.step()
            found.append(values(net))
        self.assertTrue(same(*found))

    def test_what_has_not_changed_is_not_checked_again(self):
        net = model()
        optimizer = optim.AdamW(net.parameters(), lr=1e-2, **SMALL)
        train(net, optimizer, 1)
        with mock.patch.object(_sealed, "check_param", wraps=_sealed.check_param) as checks:
            train(net, optimizer, 3)
            self.assertEqual(checks.call_count, 0)
            net[0].weight.data = net[0].weight.data.clone()
            train(net, optimizer, 3)
            self.assertEqual(checks.call_count, 1)

    def test_a_refused_step_leaves_an_optimizer_that_goes_on(self):
        found = []
        for refused in (False, True):
            net, optimizer = square()
            if refused:
                kept = net.weight.data
                net.weight.data = kept.t()
                self.assertRaises(strata.errors.InvalidError, optimizer.step)
                net.weight.data = kept
            optimizer.step()
            found.append(values(net))
        self.assertTrue(same(*found))

    def test_a_parameter_that_was_frozen_after_its_gradient_is_updated_as_by_torch(self):
        found = []
        for kind, options in ((optim.AdamW, SMALL), (torch.optim.AdamW, {})):
            net = model()
            optimizer = kind(net.parameters(), lr=1e-2, **options)
            loss_of(net, *next(batches(1))).backward()
            net[0].weight.requires_grad_(False)
            optimizer.step()
            found.append(values(net))
        for ours, theirs in zip(*found):
            self.assertLessEqual((ours - theirs).abs().max().item(), 1e-6)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
