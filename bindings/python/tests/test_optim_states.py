"""state_dict, faults, and what is refused."""

import copy
import gc
import io
import os
import subprocess
import sys
import tempfile
import unittest

from torch_model import batches, computes_in, loss_of, model, same, torch, train, values

import strata
from strata import optim

SMALL = dict(pinned="64MiB", threads=1)
PAIRS = (
    (optim.AdamW, torch.optim.AdamW, dict(lr=1e-2)),
    (optim.Adagrad, torch.optim.Adagrad, dict(lr=1e-2)),
    (optim.SGD, torch.optim.SGD, dict(lr=1e-2, momentum=0.9)),
)


class StateDictTest(unittest.TestCase):
    def resumed(self, saver, loader, settings, dtype=torch.float32, through_file=False):
        """Losses of ten steps after five, beside those of a run that was not interrupted."""
        net = model(dtype)
        optimizer = saver(net.parameters(), **settings)
        train(net, optimizer, 5)
        saved = copy.deepcopy(net), optimizer.state_dict()
        if through_file:
            file = io.BytesIO()
            torch.save(saved[1], file)
            file.seek(0)
            saved = saved[0], torch.load(file)
        other = loader(saved[0].parameters(), **settings)
        other.load_state_dict(saved[1])
        return train(saved[0], other, 10, first=5), train(net, optimizer, 10, first=5), (values(saved[0]), values(net))

    def test_our_own_resumes_to_the_same_bits(self):
        for dtype in filter(computes_in, (torch.float32, torch.bfloat16, torch.float16)):
            for ours, _, settings in PAIRS:
                found, expected, nets = self.resumed(ours, ours, {**settings, **SMALL}, dtype, through_file=True)
                self.assertTrue(torch.equal(found, expected), (dtype, ours))
                self.assertTrue(same(*nets), (dtype, ours))

    def test_it_goes_between_torch_and_strata(self):
        for ours, theirs, settings in PAIRS:

            def strata_of(params, ours=ours, **settings):
                return ours(params, **settings, **SMALL)

            for saver, loader in ((strata_of, theirs), (theirs, strata_of)):
                found, expected, _ = self.resumed(saver, loader, settings)
                self.assertLessEqual((found - expected).abs().max().item(), 1e-6, ours)

    def test_int8_states_are_close(self):
        settings = dict(lr=1e-2, states="int8", **SMALL)
        found, expected, _ = self.resumed(optim.AdamW, optim.AdamW, settings)
        self.assertTrue(torch.equal(found, expected))

    def test_before_the_first_step_it_is_empty_and_may_be_loaded(self):
        net = model()
        optimizer = optim.AdamW(net.parameters(), lr=1e-2, **SMALL)
        state = optimizer.state_dict()
        self.assertEqual(state["state"], {})
        optimizer.load_state_dict(state)
        self.assertEqual(set(state["param_groups"][0]) - {"params"},
                         {"lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "foreach", "capturable",
                          "differentiable", "fused"})  # fmt: skip

    def test_a_state_of_another_shape_is_refused_and_nothing_changes(self):
        net = model()
        optimizer = optim.AdamW(net.parameters(), lr=1e-2, **SMALL)
        train(net, optimizer, 2)
        before = optimizer.state_dict()
        wrong = copy.deepcopy(before)
        wrong["state"][2]["exp_avg"] = torch.zeros(3)
        with self.assertRaisesRegex(
            strata.errors.InvalidError, r"'exp_avg' of parameter 'param.2' has the shape \(3,\)"
        ):
            optimizer.load_state_dict(wrong)
        wrong = copy.deepcopy(before)
        wrong["state"][2]["exp_avg"] = torch.zeros(3)
        wrong["param_groups"][0]["lr"] = 7.0
        self.assertRaises(strata.errors.InvalidError, optimizer.load_state_dict, wrong)
        wrong = copy.deepcopy(before)
        wrong["param_groups"][0].update(lr=7.0, bias_correction=False)
        with self.assertRaisesRegex(strata.errors.UnsupportedError, "bias_correction=False"):
            optimizer.load_state_dict(wrong)
        after = optimizer.state_dict()
        for i, state in before["state"].items():
            self.assertTrue(all(torch.equal(state[key], after["state"][i][key]) for key in state))
        self.assertEqual(before["param_groups"], after["param_groups"])

    def test_groups_get_the_defaults_of_settings_that_a_state_lacks(self):
        net = model()
        theirs = torch.optim.AdamW(net.parameters(), lr=1e-2)
        train(net, theirs, 1)
        ours = optim.DeepSpeedCPUAdam(net.parameters(), **SMALL)
        self.assertIs(ours.param_groups[0]["bias_correction"], True)
        ours.load_state_dict(theirs.state_dict())
        self.assertIs(ours.state_dict()["param_groups"][0]["bias_correction"], True)
        self.assertEqual(ours.param_groups[0]["lr"], 1e-2)

    def test_the_state_of_a_frozen_parameter_is_kept(self):
        found = []
        for kind, options in ((optim.AdamW, SMALL), (torch.optim.AdamW, {})):
            net = model()
            optimizer = kind(net.parameters(), lr=1e-2, **options)
            train(net, optimizer, 2)
            resumed = kind(net.parameters(), lr=1e-2, **options)
            net[0].weight.requires_grad_(False)
            net[0].weight.grad = None  # older versions set gradients to zero
            resumed.load_state_dict(optimizer.state_dict())
            train(net, resumed, 2)
            net[0].weight.requires_grad_(True)
            train(net, resumed, 2)
            state = resumed.state_dict()["state"]
            self.assertEqual([int(state[i]["step"]) for i in (0, 1)], [4, 6])
            found.append(values(net))
        for ours, theirs in zip(*found):
            self.assertLessEqual((ours - theirs).abs().max().item(), 1e-5)

    def test_saving_needs_no_memory_of_its_own(self):
        def anonymous():
            with open("/proc/self/status") as status:
                return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))

        weight = torch.nn.Parameter(torch.zeros(1 << 24))
        optimizer = optim.AdamW([weight], lr=1e-3)
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        with tempfile.TemporaryDirectory() as folder:
            before = anonymous()
            state = optimizer.state_dict()
            torch.save(state, folder + "/state.pt")
            self.assertLess(anonymous() - before, 64 * 1024)
        self.assertAlmostEqual(state["state"][0]["exp_avg"][-1].item(), 0.1, 6)


class FaultsTest(unittest.TestCase):
    def refuses(self, kind, text, call):
        with self.assertRaises(kind) as caught:
            call()
        self.assertIn(text, str(caught.exception))

    def test_what_is_not_supported_is_refused_by_name(self):
        parameters = list(model().parameters())
        for settings in (dict(amsgrad=True), dict(maximize=True), dict(capturable=True), dict(differentiable=True)):
            self.refuses(NotImplementedError, next(iter(settings)), lambda s=settings: optim.AdamW(parameters, **s))
        self.refuses(NotImplementedError, "dampening", lambda: optim.SGD(parameters, dampening=0.1, momentum=0.9))
        self.refuses(NotImplementedError, "lr_decay", lambda: optim.Adagrad(parameters, lr_decay=0.1))
        self.refuses(ValueError, "lr is -1", lambda: optim.AdamW(parameters, lr=-1))
        self.refuses(ValueError, "betas[1] is 1.0", lambda: optim.AdamW(parameters, betas=(0.9, 1.0)))
        on_meta = torch.nn.Parameter(torch.empty(3, device="meta"))
        self.refuses(NotImplementedError, "is on meta", lambda: optim.AdamW([on_meta]))
        double = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
        self.refuses(NotImplementedError, "torch.float64", lambda: optim.AdamW([double]))
        overlapping = torch.nn.Parameter(torch.zeros(1).expand(5))
        self.refuses(NotImplementedError, "strides (0,)", lambda: optim.AdamW([overlapping]))

    def test_sparse_gradients_are_refused(self):
        embedding = torch.nn.Embedding(10, 4, sparse=True)
        optimizer = optim.AdamW(embedding.parameters(), **SMALL)
        embedding(torch.tensor([1, 2])).sum().backward()
        self.refuses(NotImplementedError, "torch.sparse_coo", optimizer.step)

    def test_a_budget_that_is_too_small_leaves_the_parameters(self):
        net = model()
        optimizer = optim.AdamW(net.parameters(), lr=1e-2, pinned="16KiB")
        before = values(net)
        self.refuses(MemoryError, "pinned", optimizer.plan)
        loss_of(net, *next(batches(1))).backward()
        self.refuses(strata.errors.DoesNotFitError, "pinned", optimizer.step)
        self.assertTrue(same(values(net), before))

    def test_a_parameter_that_became_another_one_is_noticed(self):
        net = model()
        optimizer = optim.AdamW(net.parameters(), lr=1e-2, **SMALL)
        train(net, optimizer, 1)
        net.to(torch.bfloat16)
        loss_of(net, *next(batches(1, torch.bfloat16))).backward()
        self.refuses(strata.errors.InvalidError, "was torch.float32", optimizer.step)

    def test_an_exception_in_a_hook_or_closure_leaves_the_optimizer_usable(self):
        net, beside = model(), model()
        optimizer = optim.AdamW(net.parameters(), lr=1e-2, **SMALL)
        handle = net[2].register_forward_hook(lambda *_: 1 / 0)
        with self.assertRaises(ZeroDivisionError):
            loss_of(net, *next(batches(1)))
        handle.remove()

        def closure():
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            optimizer.step(closure)
        train(net, optimizer, 3)
        train(beside, optim.AdamW(beside.parameters(), lr=1e-2, **SMALL), 3)
        self.assertTrue(same(values(net), values(beside)))

    def test_nothing_is_left_when_optimizers_are_dropped(self):
        with tempfile.TemporaryDirectory() as folder:
            files = None
            for i in range(12):
                net = model()
                optimizer = optim.AdamW(net.parameters(), placement="nvme", nvme=folder, **SMALL)
                train(net, optimizer, 1)
                del optimizer, net
                gc.collect()
                if i == 2:
                    files = len(os.listdir("/proc/self/fd"))
            self.assertEqual(len(os.listdir("/proc/self/fd")), files)
            self.assertEqual(os.listdir(folder), [])

    def test_workers_of_a_data_loader(self):
        net = model()
        optimizer = optim.AdamW(net.parameters(), lr=1e-2, **SMALL)
        data = [(x[0], y[0]) for x, y in batches(32)]
        for _ in range(2):
            for x, y in torch.utils.data.DataLoader(data, batch_size=8, num_workers=4):
                loss_of(net, x, y).backward()
                optimizer.step()
                optimizer.zero_grad()

    def test_the_interpreter_may_end_in_any_order(self):
        code = """
import sys, torch
sys.path.insert(0, {tests!r})
from torch_model import model, train
from strata import optim
net = model()
optimizer = {optimizer}
train(net, optimizer, 2)
state = optimizer.state_dict()
cycle = [optimizer, net]
cycle.append(cycle)
{end}
"""
        ours = "optim.AdamW(net.parameters(), placement='nvme', nvme={folder!r}, pinned='64MiB')"
        tests = os.path.dirname(os.path.abspath(__file__))

        def end_with(optimizer, end):
            text = code.format(tests=tests, optimizer=optimizer, end=end)
            return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)

        # The effect of an interrupt depends on the versions of Python and torch, so that torch's optimizer says
        # it.
        interrupted = end_with("torch.optim.AdamW(net.parameters())", "raise KeyboardInterrupt").returncode
        for end, expected in (("", 0), ("sys.exit(3)", 3), ("del net, state", 0), ("raise KeyboardInterrupt", interrupted),
                              ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -15)):  # fmt: skip
            with tempfile.TemporaryDirectory() as folder:
                done = end_with(ours.format(folder=folder), end)
                self.assertEqual(done.returncode, expected, done.stderr)
                self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
