#!/usr/bin/env python3
"""What transformers makes of texts and folders, for the claim text_ends: answers lines of JSON on stdin with a line each.
  {"make": FOLDER, "case": NAME of tests/oracle/make_folders.py, "change": {}}   a random model of two layers
  {"encode": FOLDER, "texts": [...], "chats": [[MESSAGE...], ...], "prompts": [[MESSAGE...], ...]}
                                          ids of the texts, of the conversations and of those for a generation
  {"continue": FOLDER, "prompts": [[ID...], ...], "tokens": N}    greedy ids, and the ids that end a text
Exit code 77 without torch or transformers."""
import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "oracle"))
import make_folders

try:
    import torch
    import transformers
except ImportError as error:
    print(f"text_ends: {error}", file=sys.stderr)
    sys.exit(77)

SIZES = {"num_hidden_layers": 2, "n_layer": 2, "max_position_embeddings": 256, "n_positions": 256, "sliding_window": 64}
transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()
torch.set_num_threads(1)


def make(request):
    case = next(case for case in make_folders.CASES if case.name == request["case"])
    config = case.config | {name: value for name, value in SIZES.items() if name in case.config} | request["change"]
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config))
    model.config.save_pretrained(request["make"])  # the folder has its generation_config.json
    state = {name: tensor.clone() for name, tensor in model.state_dict().items() if name != "lm_head.weight" or not config.get("tie_word_embeddings", True)}
    from safetensors.torch import save_file

    save_file(state, pathlib.Path(request["make"], "model.safetensors"), metadata={"format": "pt"})
    return {}


def encode(request):
    tokenizer = transformers.AutoTokenizer.from_pretrained(request["encode"])

    def applied(messages, generates):
        return tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False, add_generation_prompt=generates)

    return {"texts": [tokenizer(text)["input_ids"] for text in request["texts"]], "chats": [applied(m, False) for m in request["chats"]],
            "prompts": [applied(m, True) for m in request["prompts"]], "eos": tokenizer.eos_token_id, "bos": tokenizer.bos_token_id}  # fmt: skip


def continued(request):
    model = transformers.AutoModelForCausalLM.from_pretrained(request["continue"], dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(request["continue"])
    said = []
    for ids in request["prompts"]:
        with torch.no_grad():
            out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), max_new_tokens=request["tokens"], do_sample=False,
                                 pad_token_id=0)  # fmt: skip
        said.append(out[0, len(ids) :].tolist())
    ends = model.generation_config.eos_token_id
    return {"ids": said, "ends": ends if isinstance(ends, list) else [ends], "eos": tokenizer.eos_token_id, "bos": tokenizer.bos_token_id}


# The output of a library is no answer.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
print(json.dumps({"transformers": transformers.__version__}), file=answers, flush=True)
for line in sys.stdin:
    request = json.loads(line)
    try:
        answer = make(request) if "make" in request else encode(request) if "encode" in request else continued(request)
    except Exception as error:  # the claim says which family it is of
        answer = {"error": f"{type(error).__name__}: {error}"[:300]}
    print(json.dumps(answer), file=answers, flush=True)
