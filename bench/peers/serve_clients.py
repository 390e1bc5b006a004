#!/usr/bin/env python3
"""Clients of `strata serve`, among them OpenAI's own for Python, unchanged. Prints what they saw as one line of JSON.

    serve_clients.py URL PROMPTS SECONDS REQUESTS

PROMPTS: lines of JSON as `strata generate --json --temperature 0` prints them: each prompt or conversation with the text
that belongs to it. For SECONDS, 32 threads ask for these, streamed or whole, and compare. Beside them are clients that close
their connection in the midst of a stream, processes that are killed there, and clients that send bodies that are too large or
no JSON, wrong paths and headers, and JSON with random changes. Then REQUESTS requests with random changes anywhere are sent,
and at last each prompt is asked for once more, whole and streamed. After each of these, nothing may be left in the server's
queue, and the server's figures must be those of the clients. Exit code 77 without the package openai."""
import http.client
import json
import pathlib
import random
import socket
import subprocess
import sys
import threading
import time
import urllib.parse

from serve_bytes import changed, post, send_bad_requests, send_changed_requests
from serve_seen import Figures, Seen, wait_until_idle

STREAMS, FUZZERS = 32, 8
KNOWN = {200, 400, 403, 404, 405, 413, 414, 415, 429}  # statuses that a request of any content may have
TOKENS = 24
# Sends what it reads from standard input to HOST PORT, says that an answer has begun, and reads the rest.
CLIENT = """import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
s.sendall(sys.stdin.buffer.read())
s.recv(1) and print("begun", flush=True)
while s.recv(65536): pass
"""


def ask(client, prompt, streamed, model):
    """The text of one answer by OpenAI's client, with the numbers of tokens."""
    common = {"model": model, "temperature": 0, "max_tokens": TOKENS, "stream": streamed}
    if streamed:
        common["stream_options"] = {"include_usage": True}
    if "messages" in prompt:
        done = client.chat.completions.create(messages=prompt["messages"], **common)
        if not streamed:
            return done.choices[0].message.content, done.usage
        chunks = list(done)
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices), chunks[-1].usage
    done = client.completions.create(prompt=prompt["prompt"], **common)
    if not streamed:
        return done.choices[0].text, done.usage
    chunks = list(done)
    return "".join(chunk.choices[0].text for chunk in chunks if chunk.choices), chunks[-1].usage


def check_text(client, openai, prompt, streamed, model, seen):
    """Returns the numbers of tokens, or None if the server refused the request."""
    try:
        text, usage = ask(client, prompt, streamed, model)
    except openai.APIStatusError as error:
        seen.answered(error.status_code)
        if error.status_code != 429:
            seen.problem(f"openai: {error}")
        seen.count("refused")
        return time.sleep(0.05)
    except openai.OpenAIError as error:
        seen.count("unanswered")
        return seen.problem(f"openai: {type(error).__name__}: {error}")
    seen.answered(200)
    seen.count(("chat " if "messages" in prompt else "completion ") + ("streamed" if streamed else "whole"))
    if text != prompt["text"]:
        seen.problem(f"wrong text: {text!r} instead of {prompt['text']!r}")
    return usage


def stream_texts(openai, url, prompts, model, until, seed, seen):
    # Repeated requests would be counted by the server, but not here.
    client = openai.OpenAI(base_url=url + "/v1", api_key="none", timeout=120, max_retries=0)
    rng = random.Random(seed)
    while time.monotonic() < until:
        check_text(client, openai, rng.choice(prompts), rng.random() < 0.8, model, seen)


def ask_once_more(openai, url, prompts, model, seen):
    """All prompts one after the other, so that every figure of the server is known."""
    client = openai.OpenAI(base_url=url + "/v1", api_key="none", timeout=120, max_retries=0)
    before, problems = wait_until_idle(url, seen), seen.counts["problems"]
    usages = [check_text(client, openai, prompt, streamed, model, seen) for prompt in prompts for streamed in (False, True)]
    after = wait_until_idle(url, seen)
    if seen.counts["problems"] > problems:
        return None
    counted = {name: after.value(name) - before.value(name) for name in ("prompt_tokens_total", "generated_tokens_total")}
    known = {"prompt_tokens_total": sum(usage.prompt_tokens for usage in usages), "generated_tokens_total": sum(usage.completion_tokens for usage in usages)}
    chats = 2 * sum("messages" in prompt for prompt in prompts)
    requests = {("/v1/chat/completions", 200): chats, ("/v1/completions", 200): 2 * len(prompts) - chats}
    if counted != known or dict(after.requests() - before.requests()) != requests:
        seen.problem(f"/metrics has {counted} and {after.requests() - before.requests()}; the clients saw {known} and {requests}")
    return {"requests": sum(requests.values()), **known}


def connect(url):
    where = urllib.parse.urlsplit(url)
    return http.client.HTTPConnection(where.hostname, where.port, timeout=120)


def post_json(url, path, body, seen):
    """The status of a request with any body."""
    connection = connect(url)
    try:
        connection.request("POST", path, body=body, headers={"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read()
    except (OSError, http.client.HTTPException) as error:
        seen.count("unanswered")
        return seen.problem(f"no answer to {body[:200]!r}: {type(error).__name__}: {error}")
    finally:
        connection.close()
    seen.answered(response.status)
    if response.status not in KNOWN:
        seen.problem(f"{response.status} for {body[:200]!r}: {text[:200]!r}")
    if response.status >= 400 and not json.loads(text)["error"]["message"]:
        seen.problem(f"an error without a message for {body[:200]!r}")
    return response.status


def long_request(model, streamed):
    return post(json.dumps({"model": model, "prompt": "It is", "max_tokens": 100, "stream": streamed}).encode())


def leave_streams(url, model, until, seen):
    """Clients that read a few events, or none, and close."""
    where, rng = urllib.parse.urlsplit(url), random.Random(1)
    while time.monotonic() < until:
        with socket.create_connection((where.hostname, where.port), timeout=120) as left:
            left.sendall(long_request(model, rng.random() < 0.7))
            if rng.random() < 0.6:
                left.recv(200)
        seen.count("left")
        time.sleep(0.05)


def kill_clients(url, model, until, seen):
    """Processes that are killed before or while they read."""
    where, rng = urllib.parse.urlsplit(url), random.Random(2)
    command = [sys.executable, "-I", "-S", "-c", CLIENT, where.hostname, str(where.port)]
    while time.monotonic() < until:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
            client.stdin.write(long_request(model, True))
            client.stdin.close()
            if rng.random() < 0.7:
                client.stdout.readline()
            client.kill()
        seen.count("killed")
        time.sleep(0.2)


def send_bad_bodies(url, until, seen):
    bodies = {413: [b'{"prompt": "' + b"x" * (3 << 20) + b'"}'],
              400: [b"", b"{", b"[]", b'{"prompt": NaN}', b'{"prompt": "\xff"}', b"[" * 100000, b'{"prompt": -1}', b"\0"]}  # fmt: skip
    while time.monotonic() < until:
        for status, each in bodies.items():
            for body in each:
                got = post_json(url, "/v1/completions", body, seen)
                if got is not None and got not in (status, 429):
                    seen.problem(f"{got} instead of {status} for {body[:40]!r}")
                seen.count("bad bodies")
        time.sleep(0.2)


def fuzz_json(url, model, until, seed, seen):
    rng = random.Random(seed)
    texts = [("/v1/completions", {"model": model, "prompt": ["a", [1, 2]], "max_tokens": 3, "temperature": 0.5, "stop": ["x"],
                                  "n": 2, "echo": True, "logprobs": 5, "seed": 1}),
             ("/v1/chat/completions", {"model": model, "messages": [{"role": "user", "content": "Who?"}], "top_p": 0.5,
                                       "max_tokens": 3, "stream": True, "tools": []})]  # fmt: skip
    while time.monotonic() < until:
        path, request = rng.choice(texts)
        post_json(url, path, changed(json.dumps(request).encode(), rng), seen)
        seen.count("changed bodies")


def in_threads(calls):
    threads = [threading.Thread(target=target, args=args) for target, *args in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main():
    try:
        import openai
    except ImportError as error:
        print(f"serve_clients: skipped: {error}", file=sys.stderr)
        sys.exit(77)
    url, prompts, seconds, n_requests = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
    prompts = [json.loads(line) for line in pathlib.Path(prompts).read_text().splitlines()]
    seen = Seen()
    seen.statuses.update(Figures(url).statuses())
    model = openai.OpenAI(base_url=url + "/v1", api_key="none").models.list().data[0].id
    seen.answered(200)
    until = time.monotonic() + seconds
    in_threads([(stream_texts, openai, url, prompts, model, until, seed, seen) for seed in range(STREAMS)]
               + [(fuzz_json, url, model, until, seed, seen) for seed in (100, 101)]
               + [(leave_streams, url, model, until, seen), (kill_clients, url, model, until, seen), (send_bad_bodies, url, until, seen),
                  (send_bad_requests, url, until, seen)])  # fmt: skip
    wait_until_idle(url, seen)
    in_threads([(send_changed_requests, url, model, n_requests // FUZZERS, seed, KNOWN, seen) for seed in range(200, 200 + FUZZERS)])
    once_more = ask_once_more(openai, url, prompts, model, seen)
    figures = Figures(url)
    print(json.dumps({"counts": dict(sorted(seen.counts.items())), "statuses": {str(s): n for s, n in sorted(seen.statuses.items())},
                      "metrics": {str(s): n for s, n in sorted(figures.statuses().items())}, "once_more": once_more,
                      "problems": seen.problems, "openai": openai.__version__}))  # fmt: skip


main()
