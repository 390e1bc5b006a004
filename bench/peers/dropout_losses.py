#!/usr/bin/env python3
"""Trains adapters by PEFT with lora_dropout on copies of one sequence, for the claim lora_dropout:

    dropout_losses.py FOLDER IDS.json --copies N --steps N --lr X --seeds N --p P [P ...]

Prints {"peft": version, "losses": {P: [[loss of each step] of each seed]}}. Exit code 77 without torch, transformers or PEFT."""
import argparse
import json
import pathlib
import sys

try:
    import peft
    import torch
    import transformers
except ImportError as error:
    print(f"dropout_losses: {error}", file=sys.stderr)
    sys.exit(77)


def losses_of(args, ids, p, seed):
    torch.manual_seed(seed)
    base = transformers.AutoModelForCausalLM.from_pretrained(args.folder, dtype=torch.float32, attn_implementation="eager")
    config = peft.LoraConfig(task_type="CAUSAL_LM", r=8, lora_alpha=16, target_modules="all-linear", lora_dropout=p)
    model = peft.get_peft_model(base, config).train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=args.lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    tokens, losses = torch.tensor([ids[:-1]] * args.copies), []
    targets = torch.tensor([ids[1:]] * args.copies)
    for _ in range(args.steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(tokens).logits.flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("ids", type=pathlib.Path)
    for name, kind in (("copies", int), ("steps", int), ("seeds", int), ("lr", float)):
        parser.add_argument(f"--{name}", type=kind, required=True)
    parser.add_argument("--p", type=float, nargs="+", required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    ids = json.loads(args.ids.read_text())
    losses = {p: [losses_of(args, ids, p, seed) for seed in range(args.seeds)] for p in args.p}
    print(json.dumps({"peft": peft.__version__, "losses": losses}))


main()
