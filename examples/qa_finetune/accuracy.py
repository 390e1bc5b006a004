#!/usr/bin/env python3
"""The share of questions that a model answers correctly: of all answers that occur in the file, `strata score` finds the
right one the most probable.

    accuracy.py QUESTIONS.jsonl STRATA score MODEL [OPTION ...]

QUESTIONS.jsonl has lines {"prompt": ..., "completion": ...}. What follows is the command that scores."""
import json
import subprocess
import sys


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        questions = [json.loads(line) for line in file if line.strip()]
    choices = sorted({question["completion"] for question in questions})
    pairs = [{"context": question["prompt"], "continuation": choice} for question in questions for choice in choices]
    scored = subprocess.run(sys.argv[2:], input="\n".join(map(json.dumps, pairs)), capture_output=True, text=True)
    if scored.returncode != 0:
        sys.exit(scored.stderr)
    logprobs = [json.loads(line)["logprob"] for line in scored.stdout.splitlines()]
    right = 0
    for i, question in enumerate(questions):
        of_question = logprobs[i * len(choices) : (i + 1) * len(choices)]
        right += choices[of_question.index(max(of_question))] == question["completion"]
    answers = [question["completion"] for question in questions]
    frequent = max(map(answers.count, choices))
    print(f"{right} of {len(questions)} right ({right / len(questions):.1%}; always the most frequent answer: {frequent / len(questions):.1%})")


main()
