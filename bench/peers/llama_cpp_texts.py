#!/usr/bin/env python3
"""What llama.cpp makes of GGUF files, through the package xllamacpp, which contains its server.

    llama_cpp_texts.py     reads lines of JSON: {"gguf", "prompt_ids": [...], "tokens": N, "texts": [...]}

Prints one line of JSON for each: the ids of the greedy continuation (`ids`), their log-probabilities (`logprobs`; fewer if
some tokens are no whole characters), and the ids of each text with what the file adds around it (`encoded`). Computes in
f32, with a cache in f32. Exit code 77 without the package."""
import json
import sys
import urllib.request

try:
    import xllamacpp
except ImportError:
    sys.exit(77)


def server_of(path):
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 2
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.warmup, params.verbosity = False, 0
    return xllamacpp.Server(params)


def ask(server, path, question):
    request = urllib.request.Request(server.listening_address + path, data=json.dumps(question).encode(), headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.loads(answer.read())


for line in sys.stdin:
    job = json.loads(line)
    server, row = server_of(job["gguf"]), {"ids": [], "logprobs": [], "encoded": []}
    if job.get("tokens"):
        said = ask(server, "/completion", {"prompt": job["prompt_ids"], "n_predict": job["tokens"], "temperature": 0, "n_probs": 1,
                                           "return_tokens": True, "cache_prompt": False, "ignore_eos": False})  # fmt: skip
        row["ids"] = said["tokens"]
        row["logprobs"] = [token["logprob"] for token in said.get("completion_probabilities", ())]
    for text in job.get("texts", ()):
        row["encoded"].append(ask(server, "/tokenize", {"content": text, "add_special": True, "parse_special": False})["tokens"])
    del server
    print(json.dumps(row), flush=True)
