"""torch.func's transforms of an offloaded model: PyTorch's numbers, or the error that they do not fit."""

import unittest

from torch_model import batches, model, skip_without_offload, torch

skip_without_offload()

import strata
from torch.func import functional_call, functionalize, grad, jacrev, jvp, stack_module_state, vjp, vmap

SMALL = dict(pinned="64MiB", threads=1)
LARGEST = (48 * 48 + 48) * 4  # the largest module of the model
X = next(batches(1))[0]


def _of_params(transform, net):
    return transform(lambda params: functional_call(net, params, (X,)).sin().sum())(dict(net.named_parameters()))["2.weight"]


BY_NAME = {
    "grad of inputs": lambda net: grad(lambda x: net(x).sin().sum())(X),
    "grad of parameters": lambda net: _of_params(grad, net),
    "jacrev of parameters": lambda net: _of_params(jacrev, net),
    "vjp of inputs": lambda net: vjp(net, X)[1](torch.ones(16, 10))[0],
    "vjp of parameters": lambda net: vjp(lambda p: functional_call(net, p, (X,)), dict(net.named_parameters()))[0],
    "gradients of samples": lambda net: vmap(grad(lambda p, x: functional_call(net, p, (x,)).sum()), (None, 0))(
        dict(net.named_parameters()), X)["4.weight"],
}  # fmt: skip
# These transforms need one module at a time.
BY_MODULE = {
    "jvp of inputs": lambda net: jvp(net, (X,), (X,))[1],
    "vmap over inputs": lambda net: vmap(net)(X),
    "functional_call": lambda net: functional_call(net, dict(net.named_parameters()), (X,)),
    "functionalize": lambda net: functionalize(lambda p: p.sin())(net[2].weight),
    "grad of a parameter": lambda net: grad(lambda p: p.sin().sum())(net[2].weight),
    "grad of a view": lambda net: grad(lambda p: p.sin().sum())(net[2].weight[:3]),
    "jvp of a parameter": lambda net: jvp(lambda p: p.sin(), (net[2].weight,), (net[2].weight,))[1],
    "vmap over a parameter": lambda net: vmap(lambda p: p.sin().sum())(net[2].weight),
    "models as one": lambda net: vmap(lambda p, x: functional_call(net, p, (x,)), (0, None))(
        stack_module_state([net, net])[0], X),
}  # fmt: skip


def offloaded(device):
    net = strata.offload(model(), device=device, **SMALL)
    with torch.no_grad():
        net(X)  # parameters have left
    return net


class TransformsTest(unittest.TestCase):
    def test_results_are_those_of_pytorch(self):
        for name, use in {**BY_NAME, **BY_MODULE}.items():
            with self.subTest(name):
                expected, net = use(model()), offloaded(1 << 20)
                self.assertTrue(torch.equal(use(net), expected))

    def test_where_a_module_fits_and_no_more_they_are_refused_or_right(self):
        for name, use in BY_NAME.items():
            with self.subTest(name), self.assertRaisesRegex(strata.errors.DoesNotFitError, "need"):
                use(offloaded(LARGEST))
        for name, use in BY_MODULE.items():
            with self.subTest(name):
                self.assertTrue(torch.equal(use(offloaded(LARGEST)), use(model())))

    def test_parameters_leave_after_a_transform(self):
        net = offloaded(LARGEST)
        with self.assertRaises(strata.errors.DoesNotFitError):
            BY_NAME["grad of inputs"](net)
        BY_NAME["grad of inputs"](offloaded(1 << 20))
        self.assertTrue(torch.equal(net(X), model()(X)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
