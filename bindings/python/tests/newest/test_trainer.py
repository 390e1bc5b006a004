"""The Trainer of transformers and a loop of accelerate, both unmodified, with strata's AdamW and with torch's."""

import os
import tempfile
import unittest

from language_models import LR, gap, gpt2, optim, same, token_rows, torch, transformers, values
from packages import need

need("accelerate")

import accelerate  # noqa: E402

LIMIT = 1e-6
STEPS, SAVED, CLIP = 12, 5, 0.25
SETTINGS = dict(lr=LR, weight_decay=0.1)
STRATA = dict(pinned="64MiB", threads=1)
KINDS = {"torch": (torch.optim.AdamW, SETTINGS), "strata": (optim.AdamW, {**SETTINGS, **STRATA})}


class Rows(torch.utils.data.Dataset):
    def __init__(self, n=256):
        self._rows = token_rows(n)

    def __len__(self):
        return len(self._rows)

    def __getitem__(self, i):
        return {"input_ids": self._rows[i], "labels": self._rows[i]}


def recorded(net):
    """The list to which the losses of `net` will be added."""
    losses = []
    net.register_forward_hook(lambda module, inputs, output: losses.append(output.loss.item()))
    return losses


def trainer_of(net, kind, folder, accumulation=1, own=False, **arguments):
    """A Trainer that makes the optimizer itself, or is given one."""
    arguments = transformers.TrainingArguments(
        folder, use_cpu=True, max_steps=STEPS, per_device_train_batch_size=4, gradient_accumulation_steps=accumulation,
        max_grad_norm=CLIP, learning_rate=LR, weight_decay=0.1, logging_steps=1, report_to=[], disable_tqdm=True,
        seed=5, dataloader_pin_memory=False, save_strategy="no", **arguments)  # fmt: skip
    make, settings = KINDS[kind]
    chosen = (
        dict(optimizers=(make(net.parameters(), **settings), None))
        if own
        else dict(optimizer_cls_and_kwargs=(make, settings))
    )
    trainer = transformers.Trainer(net, arguments, train_dataset=Rows(), **chosen)
    trainer.remove_callback(transformers.trainer_callback.PrinterCallback)
    return trainer


class Test(unittest.TestCase):
    def assert_close(self, ours, theirs):
        print(f"{self.id().partition('.')[2]}: losses differ by at most {gap(ours, theirs):.2e}")
        self.assertLessEqual(gap(ours, theirs), LIMIT)


class TrainerTest(Test):
    def run_trainer(self, kind, resume=None, **options):
        """Losses of the micro-batches, and parameters."""
        net = gpt2()
        losses = recorded(net)
        trainer = trainer_of(net, kind, **options)
        trainer.train(resume_from_checkpoint=resume)
        self.assertEqual(trainer.state.global_step, STEPS)
        self.assertIs(type(trainer.optimizer.optimizer), KINDS[kind][0])
        norms = [line["grad_norm"] for line in trainer.state.log_history if "grad_norm" in line]
        self.assertGreater(sum(norm > CLIP for norm in norms), len(norms) / 2)
        return torch.tensor(losses, dtype=torch.float64), values(net)

    def test_losses_are_those_with_torch(self):
        for accumulation in (1, 3):
            for own in (False, True):
                with tempfile.TemporaryDirectory() as folder:
                    runs = {
                        kind: self.run_trainer(kind, folder=folder, accumulation=accumulation, own=own)[0]
                        for kind in KINDS
                    }
                self.assertEqual(len(runs["torch"]), STEPS * accumulation)
                self.assertGreater(gap(runs["torch"][0], runs["torch"][-1]), 0.01)
                self.assert_close(runs["strata"], runs["torch"])

    def test_a_resumed_run_ends_as_one_that_was_not_interrupted(self):
        for accumulation in (1, 3):
            found = {}
            for kind in KINDS:
                with tempfile.TemporaryDirectory() as folder:
                    options = dict(folder=folder, accumulation=accumulation)
                    net = gpt2()
                    trainer = trainer_of(net, kind, **options)
                    trainer.args.set_save("steps", steps=SAVED)
                    trainer.train()
                    checkpoint = f"{folder}/checkpoint-{SAVED}"
                    self.assertTrue(os.path.exists(f"{checkpoint}/optimizer.pt"))
                    found[kind] = self.run_trainer(kind, resume=checkpoint, **options)
                    self.assertTrue(same(values(net), found[kind][1]), (kind, accumulation))
            self.assertEqual(len(found["strata"][0]), (STEPS - SAVED) * accumulation)
            self.assert_close(found["strata"][0], found["torch"][0])


class AccelerateTest(Test):
    def setUp(self):
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
        accelerate.state.GradientState._reset_state()

    def prepared(self, kind, accumulation):
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=accumulation)
        net = gpt2()
        make, settings = KINDS[kind]
        optimizer = make(net.parameters(), **settings)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.5, STEPS)
        loader = torch.utils.data.DataLoader(Rows(), batch_size=4)
        return accelerator, *accelerator.prepare(net, optimizer, schedule, loader)

    def train(self, accelerator, net, optimizer, schedule, loader, first=0, steps=STEPS):
        """Losses of the micro-batches of `steps` steps, beginning with batch `first`."""
        losses, done, clipped = [], 0, 0
        for number, batch in enumerate(loader):
            if number < first:
                continue
            with accelerator.accumulate(net):
                loss = net(**batch).loss
                losses.append(loss.item())
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    clipped += accelerator.clip_grad_norm_(net.parameters(), CLIP).item() > CLIP
                    done += 1
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            if done == steps:
                break
        self.assertGreater(clipped, steps / 2)
        return torch.tensor(losses, dtype=torch.float64)

    def test_losses_are_those_with_torch(self):
        for accumulation in (1, 3):
            found = {kind: self.train(*self.prepared(kind, accumulation)) for kind in KINDS}
            self.assertEqual(len(found["torch"]), STEPS * accumulation)
            self.assert_close(found["strata"], found["torch"])

    def test_a_loaded_state_goes_on_as_the_saved_one(self):
        for accumulation in (1, 3):
            found = {}
            for kind in KINDS:
                with tempfile.TemporaryDirectory() as folder:
                    run = self.prepared(kind, accumulation)
                    self.train(*run, steps=SAVED)
                    run[0].save_state(folder)
                    self.train(*run, first=SAVED * accumulation, steps=STEPS - SAVED)
                    other = self.prepared(kind, accumulation)
                    other[0].load_state(folder)
                    found[kind] = self.train(*other, first=SAVED * accumulation, steps=STEPS - SAVED)
                    self.assertTrue(same(values(run[1]), values(other[1])), (kind, accumulation))
            self.assert_close(found["strata"], found["torch"])


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
