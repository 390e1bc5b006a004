"""Ways to use an offloaded model besides one forward and one backward a step."""

import copy
import pickle
import unittest
import unittest.mock

from torch_model import batches, loss_of, model, same, skip_without_offload, torch

skip_without_offload()

import strata

SMALL = dict(pinned="64MiB", threads=1)
LARGEST = (48 * 48 + 48) * 4  # the largest module of the model


class UsesTest(unittest.TestCase):
    """The device has room for the largest module alone."""

    def check(self, use, device=LARGEST):
        found = []
        for offloads in (True, False):
            net = model()
            if offloads:
                strata.offload(net, device=device, **SMALL)
            optimizer = strata.optim.AdamW(net.parameters(), lr=1e-2, **SMALL)
            seen = [x for step in range(4) for x in use(net, optimizer, list(batches(2, seed=step))) or ()]
            found.append([*seen, *net.state_dict().values()])
        self.assertTrue(same(*found))

    def test_several_forwards_before_one_backward(self):
        def use(net, optimizer, pair):
            sum(loss_of(net, *batch) for batch in pair).backward()
            optimizer.step()
            optimizer.zero_grad()

        self.check(use, LARGEST + (32 * 48 + 48) * 4)  # the first module waits for the gradients of both

    def test_a_graph_that_is_used_twice(self):
        def use(net, optimizer, pair):
            losses = [loss_of(net, *batch) for batch in pair]
            losses[1].backward(retain_graph=True)
            losses[0].backward()
            losses[1].backward()
            optimizer.step()
            optimizer.zero_grad()

        self.check(use)

    def test_gradients_that_are_zeroed_in_place(self):
        def use(net, optimizer, pair):
            for batch in pair:
                loss_of(net, *batch).backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)
            optimizer.step()  # moments go on without a gradient

        self.check(use)

    def test_evaluation_between_steps(self):
        def use(net, optimizer, pair):
            loss_of(net, *pair[0]).backward()
            optimizer.step()
            optimizer.zero_grad()
            with torch.inference_mode():
                return [net(pair[1][0]).clone()]

        self.check(use)

    def test_gradients_of_inputs_and_of_some_parameters(self):
        def use(net, optimizer, pair):
            x = pair[0][0].requires_grad_(True)
            wanted = [x, net[4].bias]
            gradients = torch.autograd.grad(loss_of(net, x, pair[0][1]), wanted)
            loss_of(net, *pair[1]).backward()
            optimizer.step()
            optimizer.zero_grad()
            return gradients

        self.check(use)

    def test_an_optimizer_of_some_parameters(self):
        found = []
        for offloads in (True, False):
            net = model()
            if offloads:
                strata.offload(net, device=LARGEST, **SMALL)
            optimizer = strata.optim.AdamW(net[4].parameters(), lr=1e-2, **SMALL)
            for batch in batches(3):
                loss_of(net, *batch).backward()
                torch.nn.utils.clip_grad_norm_(net[4].parameters(), 0.5)
                optimizer.step()
                net.zero_grad()
            found.append(list(net.state_dict().values()))
        self.assertTrue(same(*found))

    def test_what_leaves_is_chosen_without_asking_all_that_could(self):
        layers = 64
        net = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(layers)])
        strata.offload(net, device=layers // 2 * 72 * 4, **SMALL)
        optimizer, asked = strata.optim.SGD(net.parameters(), lr=1e-2, **SMALL), []
        net(torch.ones(1, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        is_held, Parking = type(net.strata_offload.parking[0]).is_held, type(net.strata_offload.parking[0])
        with unittest.mock.patch.object(Parking, "is_held", lambda parking: asked.append(1) or is_held(parking)):
            net(torch.ones(1, 8)).sum().backward()
            optimizer.step()
        self.assertLess(len(asked), 8 * layers)  # four uses of two parameters each, and not a multiple of what is here

    def test_copies_are_refused(self):
        net = strata.offload(model(), device=1 << 20, **SMALL)
        optimizer = strata.optim.AdamW(net.parameters(), lr=1e-2)
        for what in (net, optimizer, strata.optim.SGD(model().parameters())):
            for make in (copy.deepcopy, pickle.dumps):
                with self.assertRaisesRegex(strata.errors.UnsupportedError, "state_dict"):
                    make(what)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
