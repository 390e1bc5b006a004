"""Checkpoints that go from PyTorch to the strata command and back."""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

import language_models
from language_models import optim, token_rows, torch

import strata

COMMAND = os.environ.pop("STRATA_COMMAND", None)  # the command takes STRATA_* as settings
if not COMMAND:
    print("STRATA_COMMAND does not name the command")
    sys.exit(77)

VOCAB = 300  # no tokenizer of bytes has fewer than 257


def gpt2():
    return language_models.gpt2(vocab=VOCAB)


def llama():
    return language_models.llama(vocab=VOCAB)


MODELS = {"gpt2": gpt2, "llama": llama}
# A step with these settings changes no parameter and adds nothing to moments beyond their last bits: they
# only decay.
NEUTRAL = ["optim.lr=1e-30", "optim.weight_decay=0", "optim.clip=1e-30", "optim.warmup=0", "train.dtype=f32",
           "train.micro_batch=1", "train.grad_accum=1", "train.eval_every=0", "memory.backend=host"]  # fmt: skip
BETA1, BETA2 = 0.9, 0.95


def train(model, optimizer, steps, first=0):
    rows = token_rows(64)
    losses = []
    for i in range(first, first + steps):
        row = rows[2 * i : 2 * i + 2]
        loss = model(input_ids=torch.stack(list(row)), labels=torch.stack(list(row))).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def adamw(model, **options):
    return optim.AdamW(model.parameters(), lr=1e-2, betas=(BETA1, BETA2), weight_decay=0.1, pinned="64MiB", **options)


class CheckpointTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.text = self.folder / "text.txt"
        words = random.Random(1)
        self.text.write_text(" ".join("".join(words.choices("aeinorst", k=4)) for _ in range(4000)))

    def command(self, *arguments):
        done = subprocess.run([COMMAND, *map(str, arguments)], cwd=self.folder, capture_output=True, text=True,
                              errors="replace")  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        return done.stdout

    def hugging_face_folder(self, model):
        """A folder that model.save_pretrained() writes, with a tokenizer of as many tokens."""
        path = self.folder / "hf"
        model.save_pretrained(path)
        self.command("tokenizer", "train", self.text, "--vocab", VOCAB, "--out", path / "tokenizer.json")
        return path

    def test_from_torch_to_the_command_and_back(self):
        for name, make in MODELS.items():
            with self.subTest(name):
                self.folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
                model = make()
                optimizer = adamw(model)
                train(model, optimizer, 3)
                saved = strata.save_checkpoint(model, optimizer, self.folder / "torch")
                self.assertEqual(os.path.basename(saved), "step-00000003")
                hf = self.hugging_face_folder(model)
                self.command("train", "--init", hf, f"model.states={saved}", "--out", "run",
                             f"data.train={self.text}", f"data.val={self.text}", "model.seq=16", "train.steps=4",
                             f"optim.beta1={BETA1}", f"optim.beta2={BETA2}", *NEUTRAL)  # fmt: skip
                first = (self.folder / "run" / "metrics.jsonl").read_text().splitlines()[0]
                self.assertEqual(json.loads(first)["step"], 4)
                self.command("export", "run", "--out", "back", "--states")

                other = make()
                second = adamw(other, nvme=str(self.folder), placement="nvme")
                strata.load_checkpoint(other, second, self.folder / "back" / "step-00000004")
                for (key, param), found in zip(model.named_parameters(), other.parameters()):
                    self.assertTrue(torch.equal(param, found), key)
                before, after = optimizer.state_dict()["state"], second.state_dict()["state"]
                for i, state in before.items():
                    self.assertEqual(after[i]["step"], 4)
                    for moment, beta in (("exp_avg", BETA1), ("exp_avg_sq", BETA2)):
                        gap = (after[i][moment] - beta * state[moment]).abs().max()
                        self.assertLessEqual(gap, 2e-7 * state[moment].abs().max(), f"{moment} of {i}")

    def test_training_goes_on_from_a_checkpoint_with_the_same_bits(self):
        for offloads in (False, True):
            with self.subTest(offloads=offloads):
                model = gpt2()
                optimizer = adamw(model)
                train(model, optimizer, 3)
                saved = strata.save_checkpoint(model, optimizer, self.folder / f"torch{offloads}")
                expected = train(model, optimizer, 3, first=3)

                other = gpt2()
                if offloads:
                    other = strata.offload(other, device="64MiB", pinned="64MiB")
                second = optim.AdamW(other.parameters(), lr=1e-2, betas=(BETA1, BETA2), weight_decay=0.1)
                strata.load_checkpoint(other, second, saved)
                self.assertEqual(train(other, second, 3, first=3), expected)

    def test_what_does_not_fit_is_refused(self):
        model = gpt2()
        optimizer = adamw(model)
        train(model, optimizer, 1)
        with self.assertRaisesRegex(strata.errors.InvalidError, "not one of strata.optim"):
            strata.save_checkpoint(model, torch.optim.SGD(model.parameters(), lr=1), self.folder)
        with self.assertRaisesRegex(strata.errors.InvalidError, "not the model's"):
            strata.save_checkpoint(llama(), optimizer, self.folder)
        saved = strata.save_checkpoint(model, optimizer, self.folder)
        other = llama()
        with self.assertRaisesRegex(strata.errors.InvalidError, "belongs to another model"):
            strata.load_checkpoint(other, adamw(other), saved)
        damaged = pathlib.Path(saved) / "m.safetensors"
        content = bytearray(damaged.read_bytes())
        content[-1] ^= 1
        damaged.write_bytes(content)
        hf = self.hugging_face_folder(model)
        done = subprocess.run([COMMAND, "train", "--init", hf, f"model.states={saved}", "--out", "run",
                               f"data.train={self.text}", f"data.val={self.text}", "model.seq=16"],
                              cwd=self.folder, capture_output=True, text=True, errors="replace")  # fmt: skip
        self.assertEqual(done.returncode, 5)
        self.assertIn("m.safetensors is damaged", done.stderr)


if __name__ == "__main__":
    unittest.main()
