#!/usr/bin/env python3
"""Generates questions and answers from the novels in austen/ as JSONL for fine-tuning.

  python3 make_austen_qa.py --out train.jsonl --val val.jsonl
  python3 make_austen_qa.py --form completion --out train.jsonl

There are three kinds of questions in equal parts, or one with --kind: who says something, which novel a sentence is from, and
how a sentence continues. Equal arguments produce equal bytes with every version of Python. No question
occurs twice, and no question of the validation file is in the training file.
"""

import argparse
import hashlib
import json
import pathlib
import re
import sys

NOVELS = {
    "pride_and_prejudice.txt": "Pride and Prejudice",
    "sense_and_sensibility.txt": "Sense and Sensibility",
    "persuasion.txt": "Persuasion",
}
KINDS = ("says", "novel", "continue")
TITLE = r"(?:Mr\.|Mrs\.|Miss|Lady|Sir|Lord|Colonel|Captain|Admiral|Dr\.)"
NAME = rf"(?:{TITLE} )?[A-Z][a-z]+(?: [A-Z][a-z]+)?"
# Matches "...," said Elizabeth; not "said he" or "said the", where the text does not contain the name.
SPEECH = re.compile(rf'"([^"]{{15,160}}?)[,!?]" (?:said|cried|replied|exclaimed|observed|returned|answered) ({NAME})\b')
NOT_NAMES = {"The", "His", "Her", "Then", "But", "And", "She", "He"}
# A full stop after a title does not end a sentence.
SENTENCE_END = re.compile(r"(?<!Mr)(?<!Mrs)(?<!Dr)(?<!St)(?<!Esq)[.!?](?=\s+[A-Z]|$)")


def paragraphs(path):
    """Yields the paragraphs of a novel, each in one line, without chapter headings and very short ones."""
    for block in re.split(r"\n\s*\n", path.read_text(encoding="ascii")):
        text = re.sub(r"\s+", " ", block.replace("_", "")).strip()
        if len(text) > 60 and not text.startswith("Chapter "):
            yield text


def sentences(paragraph):
    begin = 0
    for end in SENTENCE_END.finditer(paragraph):
        text = paragraph[begin:end.end()].strip()
        begin = end.end()
        # Only sentences that are complete on their own: without quotation marks and of a useful length.
        if '"' not in text and 50 <= len(text) <= 220 and text[0].isupper():
            yield text


def pairs_of(path, title):
    """Yields (kind, question, answer) for one novel."""
    for paragraph in paragraphs(path):
        for speech, name in SPEECH.findall(paragraph):
            if name.split()[0] not in NOT_NAMES:
                yield "says", f"In {title}, who says: '{speech}'?", f"{name}."
        for sentence in sentences(paragraph):
            yield "novel", f"Which novel contains this sentence: '{sentence}'?", f"{title}."
            words = sentence.split(" ")
            if len(words) >= 10:
                half = len(words) // 2
                yield "continue", f"Continue the sentence: '{' '.join(words[:half])}'", " ".join(words[half:])


def place(seed, text):
    """The sort key of a question in the shuffled order: unlike the random module, a digest never changes."""
    return hashlib.sha256(f"{seed}\n{text}".encode()).digest()


def choose(folder, count, seed, kinds=KINDS):
    """Returns `count` pairs that alternate between the kinds."""
    by_kind = {kind: {} for kind in kinds}
    for file, title in NOVELS.items():
        for kind, question, answer in pairs_of(folder / file, title):
            if kind in by_kind:
                by_kind[kind].setdefault(question, set()).add(answer)
    queues = []
    for kind, found in by_kind.items():
        # A question with two answers is ambiguous and therefore dropped.
        clear = [(q, next(iter(a))) for q, a in found.items() if len(a) == 1]
        queues.append(sorted(clear, key=lambda pair: place(seed, pair[0])))
    if count > len(queues) * min(map(len, queues)):
        sys.exit(f"{count} pairs requested, but the novels contain only {len(queues) * min(map(len, queues))}")
    return [queues[i % len(queues)][i // len(queues)] for i in range(count)]


def record(question, answer, form):
    if form == "completion":
        return {"prompt": f"Question: {question}\nAnswer:", "completion": f" {answer}"}
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def write(path, pairs, form):
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for question, answer in pairs:
            file.write(json.dumps(record(question, answer, form)) + "\n")
    print(f"{path}: {len(pairs)} records")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="austen_qa.jsonl", help="file to write (default: %(default)s)")
    parser.add_argument("--val", help="file for validation pairs, in addition to those of --out")
    parser.add_argument("--form", choices=["messages", "completion"], default="messages")
    parser.add_argument("--kind", choices=KINDS, help="only this kind of question")
    parser.add_argument("--count", type=int, default=600, help="pairs in --out (default: %(default)s)")
    parser.add_argument("--val-count", type=int, default=60, help="pairs in --val (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    here = pathlib.Path(__file__).resolve().parent
    parser.add_argument("--novels", type=pathlib.Path, default=here / "austen", help="folder of the novels")
    args = parser.parse_args()
    if args.count < 1 or args.val_count < 1:
        parser.error("counts must be at least 1")
    total = args.count + (args.val_count if args.val else 0)
    pairs = choose(args.novels, total, args.seed, (args.kind,) if args.kind else KINDS)
    write(args.out, pairs[:args.count], args.form)
    if args.val:
        write(args.val, pairs[args.count:], args.form)


if __name__ == "__main__":
    main()
