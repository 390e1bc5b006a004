"""Losses and parameters beside torch.optim."""

import itertools
import tempfile
import unittest

from torch_model import batches, loss_of, model, same, torch, train, train_scaled, values

import strata
from strata import optim

PAIRS = (
    (optim.AdamW, torch.optim.AdamW, dict(lr=1e-2, weight_decay=0.1)),
    (optim.Adam, torch.optim.Adam, dict(lr=1e-2, weight_decay=0.01)),
    (optim.Adagrad, torch.optim.Adagrad, dict(lr=1e-2)),
    (optim.SGD, torch.optim.SGD, dict(lr=0.1)),
    (optim.SGD, torch.optim.SGD, dict(lr=0.1, momentum=0.9, weight_decay=0.01)),
    (optim.SGD, torch.optim.SGD, dict(lr=0.1, momentum=0.9, nesterov=True)),
)
SMALL = dict(pinned="64MiB", threads=1)


class OptimTest(unittest.TestCase):
    def assert_like_torch(self, ours, theirs, tolerance=2e-6):
        self.assertEqual(len(ours), len(theirs))
        self.assertLessEqual((ours - theirs).abs().max().item(), tolerance)

    def test_losses_are_those_of_torch(self):
        for ours, theirs, settings in PAIRS:
            nets = model(), model()
            found = train(nets[0], ours(nets[0].parameters(), **settings, **SMALL))
            expected = train(nets[1], theirs(nets[1].parameters(), **settings))
            self.assert_like_torch(found, expected)
            self.assertGreater((expected[0] - expected[1]).abs().item(), 1e-3)  # something was learnt

    def test_accumulated_gradients_and_no_clipping(self):
        for accumulation, clip in ((3, 0.1), (3, None), (1, None)):
            nets = model(), model()
            found = train(nets[0], optim.AdamW(nets[0].parameters(), lr=1e-2, **SMALL), 7, accumulation, clip)
            expected = train(nets[1], torch.optim.AdamW(nets[1].parameters(), lr=1e-2), 7, accumulation, clip)
            self.assert_like_torch(found, expected)

    def test_where_states_live_changes_no_bit(self):
        for states, dtype in itertools.product(("f32", "bf16", "int8"), (torch.float32, torch.bfloat16)):
            found = []
            with tempfile.TemporaryDirectory() as folder:
                for placement in (
                    dict(),
                    dict(placement="nvme", nvme=folder),
                    dict(placement="nvme", nvme=[folder], chunk_elems=4096),
                ):
                    net = model(dtype)
                    optimizer = optim.AdamW(net.parameters(), lr=1e-2, states=states, **SMALL, **placement)
                    train(net, optimizer, 6)
                    found.append(values(net))
                    if "nvme" in placement:
                        self.assertGreater(optimizer.stats()["nvme_written_bytes"], 0)
                    optimizer.close()
            self.assertTrue(same(found[0], found[1]) and same(found[0], found[2]), (states, dtype))

    def test_groups_have_their_own_settings_and_schedulers_change_them(self):
        losses = []
        for kind, options in ((optim.AdamW, SMALL), (torch.optim.AdamW, {})):
            net = model()
            decayed = [p for p in net.parameters() if p.ndim > 1]
            others = [p for p in net.parameters() if p.ndim == 1]
            groups = [
                dict(params=decayed, weight_decay=0.3, lr=5e-3),
                dict(params=others, weight_decay=0.0, betas=(0.8, 0.95)),
            ]
            optimizer = kind(groups, lr=1e-2, **options)
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.7)
            of_run = []
            for x, y in batches(8):
                loss = loss_of(net, x, y)
                loss.backward()
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                of_run.append(loss.item())
            losses.append(torch.tensor(of_run))
        self.assert_like_torch(*losses)

    def test_absent_gradients_frozen_parameters_and_later_groups(self):
        found = []
        for kind, options in ((optim.AdamW, SMALL), (torch.optim.AdamW, {})):
            net = model()
            net[0].bias.requires_grad_(False)
            optimizer = kind(list(net[:4].parameters()), lr=1e-2, weight_decay=0.1, **options)
            before = net[0].bias.detach().clone()
            for step, (x, y) in enumerate(batches(9)):
                loss_of(net, x, y).backward()
                if step in (2, 3):
                    net[2].weight.grad = None
                if step == 4:
                    optimizer.add_param_group(dict(params=list(net[4].parameters()), lr=1e-3))
                optimizer.step()
                optimizer.zero_grad()
            self.assertTrue(torch.equal(net[0].bias, before))
            found.append(values(net))
            steps = [int(state["step"]) for state in optimizer.state_dict()["state"].values()]
            self.assertEqual(sorted(steps), [5, 5, 7, 9, 9, 9, 9])
        for ours, theirs in zip(*found):
            self.assertLessEqual((ours - theirs).abs().max().item(), 1e-5)

    def test_a_loss_scale_that_overflows_skips_the_step(self):
        for clips in (True, False):
            found = []
            for kind, options in ((optim.AdamW, SMALL), (torch.optim.AdamW, {})):
                net = model()
                optimizer = kind(net.parameters(), lr=1e-2, **options)
                losses = train_scaled(net, optimizer, clips=clips)
                if losses is None:
                    self.skipTest("this torch has no GradScaler for CPUs")
                found.append(losses)
                self.assertEqual({int(state["step"]) for state in optimizer.state_dict()["state"].values()}, {8})
            self.assert_like_torch(*found)

    def test_a_step_divides_by_grad_scale_and_leaves_the_gradients(self):
        found = []
        for scale in (None, 1024.0, torch.tensor(1024.0)):
            net = model(torch.bfloat16)
            optimizer = optim.AdamW(net.parameters(), lr=1e-2, **SMALL)
            for x, y in batches(4, torch.bfloat16):
                (loss_of(net, x, y) * (1 if scale is None else 1024)).backward()
                gradients = [param.grad.clone() for param in net.parameters()]
                optimizer.grad_scale = scale
                optimizer.step()
                self.assertTrue(same(gradients, [param.grad for param in net.parameters()]))
                optimizer.zero_grad()
            found.append(values(net))
        self.assertTrue(same(found[0], found[1]) and same(found[0], found[2]))

    def test_found_inf_skips_a_step_and_a_bad_grad_scale_is_refused(self):
        net = model()
        optimizer = optim.AdamW(net.parameters(), lr=1e-2, **SMALL)
        train(net, optimizer, 2)
        before = values(net)
        x, y = next(batches(1))
        loss_of(net, x, y).backward()
        optimizer.found_inf = torch.tensor([1.0])
        optimizer.step()
        del optimizer.found_inf
        for scale in (0.0, -1.0, float("inf"), float("nan")):
            optimizer.grad_scale = scale
            with self.assertRaisesRegex(strata.errors.InvalidError, f"AdamW: grad_scale is {scale}; it must be above 0"):
                optimizer.step()
        self.assertTrue(same(before, values(net)))
        optimizer.grad_scale = None
        optimizer.step()
        self.assertFalse(same(before, values(net)))

    def test_bf16_learns_like_f32_by_its_masters(self):
        last = []
        for dtype in (torch.float32, torch.bfloat16):
            net = model(dtype)
            random = torch.Generator().manual_seed(5)
            x, y = torch.randn(64, 32, generator=random).to(dtype), torch.randint(0, 10, (64,), generator=random)
            optimizer = optim.AdamW(net.parameters(), lr=1e-3, **SMALL)
            for _ in range(100):
                loss = loss_of(net, x, y)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            last.append(loss.item())
        self.assertLess(abs(last[1] - last[0]), 0.02 * last[0])

    def test_memory_formats(self):
        found = []
        for kind, options in ((optim.AdamW, SMALL), (torch.optim.AdamW, {})):
            torch.manual_seed(1)
            net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 4))
            net = net.to(memory_format=torch.channels_last)
            net[2].weight = torch.nn.Parameter(torch.randn(8 * 36, 4).t())
            optimizer = kind(net.parameters(), lr=1e-2, **options)
            for _ in range(4):
                net(torch.ones(2, 3, 8, 8).to(memory_format=torch.channels_last)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            found.append((values(net), optimizer.state_dict()["state"][0]["exp_avg"]))
        for ours, theirs in zip(*(run[0] for run in found)):
            self.assertLessEqual((ours - theirs).abs().max().item(), 1e-5)
        largest = found[1][1].abs().max().item()
        self.assertLessEqual((found[0][1] - found[1][1]).abs().max().item(), 1e-6 * max(1, largest))

    def test_autograd_notices_that_parameters_were_written(self):
        if not hasattr(torch.autograd.graph, "increment_version"):
            self.skipTest("this torch cannot be told")
        net = model()
        optimizer = optim.SGD(net.parameters(), lr=0.1, **SMALL)
        x, y = next(batches(1))
        loss = loss_of(net, x, y)
        loss.backward(retain_graph=True)
        optimizer.step()
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()

    def test_the_signatures_of_deepspeed_and_torchao(self):
        for make in (optim.DeepSpeedCPUAdam, optim.CPUOffloadOptimizer):
            nets = model(), model()
            settings = dict(lr=1e-2, weight_decay=0.1)
            found = train(nets[0], make(nets[0].parameters(), **settings, **SMALL))
            expected = train(nets[1], torch.optim.AdamW(nets[1].parameters(), **settings))
            self.assert_like_torch(found, expected)
        with self.assertRaisesRegex(strata.errors.UnsupportedError, "bias_correction=False"):
            optim.DeepSpeedCPUAdam(model().parameters(), bias_correction=False)
        with self.assertRaisesRegex(strata.errors.UnsupportedError, "RMSprop"):
            optim.CPUOffloadOptimizer(model().parameters(), torch.optim.RMSprop)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
