"""Requests as bytes, for clients of `strata serve` that do not keep to HTTP: with wrong paths and headers, and with random
changes anywhere."""
import json
import random
import re
import socket
import time
import urllib.parse

PATIENCE_S = 0.3  # a changed request may announce more than it sends


def request(method, path, headers, body=b""):
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def post(body, path="/v1/completions", host="localhost", kind="application/json", more=()):
    headers = [("Host", host), ("Content-Type", kind), ("Connection", "close"), *more]
    if not any(name in ("Content-Length", "Transfer-Encoding") for name, _ in more):
        headers.append(("Content-Length", len(body)))
    return request("POST", path, headers, body)


def bad_requests():
    """Requests with the status that each must have."""
    small, close = b'{"prompt": "a", "max_tokens": 1}', [("Connection", "close")]
    return [
        (404, request("GET", "/", close)), (404, request("GET", "/v1/nothing", close)), (404, request("GET", "/%zz%00/../health", close)),
        (404, request("CONNECT", "localhost:80", close)), (405, request("GET", "/v1/completions", close)),
        (405, request("DELETE", "/v1/models", close)), (404, request("GET", "/v1/models/other", close)),
        (400, request("GARBLE", "/health", close)), (400, b"hello\r\n\r\n"), (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\n\r\n"),
        (400, request("GET", "/health", close).replace(b"1.1", b"3.0")), (414, request("GET", "/" + "x" * 9000, close)),
        (403, request("GET", "/v1/models", [("Host", "attacker.example"), *close])), (403, post(small, host="127.0.0.1.attacker.example")),
        (415, post(small, kind="text/plain")), (415, post(small, kind="multipart/form-data; boundary=x")),
        (400, post(small, more=[("Content-Length", "-1")])), (400, post(small, more=[("Content-Length", "many")])),
        (400, post(small, more=[("Content-Length", "3"), ("Content-Length", "30")])),
        (413, post(small, more=[("Content-Length", "9" * 30)])),
        (413, post(b"", more=[("Content-Length", str(3 << 20)), ("Expect", "100-continue")])),
        (400, post(b"zz\r\nabc\r\n0\r\n\r\n", more=[("Transfer-Encoding", "chunked")])),
        (400, post(small, more=[("Transfer-Encoding", "gzip")])), (400, post(small, more=[("X-Long", "x" * 100000)])),
        (400, post(small, more=[("X", "y")] * 20000)), (400, request("POST", "/v1/completions", [("Content-Type", "application/json")])),
    ]  # fmt: skip


def fuzz_seeds(model):
    completion = {"model": model, "prompt": ["a", [1, 2]], "max_tokens": 1, "temperature": 0.5, "stop": ["x"], "echo": True, "logprobs": 2}
    chat = {"model": model, "messages": [{"role": "user", "content": "Who?"}], "max_tokens": 1, "stream": True}
    text = json.dumps(chat).encode()
    chunked = b"%x\r\n" % len(text) + text + b"\r\n0\r\n\r\n"
    return [post(json.dumps(completion).encode()), post(text, "/v1/chat/completions"),
            post(chunked, "/v1/chat/completions", more=[("Transfer-Encoding", "chunked")]),
            request("GET", "/v1/models/" + model, [("Host", "127.0.0.1"), ("Connection", "close"), ("Range", "bytes=0-3")]),
            request("GET", "/health?a=%20b", [("Connection", "close"), ("Accept-Encoding", "gzip"), ("Expect", "100-continue")])]  # fmt: skip


def changed(text, rng):
    """A copy with one to four random changes."""
    data = bytearray(text)
    for _ in range(rng.randrange(1, 5)):
        at, n = rng.randrange(len(data) + 1), rng.randrange(12)
        way = rng.randrange(4)
        if way == 0:
            data[at:at] = bytes([rng.randrange(256)])
        elif way == 1:
            del data[at : at + n]
        elif way == 2:
            data[at:at] = data[at : at + n]
        elif at < len(data):
            data[at] = rng.choice(b'{}[]",:0123456789.eE+-\\ntfu \x80\xff\r\n')
    return bytes(data)


def ask(url, data, patience):
    """All that a server answers to bytes before it closes the connection or nothing more comes for `patience` seconds, and
    whether it has closed it."""
    where, got, closed = urllib.parse.urlsplit(url), b"", True
    with socket.create_connection((where.hostname, where.port), timeout=60) as client:
        try:
            client.sendall(data)
        except OSError:
            pass  # refused before it was read to its end; the answer is there
        client.settimeout(patience)
        try:
            while piece := client.recv(65536):
                got += piece
        except TimeoutError:
            closed = False
        except OSError:
            pass
    return got, closed


def statuses(answer):
    """Of each response in these bytes."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) [A-Z]", answer) if status != b"100"]


def send_bad_requests(url, until, seen):
    while time.monotonic() < until:
        for status, data in bad_requests():
            got = statuses(ask(url, data, 60)[0])
            if got != [status]:
                seen.problem(f"{got} instead of {status} for {data[:100]!r}")
            for each in got:
                seen.answered(each)
            seen.count("bad requests")
        time.sleep(0.2)


def send_changed_requests(url, model, n, seed, known, seen):
    rng, seeds = random.Random(seed), fuzz_seeds(model)
    for _ in range(n):
        data = changed(rng.choice(seeds), rng)
        answer, closed = ask(url, data, PATIENCE_S)
        got = statuses(answer)
        for status in got:
            seen.answered(status)
            if status not in known and status != 416:  # httplib reads ranges, which no answer has
                seen.problem(f"{status} for {data!r}")
        seen.count("changed requests")
        # This does not see what the server does with the rest of a request that waits for more.
        if not closed or not got:
            seen.count("unanswered")
