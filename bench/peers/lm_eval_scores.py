#!/usr/bin/env python3
"""Runs lm_eval on the same models and local tasks with its `hf` model, in float32, and through `strata score` by
examples/lm_eval/strata_lm.py, and prints the differences as one line of JSON.

    lm_eval_scores.py STRATA TEXT FOLDER ...     a file of text, and folders of Hugging Face with tokenizers

Tasks, made of the text: four choices for what follows, the last word of a passage, and the log-likelihood of
passages longer than the model's context. Exit code 77 without lm_eval, torch and transformers."""
import contextlib
import json
import os
import pathlib
import random
import sys
import tempfile

os.environ.update(HF_DATASETS_OFFLINE="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples" / "lm_eval"))
CHOICES, WORDS, TEXTS = 120, 120, 8  # documents of the tasks

COMMON = "dataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {data}\ntest_split: test\n"
CHOICE = COMMON + """task: austen_choice
output_type: multiple_choice
doc_to_text: "{{{{context}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{label}}}}"
target_delimiter: " "
metric_list:
  - metric: acc
  - metric: acc_norm
"""
WORD = COMMON + """task: austen_word
output_type: loglikelihood
doc_to_text: "{{{{context}}}}"
doc_to_target: " {{{{word}}}}"
metric_list:
  - metric: acc
  - metric: perplexity
"""
ROLLING = COMMON + """task: austen_text
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list:
  - metric: word_perplexity
"""


def documents(text, rng):
    """Documents of the three tasks. Contexts have up to 60 words, so that some are longer than a model's context."""
    words = text.split()

    def passage(n, at=None):
        at = rng.randrange(len(words) - 200) if at is None else at
        return " ".join(words[at : at + n]), at + n

    choices = []
    for _ in range(CHOICES):
        context, end = passage(rng.randrange(1, 60))
        label = rng.randrange(4)
        endings = [passage(rng.randrange(1, 8), end if i == label else None)[0] for i in range(4)]
        choices.append({"context": context, "choices": endings, "label": label})
    last = []
    for _ in range(WORDS):
        context, end = passage(rng.randrange(1, 60))
        last.append({"context": context, "word": words[end]})
    return {"austen_choice": (CHOICE, choices), "austen_word": (WORD, last),
            "austen_text": (ROLLING, [{"text": passage(rng.randrange(2, 200))[0]} for _ in range(TEXTS)])}  # fmt: skip


def write_tasks(text, folder):
    """Returns their names."""
    tasks = documents(text, random.Random(5))
    for name, (yaml, rows) in tasks.items():
        data = folder / f"{name}.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / f"{name}.yaml").write_text(yaml.format(data=data))
    return list(tasks)


def numbers(samples):
    """Per request of a task, in order: its log-likelihood and, if it has one, its greedy flag."""
    found = []
    for sample in sorted(samples, key=lambda sample: sample["doc_id"]):
        for (answer,) in sample["resps"]:
            found.append(tuple(answer) if isinstance(answer, (tuple, list)) else (answer, None))
    return found


def evaluate(lm_eval, model, tasks, folder):
    from lm_eval.tasks import TaskManager

    with contextlib.redirect_stdout(sys.stderr):
        done = lm_eval.simple_evaluate(model=model, tasks=tasks, bootstrap_iters=0,
                                       task_manager=TaskManager(include_path=str(folder), include_defaults=False))  # fmt: skip
    accuracies = {(task, name): value for task, values in done["results"].items()
                  for name, value in values.items() if name.startswith("acc") and "stderr" not in name}  # fmt: skip
    return accuracies, {task: numbers(done["samples"][task]) for task in tasks}


def compare(lm_eval, strata, model, tasks, folder):
    from lm_eval.models.huggingface import HFLM
    from strata_lm import StrataLM

    def hf(dtype):
        return evaluate(lm_eval, HFLM(pretrained=str(model), dtype=dtype, device="cpu", batch_size=8), tasks, folder)

    def worst(some, others):
        return {task: max(abs(a[0] - b[0]) for a, b in zip(some[task], others[task], strict=True)) for task in tasks}

    (theirs, expected), (_, exact) = hf("float32"), hf("float64")
    with StrataLM(model, strata=strata) as lm:
        ours, found = evaluate(lm_eval, lm, tasks, folder)
    pairs = [pair for task in tasks for pair in zip(expected[task], found[task], strict=True)]
    return {"model": model.name, "requests": len(pairs), "worst": worst(expected, found),
            "worst_to_float64": {"strata": worst(found, exact), "hf": worst(expected, exact)},
            "largest": max(-a[0] for a, _ in pairs),
            "greedy": sum(bool(a[1]) for a, _ in pairs), "different_greedy": sum(a[1] != b[1] for a, b in pairs),
            "accuracies": {" ".join(key): value for key, value in theirs.items()},
            "different_accuracies": sum(theirs[key] != ours.get(key) for key in theirs)}  # fmt: skip


def main():
    try:
        import lm_eval
        import torch
        import transformers
    except ImportError as error:
        print(f"lm_eval_scores: skipped: {error}", file=sys.stderr)
        sys.exit(77)
    strata, text, *models = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="strata-lm-eval-") as scratch:
        os.environ["HF_DATASETS_CACHE"] = scratch + "/cache"
        import datasets

        datasets.config.HF_DATASETS_CACHE = pathlib.Path(scratch, "cache")
        tasks = write_tasks(pathlib.Path(text).read_text(), pathlib.Path(scratch))
        rows = [compare(lm_eval, strata, pathlib.Path(model), tasks, pathlib.Path(scratch)) for model in models]
    print(json.dumps({"rows": rows, "lm_eval": lm_eval.__version__, "transformers": transformers.__version__,
                      "torch": torch.__version__}))  # fmt: skip


main()
