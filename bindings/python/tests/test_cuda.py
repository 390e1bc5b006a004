"""Parameters on a real GPU, whatever streams order: the same bits as without strata's copies. Skipped without a GPU."""

import contextlib
import os
import sys
import tempfile
import unittest

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic GEMMs
from torch_model import batches, loss_of, model, same, torch, values

if not torch.cuda.is_available():
    print("there is no GPU")
    sys.exit(77)

import strata
from strata import optim

torch.use_deterministic_algorithms(True)
SMALL = dict(pinned="64MiB", threads=2)
LARGEST = (48 * 48 + 48) * 4  # the largest module of the model
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def adamw(net, **options):
    return optim.AdamW(net.parameters(), lr=1e-2, **SMALL, **options)


def on_gpu(steps, dtype=torch.float32):
    for x, y in batches(steps, dtype):
        yield x.cuda(), y.cuda()


def train(net, optimizer, steps=6, accumulation=1, clip=0.5, context=contextlib.nullcontext):
    """Losses of the steps. Nothing waits for the GPU inside a step."""
    losses, dtype = [], next(net.parameters()).dtype
    for i, (x, y) in enumerate(on_gpu(steps * accumulation, dtype)):
        with context():
            loss = loss_of(net, x, y)
        (loss / accumulation).backward()
        losses.append(loss.detach())
        if (i + 1) % accumulation == 0:
            if clip:
                torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()
    return torch.stack(losses).cpu()


def wide(blocks=8, size=1024):
    torch.manual_seed(2)
    return torch.nn.Sequential(*(torch.nn.Linear(size, size) for _ in range(blocks)))


class OptimizerTest(unittest.TestCase):
    def test_the_bits_are_those_of_the_same_gradients_in_cpu_memory(self):
        for dtype in DTYPES:
            net, plain = model(dtype).cuda(), model(dtype)
            here, there = adamw(net), adamw(plain)
            for x, y in on_gpu(6, dtype):
                loss_of(net, x, y).backward()
                for param, of in zip(plain.parameters(), net.parameters()):
                    param.grad = of.grad.cpu()
                for optimizer in (here, there):
                    optimizer.step()
                    optimizer.zero_grad()
                self.assertTrue(same([value.cpu() for value in values(net)], values(plain)), dtype)

    def test_losses_are_those_of_torch(self):
        net, plain = model().cuda(), model().cuda()
        found = train(net, adamw(net, weight_decay=0.01))
        expected = train(plain, torch.optim.AdamW(plain.parameters(), lr=1e-2, weight_decay=0.01))
        self.assertLess(((found - expected) / expected).abs().max().item(), 1e-5)

    def test_work_of_another_stream_is_waited_for(self):
        net, plain = model().cuda(), model().cuda()
        expected = train(plain, adamw(plain))
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.assertTrue(torch.equal(train(net, adamw(net)), expected))

    def test_a_gradient_scaler_skips_steps(self):
        net, plain = model().cuda(), model().cuda()
        kept = []
        for each, optimizer in ((net, adamw(net)), (plain, torch.optim.AdamW(plain.parameters(), lr=1e-2))):
            scaler, losses = torch.amp.GradScaler("cuda", init_scale=2.0**10, growth_interval=3), []
            for i, (x, y) in enumerate(on_gpu(8)):
                loss = loss_of(each, x, y)
                scaler.scale(loss * (float("inf") if i in (2, 5) else 1)).backward()
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(each.parameters(), 0.5)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                losses.append(loss.item())
            kept.append((torch.tensor(losses), scaler.get_scale()))
        self.assertEqual(kept[0][1], kept[1][1])
        self.assertLess(((kept[0][0] - kept[1][0]) / kept[1][0]).abs().max().item(), 1e-4)


class OffloadTest(unittest.TestCase):
    def check(self, make, options, within=0.0, **arguments):
        plain = make().cuda()
        expected = train(plain, adamw(plain), **arguments)
        net = make() if "to" in options else make().cuda()
        with tempfile.TemporaryDirectory() as folder:
            more = dict(nvme=folder, placement="nvme") if options.get("nvme") else {}
            strata.offload(net, **{**SMALL, **options, **more})
            optimizer = adamw(net)
            found = train(net, optimizer, **arguments)
            self.assertLessEqual(((found - expected) / expected).abs().max().item(), within, options)
            state = [value.cpu() for value in net.state_dict().values()]
            optimizer.close()
        if not within:
            self.assertTrue(same(state, [value.detach().cpu() for value in plain.state_dict().values()]), options)

    def test_the_bits_are_those_of_a_resident_model(self):
        for dtype in DTYPES:
            for accumulation in (1, 2) if dtype == torch.float32 else (1,):  # in 16 bits a resident sum is rounded
                for options in (dict(device="1MiB"), dict(device=LARGEST), dict(device=LARGEST, nvme=True),
                                dict(device=LARGEST, to="cuda")):  # fmt: skip
                    self.check(lambda: model(dtype), options, accumulation=accumulation, clip=0)

    def test_norms_are_clipped(self):
        # The GPU adds squares in another order than the CPU, which has the gradients that have left.
        self.check(model, dict(device=LARGEST), accumulation=2, within=1e-5)

    def test_parameters_stay_within_the_device_budget(self):
        """Nor are they there all at once before the first step."""
        net = wide()
        size = sum(param.numel() * 4 for param in net.parameters())
        strata.offload(net, device=size // 3, pinned="512MiB", threads=2, to="cuda")
        optimizer = optim.AdamW(net.parameters(), lr=1e-4, pinned="512MiB", threads=2)
        x = torch.randn(16, 1024, device="cuda")
        x @ x.t()  # allocates cuBLAS's workspace
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        for _ in range(3):
            net(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.cuda.synchronize()
        self.assertLessEqual(net.strata_offload.stats()["peak_device_bytes"], size // 3)
        self.assertLess(torch.cuda.max_memory_allocated() - before, 0.85 * size)  # three gradients are included
        optimizer.close()


class ActivationsTest(unittest.TestCase):
    def test_what_autograd_saves_leaves_and_comes_back(self):
        for dtype in DTYPES:
            plain, net = model(dtype).cuda(), model(dtype).cuda()
            expected = train(plain, adamw(plain), clip=0)
            activations = strata.offload_activations(pinned="1MiB", min_bytes=1)
            self.assertTrue(torch.equal(train(net, adamw(net), clip=0, context=lambda: activations), expected))
            self.assertGreater(activations.stats()["peak_pinned_bytes"], 0)
            activations.close()

    def test_the_gpu_holds_less(self):
        peaks, losses = [], []
        for offloads in (False, True):
            net = wide(16).cuda()
            x = torch.randn(8192, 1024, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
            activations = strata.offload_activations(pinned="1GiB") if offloads else None
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            for _ in range(2):
                with activations or contextlib.nullcontext():
                    loss = net(x).square().mean()
                loss.backward()
                net.zero_grad()
            losses.append(loss.item())
            torch.cuda.synchronize()
            peaks.append(torch.cuda.max_memory_allocated() - before)
            if activations:
                activations.close()
        self.assertEqual(losses[0], losses[1])
        self.assertLess(peaks[1], 0.7 * peaks[0], peaks)


if __name__ == "__main__":
    unittest.main()
