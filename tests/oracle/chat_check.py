"""Compares conversations written by strata with the output of jinja2, for strata's own templates or for
published ones:
  chat_check.py --probe PROGRAM [FILE.json...]
A FILE has {"chat_template": TEXT, "bos_token": TEXT, "eos_token": TEXT}, as in a tokenizer_config.json. If
one side rejects a conversation the other must reject it too; with a published template strata may also reject
conversations without alternating turns. Exits with 77 without jinja2."""
import argparse
import json
import pathlib
import random
import subprocess
import sys

try:
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    print("chat_check: this Python has no jinja2")
    sys.exit(77)

OWN = [{"name": "plain"}, {"name": "chatml"}, {"name": "chatml", "system": "It's \\ kind.\nAnd brief."}, {"name": "llama3"},
       {"name": "llama3.1"}, {"name": "llama3.1", "date": "27 Jul 2024"}, {"name": "glm4"}, {"name": "glm4", "newline_in_prompt": True},
       {"name": "mistral"}, {"name": "mistral", "space_after_turn": True}, {"name": "gemma"}, {"name": "gemma", "takes_system": True},
       {"name": "olmo2"},
       *({"name": "phi3", "takes_system": told, "with_bos": bos, "with_eos": end}
         for told in (False, True) for bos in (False, True) for end in (False, True))]  # fmt: skip
WORDS = ["", " ", "Hi", "it's", "a\nb", "\n\nlines\n", " \t spaced \u3000", "{{ m }}", "{% x %}", "\\n", "Zoë ✓ 日本", "\x1c", "'\"", "<b>"]


class Refused(Exception):
    pass


def refuse(why):
    raise Refused(why)


def rendered(template, variables):
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)  # the settings of transformers
    environment.globals["raise_exception"] = refuse
    try:
        return environment.from_string(template).render(**variables)
    except Refused:
        return None


def conversation(rng):
    """Random conversations, most of them with alternating turns."""
    roles = (["system"] if rng.random() < 0.4 else []) + ["user", "assistant"] * rng.randint(1, 3)
    if rng.random() < 0.5:
        roles.pop()
    if rng.random() < 0.15:
        roles = rng.choices(["system", "user", "assistant"], k=rng.randint(1, 4))
    return [{"role": role, "content": "".join(rng.choices(WORDS, k=rng.randint(1, 3)))} for role in roles]


def alternates(messages):
    roles = [message["role"] for message in messages]
    roles = roles[1:] if roles[0] == "system" else roles
    return bool(roles) and all(role == ("user", "assistant")[i % 2] for i, role in enumerate(roles))


def published(path):
    config = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    return {"jinja": config["chat_template"]}, {name: config.get(name) or "" for name in ("bos_token", "eos_token")}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--probe", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--conversations", type=int, default=200)
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    templates = [published(path) for path in options.files] or [(own, {}) for own in OWN]
    requests = [{"template": asked, "messages": conversation(rng), "generate": rng.random() < 0.5, "tokens": tokens}
                for asked, tokens in templates for _ in range(options.conversations)]  # fmt: skip
    done = subprocess.run([options.probe], input=json.dumps(requests), capture_output=True, text=True, check=True)
    wrong, refused = 0, 0
    for request, answer in zip(requests, json.loads(done.stdout), strict=True):
        jinja = request["template"].get("jinja", answer.get("jinja"))
        want = rendered(jinja, {"messages": request["messages"], "add_generation_prompt": request["generate"], **request["tokens"]})
        got = answer.get("text")
        refused += got is None
        stricter = got is None and "jinja" in request["template"] and "format" in answer and not alternates(request["messages"])
        if got != want and not stricter:
            wrong += 1
            if wrong <= 10:
                print(f"{request['template']}: {request['messages']}\n  jinja2 {want!r}\n  strata {got!r} {answer.get('error', '')}")
    print(f"{len(requests)} conversations of {len(templates)} templates: {wrong} differ, {refused} refused")
    return 1 if wrong else 0


sys.exit(main())
