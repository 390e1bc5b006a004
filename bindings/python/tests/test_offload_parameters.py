"""Parameters of an offloaded model outside of a plain stack of modules: what PyTorch does with them, with the same bits."""

import copy
import dataclasses
import gc
import io
import os
import threading
import unittest

from torch_model import batches, loss_of, model, same, skip_without_offload, torch, values

skip_without_offload()

import strata
from torch import nn

SMALL = dict(pinned="64MiB", threads=1)
ROOM = 3 * 48 * 48 * 4  # for two modules of the model


class Reading(nn.Module):
    """Reads parameters of children that are never called, and gives its output in a dataclass."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.all = nn.ParameterList([nn.Parameter(torch.randn(32, 32) / 6) for _ in range(3)])
        self.named = nn.ParameterDict({"scale": nn.Parameter(torch.ones(32))})
        self.child = nn.Linear(32, 10)
        self.normed = nn.utils.weight_norm(nn.Linear(32, 32))

    def forward(self, x):
        for weight in self.all:
            x = torch.tanh(x @ weight)
        hidden = self.normed(x * self.named["scale"])
        return Output(nn.functional.linear(hidden, self.child.weight, self.child.bias))


@dataclasses.dataclass
class Output:
    logits: torch.Tensor


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.first, self.last = nn.Linear(32, 32), nn.Linear(32, 10)

    def forward(self, x):
        y = self.first(x)
        y.mul_(0.5)
        y[:, :4] = 1.0
        return self.last(y)


def make(build, offloads, device=ROOM, **options):
    net = build()
    if offloads:
        strata.offload(net, device=device, **SMALL)
    return net, strata.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-2, **SMALL)


def step(net, optimizer, seed=3, of=lambda output: getattr(output, "logits", output)):
    x, y = next(batches(1, seed=seed))
    loss = nn.functional.cross_entropy(of(net(x)), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


class SameAsTorchTest(unittest.TestCase):
    def check(self, use, build=model, device=ROOM):
        """`use` returns tensors, which must be the same with and without strata.offload(), as must all parameters after it."""
        found = []
        for offloads in (True, False):
            net, optimizer = make(build, offloads, device)
            seen = use(net, optimizer) or []
            seen += [step(net, optimizer, seed) for seed in (7, 8)]
            found.append([*seen, *(p.detach().clone() for p in net.parameters()), *net.state_dict().values()])
        self.assertTrue(same(*found))

    def test_parameters_that_a_parent_reads_of_its_children(self):
        self.check(lambda net, optimizer: [step(net, optimizer)], Reading, device=4 * 32 * 32 * 4)

    def test_outputs_that_are_changed_in_place(self):
        self.check(lambda net, optimizer: [step(net, optimizer)], InPlace)

    def test_writes_between_steps_count(self):
        def use(net, optimizer):
            step(net, optimizer)
            with torch.no_grad():
                net[0].weight.clamp_(-0.05, 0.05)
                nn.init.constant_(net[2].bias, 0.25)
                net[4].weight.copy_(net[4].weight * 0.9)
            net[3].weight.data.mul_(0.5)
            net[3].bias.data = torch.full((48,), 0.125)
            net[0].bias.detach().numpy()[:] = 0.5
            params = list(net.parameters())
            nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(params).detach() * 0.99, params)

        self.check(use, device=1 << 20)

    def test_reads_after_a_step_are_of_that_step(self):
        def use(net, optimizer):
            alias = net[0].weight.data
            seen = []
            for seed in range(2):
                step(net, optimizer, seed)
                seen += [alias.clone(), net[2].weight.norm().detach(), net[4].bias.detach().clone()]
            return seen

        self.check(use)

    def test_states_and_copies_of_a_part(self):
        def use(net, optimizer):
            step(net, optimizer)
            file = io.BytesIO()
            torch.save(net[2], file)
            file.seek(0)
            loaded = torch.load(file, weights_only=False)
            copied = copy.deepcopy(net[2])
            x = torch.ones(1, 48)
            return [*(value.clone() for value in net[2].state_dict().values()), loaded(x).detach(), copied(x).detach()]

        self.check(use)

    def test_a_state_dict_that_is_loaded_later(self):
        def use(net, optimizer):
            step(net, optimizer)
            net.load_state_dict({key: value * 0.5 for key, value in net.state_dict().items()})
            net[2].load_state_dict({"weight": torch.ones(48, 48) / 48, "bias": torch.zeros(48)})

        self.check(use)

    def test_double_backward(self):
        def use(net, optimizer):
            x, y = next(batches(1))
            x.requires_grad_(True)
            loss = loss_of(net, x, y)
            wanted = torch.autograd.grad(loss, [x, net[2].weight], create_graph=True)
            (loss + sum(g.square().sum() for g in wanted)).backward()
            optimizer.step()
            optimizer.zero_grad()

        self.check(use, device=1 << 20)

    def test_threads_that_infer_at_once(self):
        net, _ = make(model, True, device=(48 * 48 + 48) * 4)
        inputs = [x for x, _ in batches(4)]
        with torch.no_grad():
            expected, found = [model()(x) for x in inputs], [None] * 4

        def infer(i):
            with torch.no_grad():
                for _ in range(20):
                    found[i] = net(inputs[i])

        threads = [threading.Thread(target=infer, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertTrue(same(found, expected))

    def test_an_optimizer_that_was_made_before(self):
        found = []
        for before in (True, False):
            net = model()
            if before:
                optimizer = strata.optim.AdamW(net.parameters(), lr=1e-2)
            strata.offload(net, device=ROOM, **SMALL)
            if not before:
                optimizer = strata.optim.AdamW(net.parameters(), lr=1e-2)
            found.append([step(net, optimizer, seed) for seed in range(3)])
            self.assertGreater(net.strata_offload.stats()["pinned_bytes"], 0)
            self.assertTrue(net.strata_offload.leaves)
        self.assertTrue(same(*found))

    def test_an_optimizer_of_torch(self):
        found = []
        for offloads in (True, False):
            net = model()
            if offloads:
                strata.offload(net, device=ROOM, **SMALL)
            optimizer = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9)
            found.append([*(step(net, optimizer, seed) for seed in range(3)), *values(net)])
        self.assertTrue(same(*found))

    def test_empty_parameters(self):
        def build():
            net = model()
            net.none = nn.Parameter(torch.zeros(0, 3))
            return net

        net, optimizer = make(build, True)
        optimizer.param_groups[0]["params"].append(net.none)
        net.none.grad = torch.zeros(0, 3)
        step(net, optimizer)
        self.assertEqual(tuple(net.state_dict()["none"].shape), (0, 3))


class RefusedBeforeANumberIsWrongTest(unittest.TestCase):
    def refuses(self, names, call, kind=strata.errors.StrataError):
        with self.assertRaises(kind) as caught:
            call()
        for name in names:
            self.assertIn(name, str(caught.exception))

    def test_a_graph_in_the_gradients_that_leave(self):
        net, _ = make(model, True)
        self.refuses(["gradient of '", "create_graph"], lambda: loss_of(net, *next(batches(1))).backward(create_graph=True))

    def test_parameters_that_are_unfrozen_too_late(self):
        net = model()
        net[0].weight.requires_grad_(False)
        strata.offload(net, device=ROOM, **SMALL)
        optimizer = strata.optim.AdamW(net.parameters(), lr=1e-2)
        step(net, optimizer)
        for call in (net[0].requires_grad_, lambda: setattr(net[0].weight, "requires_grad", True)):
            self.refuses(["'0.weight'", "before the first forward"], call)

    def test_a_group_that_is_added_too_late(self):
        net = strata.offload(model(), device=ROOM, **SMALL)
        optimizer = strata.optim.AdamW(net[0].parameters(), lr=1e-2)
        step(net, optimizer)
        self.refuses(["'2.weight'"], lambda: optimizer.add_param_group(dict(params=net[2].parameters())))
        self.assertEqual(len(optimizer.param_groups), 1)

    def test_an_optimizer_that_has_made_steps(self):
        net, optimizer = make(model, False)
        step(net, optimizer)
        self.refuses(["AdamW"], lambda: strata.offload(net, device=ROOM, **SMALL))

    def test_a_parameter_that_was_changed_since_its_forward(self):
        net, _ = make(model, True)
        loss = loss_of(net, *next(batches(1)))
        with torch.no_grad():
            net[2].weight.mul_(2)
        self.refuses(["'2.weight'", "modified by an inplace operation"], loss.backward, RuntimeError)

    def test_memory_of_another_kind(self):
        net, optimizer = make(model, True)
        step(net, optimizer)
        self.refuses(["'0.weight'", "bfloat16"], lambda: net.to(torch.bfloat16))
        self.refuses(["'0.weight'", "resize_"], lambda: net[0].weight.resize_(3))

    def test_a_module_that_is_compiled_by_jit(self):
        net = nn.Sequential(nn.Linear(4, 4), torch.jit.script(nn.Linear(4, 4)))
        self.refuses(["module '1'"], lambda: strata.offload(net, device=ROOM, **SMALL))


class ReleasedTest(unittest.TestCase):
    def test_a_model_is_freed_when_it_is_dropped(self):
        """Also if gradients are left, without the collector of cycles."""

        def count():
            return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

        make(model, True)[0](next(batches(1))[0])
        gc.collect()
        before = count()
        gc.disable()
        try:
            for _ in range(5):
                net, optimizer = make(model, True)
                loss_of(net, *next(batches(1))).backward()
                optimizer.step()
                del net, optimizer
        finally:
            gc.enable()
        self.assertEqual(count(), before)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
