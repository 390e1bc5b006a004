"""Settings, groups and states of strata.optim as PyTorch has them, in the cases that are easy to get wrong."""

import tempfile
import unittest

from torch_model import batches, loss_of, model, same, torch, train, values

import strata
from strata import optim

SMALL = dict(pinned="64MiB", threads=1)


class BudgetsTest(unittest.TestCase):
    def test_nothing_is_a_budget(self):
        with self.assertRaises(strata.errors.DoesNotFitError):
            optim.AdamW(model().parameters(), pinned=0).plan()
        with tempfile.TemporaryDirectory() as folder:
            for nothing in (dict(nvme=folder, nvme_bytes=0), dict(nvme=0)):
                optimizer = optim.AdamW(model().parameters(), **SMALL, **nothing)
                self.assertEqual(optimizer.plan()["nvme_bytes"], 0)
            with self.assertRaises(strata.errors.StrataError):
                optim.AdamW(model().parameters(), pinned="64MiB", nvme=folder, nvme_bytes=0, placement="nvme").plan()

    def test_a_budget_is_for_groups_that_are_added_later_too(self):
        first, second = model(), model()
        planned = optim.AdamW(first.parameters(), **SMALL).plan()["pinned_bytes"]
        optimizer = optim.AdamW(first.parameters(), pinned=planned * 3 // 2, threads=1)
        loss_of(first, *next(batches(1))).backward()
        optimizer.step()
        optimizer.add_param_group(dict(params=list(second.parameters())))
        loss_of(second, *next(batches(1))).backward()
        before = values(first)
        with self.assertRaises(strata.errors.DoesNotFitError):
            optimizer.step()
        self.assertTrue(same(values(first), before), "nothing has changed")


class GroupsTest(unittest.TestCase):
    def test_all_groups_are_checked_before_one_changes(self):
        for key, value in (("eps", -1.0), ("betas", (0.9, 1.0)), ("weight_decay", float("nan")), ("lr", float("inf"))):
            first, second = model(), model()
            optimizer = optim.AdamW(first.parameters(), **SMALL)
            for net in (first, second):
                loss_of(net, *next(batches(1))).backward()
            optimizer.step()
            optimizer.add_param_group(dict(params=list(second.parameters())))  # a session of its own
            optimizer.param_groups[1][key] = value
            before = values(first)
            with self.assertRaises(ValueError):
                optimizer.step()
            self.assertTrue(same(values(first), before), key)

    def test_adams_decay_is_not_decoupled(self):
        with self.assertRaisesRegex(NotImplementedError, "decoupled_weight_decay"):
            optim.Adam([dict(params=model().parameters(), decoupled_weight_decay=True)])
        optimizer = optim.Adam(model().parameters())
        state = optimizer.state_dict()
        state["param_groups"][0]["decoupled_weight_decay"] = True
        with self.assertRaisesRegex(NotImplementedError, "decoupled_weight_decay"):
            optimizer.load_state_dict(state)

    def test_names_that_groups_share(self):
        nets = model(), model()
        groups = [dict(params=list(net.parameters()), param_names=[n for n, _ in net.named_parameters()]) for net in nets]
        optimizer = optim.AdamW(groups, **SMALL)
        for net in nets:
            loss_of(net, *next(batches(1))).backward()
        optimizer.step()
        self.assertTrue(same(values(nets[0]), values(nets[1])))

    def test_empty_parameters(self):
        empty, net = torch.nn.Parameter(torch.zeros(0, 4)), model()
        optimizer = optim.AdamW([empty, *net.parameters()], **SMALL)
        empty.grad = torch.zeros(0, 4)
        loss_of(net, *next(batches(1))).backward()
        optimizer.step()
        optimizer.load_state_dict(optimizer.state_dict())
        self.assertEqual(len(optimizer.state_dict()["state"]), len(list(net.parameters())))

    def test_an_eps_of_zero(self):
        for ours, theirs in ((optim.AdamW, torch.optim.AdamW), (optim.Adagrad, torch.optim.Adagrad)):
            found = []
            for kind, options in ((ours, SMALL), (theirs, {})):
                param = torch.nn.Parameter(torch.linspace(-1, 1, 64))
                optimizer = kind([param], lr=1e-2, eps=0, **options)
                for step in range(3):
                    param.grad = torch.linspace(0.5, 1.5, 64) * (step + 1)
                    optimizer.step()
                found.append(param.detach())
            self.assertTrue(torch.allclose(*found, rtol=1e-6, atol=1e-7))

    def test_gradients_with_the_negative_bit(self):
        found = []
        for lazily in (True, False):
            param = torch.nn.Parameter(torch.zeros(8))
            optimizer = optim.SGD([param], lr=1.0, **SMALL)
            gradient = torch._neg_view(torch.ones(8))
            param.grad = gradient if lazily else gradient.resolve_neg()
            optimizer.step()
            found.append(param.detach())
        self.assertEqual(found[0].tolist(), [1.0] * 8)
        self.assertTrue(same(*[[value] for value in found]))


class StatesTest(unittest.TestCase):
    def test_what_is_written_to_16_bit_parameters_counts(self):
        for dtype in (torch.float16, torch.bfloat16):
            param = torch.nn.Parameter(torch.ones(8, dtype=dtype))
            optimizer = optim.SGD([param], lr=0.125, **SMALL)
            param.grad = torch.ones(8, dtype=dtype)
            optimizer.step()
            with torch.no_grad():
                param[:4] = 5.0
            optimizer.step()
            self.assertEqual(param.tolist(), [4.875] * 4 + [0.75] * 4)
            with torch.no_grad():
                param.zero_()
            self.assertLess(optimizer.state_dict()["state"][0]["master"].abs().max().item(), 1e-30)

    def test_momentum_of_optimizers_that_count_no_steps(self):
        reference = model()
        theirs = torch.optim.SGD(reference.parameters(), lr=1e-2, momentum=0.9)
        train(reference, theirs, 3)
        net = model()
        net.load_state_dict(reference.state_dict())
        ours = optim.SGD(net.parameters(), lr=1e-2, momentum=0.9, **SMALL)
        ours.load_state_dict(theirs.state_dict())
        kept = ours.state_dict()["state"]
        for i, state in theirs.state_dict()["state"].items():
            self.assertTrue(torch.equal(kept[i]["momentum_buffer"], state["momentum_buffer"]))
        lion = optim.Lion(model().parameters(), **SMALL)
        average = {i: {"exp_avg": torch.full_like(p, 0.5)} for i, p in enumerate(model().parameters())}
        lion.load_state_dict({**lion.state_dict(), "state": average})
        self.assertEqual(lion.state_dict()["state"][0]["exp_avg"].mean().item(), 0.5)

    def test_hooks_of_load_state_dict_see_the_states(self):
        net = model()
        optimizer = optim.AdamW(net.parameters(), **SMALL)
        if not hasattr(optimizer, "register_load_state_dict_pre_hook"):
            self.skipTest("this torch has no such hooks")
        train(net, optimizer, 1)
        seen = []

        def halve(_, state_dict):
            seen.append(len(state_dict["state"]))
            states = {i: {**state, "exp_avg": state["exp_avg"] * 0 + 0.5} for i, state in state_dict["state"].items()}
            return {**state_dict, "state": states}

        optimizer.register_load_state_dict_pre_hook(halve)
        optimizer.register_load_state_dict_post_hook(lambda of: seen.append(of.state_dict()["state"][0]["exp_avg"].mean().item()))
        optimizer.load_state_dict(optimizer.state_dict())
        self.assertEqual(seen, [len(list(net.parameters())), 0.5])


class CheckpointsTest(unittest.TestCase):
    def test_a_damaged_checkpoint_leaves_a_live_model_alone(self):
        net = model()
        optimizer = optim.AdamW(net.parameters(), **SMALL)
        train(net, optimizer, 2)
        with tempfile.TemporaryDirectory() as folder:
            path = strata.save_checkpoint(net, optimizer, folder)
            with open(f"{path}/m.safetensors", "r+b") as file:
                file.seek(-4, 2)
                file.write(b"\x7f\x7f\x7f\x7f")
            train(net, optimizer, 1)
            before = values(net)
            with self.assertRaises(OSError):
                strata.load_checkpoint(net, optimizer, path)
            self.assertTrue(same(values(net), before))
            train(net, optimizer, 1)

    def test_keep_counts_the_runs_own_history(self):
        net = model()
        optimizer = optim.AdamW(net.parameters(), **SMALL)
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for _ in range(4):
                train(net, optimizer, 1)
                paths.append(strata.save_checkpoint(net, optimizer, folder))
            strata.load_checkpoint(net, optimizer, paths[0])
            train(net, optimizer, 1, seed=9)
            strata.save_checkpoint(net, optimizer, folder, keep=2)
            strata.load_checkpoint(net, optimizer, paths[0])  # is kept: of the two newest of this history
            strata.load_checkpoint(net, optimizer, paths[3])  # so is what is after it


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
