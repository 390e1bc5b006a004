"""Sends a run's figures to MLflow as they come.

    strata train run.toml log.command="python3 examples/logging/to_mlflow.py my-experiment"
"""
import json
import sys

import mlflow


def flat(values, prefix=""):
    """{"used_bytes": {"device": 1}} becomes {"used_bytes.device": 1}; bits are left out."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, prefix + name + ".")
        elif isinstance(value, (int, float)):
            yield prefix + name, value


mlflow.set_experiment(sys.argv[1])
with mlflow.start_run():
    for line in sys.stdin:
        figures = json.loads(line)
        step = figures.pop("step")
        if "sample" in figures:
            mlflow.log_text(figures["sample"], f"samples/{step}.txt")
        else:
            mlflow.log_metrics(dict(flat(figures)), step=step)
