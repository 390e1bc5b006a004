"""state_dict between torch, strata and DeepSpeed: training goes on as if nothing had been exchanged."""

import copy
import io
import itertools
import unittest

from language_models import LR, batches, gap, gpt2, loss_of, optim, same, torch, values
from packages import need

try:
    from deepspeed.ops.adam import DeepSpeedCPUAdam
except Exception as why:  # its CPU Adam is compiled against one torch and one CPU
    need("deepspeed")
    raise SystemExit(f"deepspeed is installed and does not import: {why}")

LIMIT, STEPS = 1e-6, 10
SETTINGS = dict(lr=LR, betas=(0.9, 0.95), weight_decay=0.1)
STRATA = dict(pinned="64MiB", threads=1)
KINDS = {"torch": lambda params: torch.optim.AdamW(params, **SETTINGS),
         "strata": lambda params: optim.AdamW(params, **SETTINGS, **STRATA),
         "strata as DeepSpeed": lambda params: optim.DeepSpeedCPUAdam(params, **SETTINGS, **STRATA),
         "deepspeed": lambda params: DeepSpeedCPUAdam(params, adamw_mode=True, **SETTINGS)}  # fmt: skip


def train(net, optimizer, first, steps=STEPS):
    losses = []
    for tokens in batches(first + steps)[first:]:
        loss = loss_of(net, tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.25)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64)


def through_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file)


class PeersTest(unittest.TestCase):
    def resumed(self, saver, loader):
        """Losses after a change of optimizers, and those of a run that has no such change; both networks."""
        net = gpt2()
        optimizer = KINDS[saver](net.parameters())
        train(net, optimizer, 0)
        other = copy.deepcopy(net)
        resumed = KINDS[loader](other.parameters())
        resumed.load_state_dict(through_file(optimizer.state_dict()))
        return train(other, resumed, STEPS), train(net, optimizer, STEPS), other, net

    def test_each_resumes_from_each(self):
        for saver, loader in itertools.product(KINDS, repeat=2):
            # DeepSpeed needs bias_correction in the groups, which torch's lack, and so those of strata's AdamW.
            if "strata" not in saver + loader or (saver, loader) == ("strata", "deepspeed"):
                continue
            with self.subTest(saver=saver, loader=loader):
                found, expected, *nets = self.resumed(saver, loader)
                print(f"{saver} to {loader}: losses differ by at most {gap(found, expected):.2e}")
                self.assertLessEqual(gap(found, expected), LIMIT)
                if "strata" in saver and "strata" in loader:
                    self.assertTrue(same(*map(values, nets)))

    def test_deepspeed_gets_a_state_of_torch_by_way_of_strata(self):
        net = gpt2()
        optimizer = KINDS["torch"](net.parameters())
        train(net, optimizer, 0)
        other = copy.deepcopy(net)
        between, last = (KINDS[name](other.parameters()) for name in ("strata as DeepSpeed", "deepspeed"))
        between.load_state_dict(optimizer.state_dict())
        last.load_state_dict(between.state_dict())
        self.assertLessEqual(gap(train(other, last, STEPS), train(net, optimizer, STEPS)), LIMIT)

    def test_a_state_that_is_not_loaded_is_noticed_by_the_losses(self):
        """That the test above can fail."""
        net = gpt2()
        optimizer = KINDS["torch"](net.parameters())
        train(net, optimizer, 0)
        other = copy.deepcopy(net)
        self.assertGreater(
            gap(train(other, KINDS["strata"](other.parameters()), STEPS), train(net, optimizer, STEPS)), 1e-3
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
