"""Sends a run's figures to Weights & Biases as they come.

    strata train run.toml log.command="python3 examples/logging/to_wandb.py my-project"
"""
import json
import sys

import wandb


def flat(values, prefix=""):
    """{"used_bytes": {"device": 1}} becomes {"used_bytes.device": 1}; bits are left out."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, prefix + name + ".")
        elif isinstance(value, (int, float)):
            yield prefix + name, value


run = wandb.init(project=sys.argv[1])
for line in sys.stdin:
    figures = json.loads(line)
    if "sample" in figures:
        run.log({"sample": wandb.Html("<pre>" + figures["sample"] + "</pre>")}, step=figures["step"])
    else:
        run.log(dict(flat(figures)), step=figures["step"])
run.finish()
