"""Compares conversations written by strata with the output of jinja2 in transformers' environment, for strata's
own templates or for others:
  chat_check.py --probe PROGRAM [--details | --json] [FILE...]
A FILE is a Jinja template, or JSON with "chat_template" and the tokens that it may print, as tokenizer_config.json.
Of each template it is counted how many conversations are equal, refused by both, or refused by strata alone; one
that differs, or that strata writes and jinja2 refuses, is an error. Prints one object with --json, in which each
reason of strata's refusals is counted by template. Exits with 77 without jinja2."""
import argparse
import collections
import datetime
import functools
import json
import pathlib
import random
import subprocess
import sys

try:
    from jinja2 import TemplateError
    from jinja2.ext import loopcontrols
    from jinja2.nodes import CallBlock
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    print("chat_check: this Python has no jinja2")
    sys.exit(77)

OWN = ["plain", "chatml", "qwen3", "llama3", "llama3.1", "glm4", "mistral", "gemma", "phi3", "olmo2"]
WORDS = ["", " ", "Hi", "it's", "a\nb", "\n\nlines\n", " \t spaced \u3000", "{{ m }}", "{% x %}", "\\n", "Zoë ✓ 日本", "\x1c", "'\"", "<b>",
         "<think>\nHm.\n</think>\n\nSo", "<|im_end|>", "/no_think", "[/INST]"]  # fmt: skip
NO_WORDS = {"bos_token": "<s>", "eos_token": "</s>"}  # the words of a template that comes without a configuration


class Generation(Extension):
    """transformers' tag {% generation %}, which writes its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def refuse(why):
    raise TemplateError(why)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@functools.cache
def compiled(template):
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.datetime(2024, 7, 26).strftime(form)
    return environment.from_string(template)


def rendered(template, variables):
    try:
        return compiled(template).render(**variables)
    except (TemplateError, TypeError, ValueError, KeyError, IndexError, AttributeError):
        return None


def conversation(rng):
    """Random conversations, most of them with alternating turns."""
    roles = (["system"] if rng.random() < 0.4 else []) + ["user", "assistant"] * rng.randint(1, 3)
    if rng.random() < 0.5:
        roles.pop()
    if rng.random() < 0.15:
        roles = rng.choices(["system", "user", "assistant"], k=rng.randint(1, 4))
    return [{"role": role, "content": "".join(rng.choices(WORDS, k=rng.randint(1, 3)))} for role in roles]


def published(path):
    text = pathlib.Path(path).read_text(encoding="utf-8")
    if not path.endswith(".json"):
        return path, {"jinja": text}, NO_WORDS
    config = json.loads(text)
    named = {name: config.get(name) for name in ("bos_token", "eos_token", "pad_token", "unk_token")}
    return path, {"jinja": config["chat_template"]}, {
        name: token["content"] if isinstance(token, dict) else token for name, token in named.items() if token}  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--probe", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--conversations", type=int, default=200)
    parser.add_argument("--details", action="store_true", help="a line for each template")
    parser.add_argument("--json", action="store_true", help="the counts and reasons as one object")
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    templates = [published(path) for path in options.files] or [(name, {"name": name}, {}) for name in OWN]
    requests = [{"of": name, "template": template, "words": words, "messages": conversation(rng), "generate": rng.random() < 0.5}
                for name, template, words in templates for _ in range(options.conversations)]  # fmt: skip
    done = subprocess.run([options.probe], input=json.dumps(requests), capture_output=True, text=True, check=True)
    counts, shown, reasons = collections.defaultdict(collections.Counter), [], collections.defaultdict(collections.Counter)
    for request, answer in zip(requests, json.loads(done.stdout), strict=True):
        jinja = request["template"].get("jinja", answer.get("jinja"))
        variables = {"messages": request["messages"], "add_generation_prompt": request["generate"], "tools": None, "documents": None}
        want, got = rendered(jinja, {**variables, **request["words"]}), answer.get("text")
        verdict = "equal" if want == got is not None else "refused by both" if want is got else "refused alone" if got is None else "DIFFERS"
        counts[request["of"]][verdict] += 1
        if verdict == "refused alone":
            reasons[answer["error"]][request["of"]] += 1
        if verdict == "DIFFERS":
            shown.append({"template": request["of"], "messages": request["messages"], "generate": request["generate"], "jinja2": want, "strata": got})
    total = sum(counts.values(), collections.Counter())
    if options.json:
        print(json.dumps({"templates": len(templates), "conversations": total.total(), **total, "reasons": reasons, "first": shown[:3]}))
        return 1 if shown else 0
    for case in shown[:10]:
        print(f"{case['template']}: {case['messages']}\n  jinja2 {case['jinja2']!r}\n  strata {case['strata']!r}")
    if options.details:
        for name, count in counts.items():
            print(f"{name}: {dict(count)} {next((why for why, of in reasons.items() if name in of), '')}")
    print(f"{total.total()} conversations of {len(templates)} templates: {dict(total)}")
    return 1 if shown else 0


sys.exit(main())
