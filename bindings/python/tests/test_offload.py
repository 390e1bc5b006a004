"""strata.offload(): the bits of states in RAM, whatever leaves, and what is refused."""

import contextlib
import gc
import os
import tempfile
import unittest

from torch_model import batches, loss_of, model, same, skip_without_offload, torch, train, train_scaled, values

skip_without_offload()

import strata
from torch.utils.checkpoint import checkpoint

SMALL = dict(pinned="64MiB", threads=1)
ALL = 1 << 20  # bytes: parameters leave only to be updated
LARGEST = (48 * 48 + 48) * 4  # the largest module of the model


class Skipping(torch.nn.Module):
    """Uses its layers in another order in every pass, and some not at all."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.first = torch.nn.Linear(32, 32)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(4))
        self.last = torch.nn.Linear(32, 10)
        self.passes = 0

    def forward(self, x):
        self.passes += 1
        x = self.first(x)
        for i in range(self.passes, self.passes + 1 + self.passes % 3):
            x = torch.tanh(self.layers[i * self.passes % 4](x))
        return self.last(x)


class Checkpointed(torch.nn.Module):
    def __init__(self, reentrant=False):
        super().__init__()
        self.reentrant = reentrant
        torch.manual_seed(4)
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.GELU(), torch.nn.Linear(32, 32)) for _ in range(3)
        )
        self.last = torch.nn.Linear(32, 10)

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return self.last(x)


class Attending(torch.nn.Module):
    """MultiheadAttention reads the parameters of its child; the last layer has the weights of the first."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.first = torch.nn.Linear(32, 32)
        self.attention = torch.nn.MultiheadAttention(32, 2, batch_first=True)
        self.tied = torch.nn.Linear(32, 32)
        self.tied.weight = self.first.weight
        self.last = torch.nn.Linear(32, 10)

    def forward(self, x):
        x = self.first(x).unsqueeze(1)
        x = self.attention(x, x, x, need_weights=False)[0].squeeze(1)
        return self.last(self.tied(x))


def run(make, device=None, offloads=True, steps=6, accumulation=1, prepare=lambda net: None, **options):
    net = make()
    prepare(net)
    if offloads:
        strata.offload(net, device=device, **{**SMALL, **options})
    optimizer = strata.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-2, **SMALL)
    return train(net, optimizer, steps, accumulation), net, optimizer


class OffloadTest(unittest.TestCase):
    def check(self, make, least, **options):
        """All placements have the losses of states in RAM; returns the net with the smallest budget."""
        expected, plain, _ = run(make, offloads=False, **options)
        with tempfile.TemporaryDirectory() as folder:
            for device, nvme in ((None, {}), (ALL, {}), (least, {}), (least, dict(nvme=folder, placement="nvme"))):
                found, net, _ = run(make, device, **nvme, **options)
                self.assertTrue(torch.equal(found, expected), (device, nvme))
                self.assertTrue(
                    same(list(net.state_dict().values()), [v.detach() for v in plain.state_dict().values()])
                )
                stats = net.strata_offload.stats()
                if device is not None:
                    self.assertLessEqual(stats["peak_device_bytes"], device)
                self.assertEqual(net.strata_offload.leaves, device is not None)
                self.assertEqual(stats["nvme_written_bytes"] > 0, bool(nvme))
            self.assertEqual(os.listdir(folder), [])
        return net

    def test_a_chain_of_modules(self):
        for accumulation in (1, 3):
            self.check(model, LARGEST, accumulation=accumulation)

    def test_sixteen_bits(self):
        expected, _, _ = run(lambda: model(torch.bfloat16), offloads=False)
        found = [run(lambda: model(torch.bfloat16), device)[0] for device in (None, LARGEST)]
        self.assertTrue(torch.equal(*found))
        self.assertLess((found[0] - expected).abs().max().item(), 0.05)

    def test_checkpointing(self):
        self.check(Checkpointed, 3 * (32 * 32 + 32) * 4)

    def test_reentrant_checkpointing(self):
        found = []
        for offloads in (True, False):
            net = Checkpointed(reentrant=True)
            if offloads:
                strata.offload(net, device=ALL, **SMALL)
            optimizer = strata.optim.AdamW(net.parameters(), lr=1e-2, **SMALL)
            for x, y in batches(3):
                loss_of(net, x.requires_grad_(True), y).backward()
                optimizer.step()
                optimizer.zero_grad()
            found.append(list(net.state_dict().values()))
        self.assertTrue(same(*found))

    def test_attention_and_tied_parameters(self):
        self.check(Attending, 30000)

    def test_frozen_parameters(self):
        def freeze(net):
            for i in (0, 2):
                for param in net[i].parameters():
                    param.requires_grad_(False)

        net = self.check(model, LARGEST, prepare=freeze)
        _, _, optimizer = run(model, LARGEST, prepare=freeze)
        state = optimizer.state_dict()
        optimizer.load_state_dict(state)  # has no states of those that are frozen
        self.assertEqual(len(optimizer.state_dict()["state"]), len(state["state"]))
        self.assertTrue(torch.equal(net.state_dict()["2.weight"], model()[2].weight))

    def test_another_order_in_every_pass_is_followed_and_counted(self):
        expected, _, _ = run(Skipping, offloads=False)
        found, net, _ = run(Skipping, device=3 * (32 * 32 + 32) * 4)
        self.assertTrue(torch.equal(found, expected))
        self.assertGreater(net.strata_offload.stats()["misses"], 0)
        _, steady, _ = run(model, device=LARGEST)
        self.assertEqual(steady.strata_offload.stats()["misses"], 0)

    def test_parameters_that_are_away_come_when_they_are_read(self):
        _, net, _ = run(model, device=LARGEST)
        self.assertLess(sum(parking.is_here for parking in net.strata_offload.parking), len(list(net.parameters())))
        self.assertTrue(all(torch.isfinite(param).all() for param in net.parameters()))
        self.assertLessEqual(net.strata_offload.stats()["peak_device_bytes"], LARGEST)

    def test_inference_without_an_optimizer(self):
        plain, net = model(), strata.offload(model(), device=LARGEST, **SMALL)
        x, _ = next(batches(1))
        with torch.no_grad():
            self.assertTrue(torch.equal(net(x), plain(x)))

    def test_the_optimizers_state_dict(self):
        expected, plain, reference = run(model, offloads=False)
        _, net, optimizer = run(model, device=LARGEST)
        ours, theirs = optimizer.state_dict(), reference.state_dict()
        self.assertEqual(ours["state"].keys(), theirs["state"].keys())
        for i, state in ours["state"].items():
            self.assertTrue(all(torch.equal(state[key], theirs["state"][i][key]) for key in state))
        resumed = model()
        resumed.load_state_dict(net.state_dict())
        strata.offload(resumed, device=LARGEST, **SMALL)
        again = strata.optim.AdamW(resumed.parameters(), lr=1e-2)
        again.load_state_dict(ours)
        self.assertTrue(torch.equal(train(resumed, again, 6, first=6), train(plain, reference, 6, first=6)))


class PlanTest(unittest.TestCase):
    def test_the_plan_is_what_steps_then_need(self):
        for make, device in (
            (model, None),
            (model, ALL),
            (model, LARGEST),
            (Checkpointed, 3 * (32 * 32 + 32) * 4),
            (Attending, 30000),
        ):
            net = strata.offload(make(), device=device, **SMALL)
            optimizer = strata.optim.AdamW(net.parameters(), lr=1e-2)
            x, y = next(batches(1))
            before = values(net)
            planned = strata.plan(net, x, lambda output: torch.nn.functional.cross_entropy(output, y.new_zeros(16)))
            self.assertTrue(same(before, values(net)), "nothing is computed")
            train(net, optimizer, 3)
            stats = net.strata_offload.stats()
            self.assertEqual(planned["device_bytes"], stats["peak_device_bytes"])
            self.assertEqual(planned["pinned_bytes"], stats["peak_pinned_bytes"])
            self.assertEqual(planned["nvme_bytes"], stats["peak_nvme_bytes"])
            self.assertGreater(planned["saved_bytes"], 16 * 32 * 4)
            again = strata.plan(net, (x,))  # also between steps
            self.assertEqual(again["device_bytes"], planned["device_bytes"])
            self.assertEqual(net.strata_offload.stats()["misses"], stats["misses"])

    def test_what_does_not_fit_is_refused_before_the_first_step(self):
        x, _ = next(batches(1))
        net = strata.offload(model(), device=ALL, pinned="8KiB", threads=1)
        with self.assertRaisesRegex(strata.errors.DoesNotFitError, "pinned"):
            strata.plan(net, x)
        net = strata.offload(Checkpointed(), device=(32 * 32 + 32) * 4, **SMALL)
        with self.assertRaisesRegex(strata.errors.DoesNotFitError, "need 4224 bytes"):
            strata.plan(net, x)  # backward and recomputation need a module each
        self.assertTrue(torch.isfinite(net.last.weight).all())
        with self.assertRaisesRegex(ValueError, "strata.offload"):
            strata.plan(model(), x)


class LeftGradientTest(unittest.TestCase):
    def setUp(self):
        self.net = strata.offload(model(), device=ALL, **SMALL)
        self.optimizer = strata.optim.AdamW(self.net.parameters(), lr=1e-2)
        self.backward()

    def backward(self):
        loss_of(self.net, *next(batches(1))).backward()

    def test_it_answers_what_trainers_ask(self):
        plain = model()
        loss_of(plain, *next(batches(1))).backward()
        for ours, theirs in zip(self.net.parameters(), plain.parameters()):
            self.assertTrue(torch.equal(ours.grad.norm(), theirs.grad.norm()))
            ours.grad.mul_(0.5)
            self.assertTrue(torch.equal(torch.linalg.vector_norm(ours.grad), (theirs.grad * 0.5).norm()))
            self.assertIn("has left", repr(ours.grad))

    def test_everything_else_raises(self):
        gradient = self.net[0].weight.grad
        for name, call in (
            ("abs", lambda: gradient.abs()), ("add", lambda: gradient + gradient), ("item", lambda: gradient.sum().item()),
            ("numpy", lambda: gradient.numpy()), ("inf norm", lambda: gradient.norm(float("inf"))),
            ("copy", lambda: torch.empty(48, 32).copy_(gradient)), ("clamp", lambda: gradient.clamp_(-1, 1)),
            ("view", lambda: gradient.view(-1)), ("index", lambda: gradient[0]),
        ):  # fmt: skip
            with self.assertRaises((strata.errors.UnsupportedError, RuntimeError), msg=name):
                call()
        with self.assertRaisesRegex(strata.errors.UnsupportedError, "gradient of '0.weight'"):
            gradient.abs()

    def test_zero_grad_discards(self):
        self.optimizer.zero_grad()
        self.backward()
        self.optimizer.step()
        beside = model()
        other = strata.optim.AdamW(beside.parameters(), lr=1e-2, **SMALL)
        loss_of(beside, *next(batches(1))).backward()
        other.step()
        self.assertTrue(same(list(self.net.state_dict().values()), values(beside)))

    def test_a_step_without_zero_grad_after_it_is_noticed(self):
        self.optimizer.step()
        with self.assertRaisesRegex(strata.errors.UnsupportedError, "zero_grad"):
            self.backward()

    def test_gradients_that_are_scaled_cannot_be_added_to(self):
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1e-3)
        with self.assertRaisesRegex(strata.errors.UnsupportedError, "another micro-batch"):
            self.backward()

    def test_grad_scale_comes_on_top_of_clipping(self):
        found = []
        for offloads in (True, False):
            net = model()
            if offloads:
                strata.offload(net, device=LARGEST, **SMALL)
            optimizer = strata.optim.AdamW(net.parameters(), lr=1e-2, **SMALL)
            for clip in (0.5, 1e9, 0.25):
                (loss_of(net, *next(batches(1))) * 4).backward()
                torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
                optimizer.grad_scale = 1 / clip
                optimizer.step()
                optimizer.zero_grad()
            found.append(net.state_dict())
        self.assertTrue(same(*[list(values.values()) for values in found]))

    def test_a_loss_scale_that_overflows_skips_the_step(self):
        for clips in (True, False):
            found = []
            for offloads in (True, False):
                net = model()
                if offloads:
                    strata.offload(net, device=LARGEST, **SMALL)
                optimizer = strata.optim.AdamW(net.parameters(), lr=1e-2, **SMALL)
                found.append(train_scaled(net, optimizer, clips=clips))
            if found[0] is None:
                self.skipTest("this torch has no GradScaler for CPUs")
            self.assertTrue(torch.equal(*found))


class RefusalsTest(unittest.TestCase):
    def refuses(self, kind, text, call):
        with self.assertRaises(kind) as caught:
            call()
        self.assertIn(text, str(caught.exception))

    def start(self, net):
        return lambda: net(next(batches(1))[0])

    def test_budgets_that_are_too_small(self):
        net = strata.offload(model(), device=LARGEST - 1, **SMALL)
        self.refuses(MemoryError, "2.weight, 2.bias are needed together", self.start(net))
        net = strata.offload(model(), device=ALL, pinned="8KiB", threads=1)
        self.refuses(strata.errors.DoesNotFitError, "pinned", self.start(net))
        self.assertTrue(torch.isfinite(net[0].weight).all())

    def test_what_comes_too_late_or_twice(self):
        net = strata.offload(model(), device=ALL, **SMALL)
        self.refuses(ValueError, "already offloaded", lambda: strata.offload(net))
        self.start(net)()
        self.refuses(ValueError, "before the first forward", lambda: strata.optim.AdamW(net.parameters()))
        other = strata.offload(model(), device=ALL, **SMALL)
        kept = strata.optim.AdamW(other.parameters())
        self.refuses(NotImplementedError, "one optimizer", lambda: strata.optim.SGD(other.parameters()))
        del kept

    def test_shared_storages(self):
        net = model()
        flat = torch.zeros(48 * 48 + 48)
        net[2].weight.data, net[2].bias.data = flat[: 48 * 48].view(48, 48), flat[48 * 48 :]
        self.refuses(NotImplementedError, "shares its storage", self.start(strata.offload(net, device=ALL, **SMALL)))

    def test_a_model_that_changes_its_dtype(self):
        _, net, _ = run(model, device=LARGEST)
        self.refuses(ValueError, "change a model before it is offloaded", lambda: net.to(torch.bfloat16))

    def test_interruptions_leave_the_model_usable(self):
        expected, _, _ = run(model, device=LARGEST)
        net = strata.offload(model(), device=LARGEST, **SMALL)
        optimizer = strata.optim.AdamW(net.parameters(), lr=1e-2)
        x, y = next(batches(1))

        def fail(*_):
            raise KeyboardInterrupt

        for hook in (net[2].register_forward_hook, net[2].register_full_backward_pre_hook, net[2].weight.register_hook):
            handle = hook(fail)
            with self.assertRaises(KeyboardInterrupt):
                loss_of(net, x, y).backward()
            handle.remove()
            optimizer.zero_grad()
        self.assertTrue(torch.equal(train(net, optimizer, 6), expected))

    def test_models_that_are_dropped_leave_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            files = None
            for i in range(8):
                run(model, LARGEST, steps=1, nvme=folder, placement="nvme")
                gc.collect()
                if i == 2:
                    files = len(os.listdir("/proc/self/fd"))
            self.assertEqual(len(os.listdir("/proc/self/fd")), files)
            self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    torch.set_num_threads(1)
    with contextlib.suppress(AttributeError):
        torch._dynamo.config.disable = True
    unittest.main()
