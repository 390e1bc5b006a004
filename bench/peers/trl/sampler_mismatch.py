#!/usr/bin/env python3
"""How many tokens that transformers.generate samples have another log-probability, bit by bit, in the model's forward over the
whole texts, as trl's GRPOTrainer computes it: prints a JSON line. On the CPU.
sampler_mismatch.py MODEL PROMPTS.jsonl DTYPE TOKENS BATCHES"""
import json
import os
import sys

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import torch
import transformers

folder, prompts, dtype, tokens, batches = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
torch.set_num_threads(2)
torch.manual_seed(1)
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), attn_implementation="sdpa").eval()
texts = [json.loads(line)["prompt"] for line in open(prompts)]
differing, n, largest = 0, 0, 0.0
with torch.no_grad():
    for batch in range(batches):
        ids = tokenizer(texts[batch % len(texts)], return_tensors="pt", add_special_tokens=False).input_ids.repeat(8, 1)
        made = model.generate(ids, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=True, temperature=1.0, top_k=0, output_logits=True, return_dict_in_generate=True, pad_token_id=tokenizer.eos_token_id)
        new = made.sequences[:, ids.shape[1] :]
        sampled = torch.stack(made.logits, 1).float().log_softmax(-1).gather(-1, new[..., None])[..., 0]
        logits = model(made.sequences).logits[:, ids.shape[1] - 1 : -1].float()
        trained = logits.log_softmax(-1).gather(-1, new[..., None])[..., 0]
        differing += int((sampled != trained).sum())
        largest = max(largest, float((sampled - trained).abs().max()))
        n += new.numel()
print(json.dumps({"tokens": n, "differing": differing, "largest": largest, "transformers": transformers.__version__, "torch": torch.__version__}))
