#!/usr/bin/env python3
"""Generates pairs of answers from the novels in austen/ as JSONL, by a rule: of two continuations of a beginning, the one that
speaks of a woman (she, her, hers, herself) is chosen.

  python3 make_austen_pairs.py --pairs pairs.jsonl --val val.jsonl --texts texts.jsonl --prompts prompts.jsonl

texts: beginnings with their own continuations, for supervised fine-tuning. prompts: other beginnings. No beginning occurs in
two files. Equal arguments produce equal bytes."""

import argparse
import hashlib
import json
import pathlib
import re

from make_austen_qa import NOVELS, paragraphs, sentences

WOMAN = re.compile(r"\b(she|her|hers|herself)\b", re.IGNORECASE)
BEGIN_WORDS, MAX_WORDS = 4, 14


def rank(text):
    return hashlib.sha256(text.encode()).digest()


def halves():
    """(beginning, continuation) of every sentence, in an order that depends on nothing but the sentences."""
    found = {}
    for name in NOVELS:
        for paragraph in paragraphs(pathlib.Path(__file__).parent / "austen" / name):
            for sentence in sentences(paragraph):
                words = sentence.split(" ")
                begin, rest = " ".join(words[:BEGIN_WORDS]), words[BEGIN_WORDS : BEGIN_WORDS + MAX_WORDS]
                if len(rest) >= 6 and not WOMAN.search(begin):
                    found.setdefault(begin, " " + " ".join(rest))
    return sorted(found.items(), key=lambda item: rank(item[0]))


def write(path, rows):
    with open(path, "w", encoding="ascii") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("pairs", "val", "texts", "prompts"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--n-val", type=int, default=200)
    parser.add_argument("--n-prompts", type=int, default=256)
    asked = parser.parse_args()
    all_halves = halves()
    prompts, rest = all_halves[: asked.n_prompts], all_halves[asked.n_prompts :]
    texts, rest = rest[: len(rest) // 2], rest[len(rest) // 2 :]
    women = [half for half in rest if WOMAN.search(half[1])]
    others = [half for half in rest if not WOMAN.search(half[1])]
    pairs = [{"prompt": (woman if i % 2 else other)[0], "chosen": woman[1], "rejected": other[1]} for i, (woman, other) in enumerate(zip(women, others))]
    write(asked.prompts, ({"prompt": begin} for begin, _ in prompts))
    write(asked.texts, ({"prompt": begin, "completion": end} for begin, end in texts))
    write(asked.val, pairs[: asked.n_val])
    write(asked.pairs, pairs[asked.n_val :])
    print(f"{len(texts)} texts, {len(pairs) - asked.n_val} pairs, {asked.n_val} for validation, {len(prompts)} prompts")


if __name__ == "__main__":
    main()
