#!/usr/bin/env python3
"""Steps of trl's PPOTrainer on the CPU, all of policy, critic, reference and reward model of the same shape in memory: full
fine-tuning with torch's AdamW and gradient checkpointing, two answers of 16 tokens in a batch. Needs a trl that has PPO
(trl.experimental.ppo, 1.12 the last). Prints a JSON line with the parameters of one model.
trl_ppo_step.py TOKENIZER LAYERS HIDDEN DTYPE STEPS"""
import json
import os
import resource
import sys
import tempfile

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import datasets
import torch
import transformers
import trl
from trl.experimental.ppo import PPOConfig, PPOTrainer


def main():
    folder, layers, hidden, dtype, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), getattr(torch, sys.argv[4]), int(sys.argv[5])
    torch.set_num_threads(2)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = tokenizer.eos_token
    config = transformers.LlamaConfig(num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=hidden // 64, num_key_value_heads=hidden // 64, intermediate_size=hidden * 11 // 4,
                                      vocab_size=8192, max_position_embeddings=256, num_labels=1, dtype=dtype)  # fmt: skip
    torch.set_default_dtype(dtype)  # so that no model is made in f32 first
    policy, reference = (transformers.LlamaForCausalLM(config) for _ in range(2))
    critic, reward = (transformers.LlamaForSequenceClassification(config) for _ in range(2))
    torch.set_default_dtype(torch.float32)
    data = datasets.Dataset.from_list([{"input_ids": tokenizer(text)["input_ids"]} for text in ("It is a truth", "She was not so") * (2 * steps)])
    with tempfile.TemporaryDirectory() as out:
        arguments = PPOConfig(output_dir=out, per_device_train_batch_size=1, gradient_accumulation_steps=2, num_mini_batches=1, num_ppo_epochs=1, total_episodes=2 * steps, response_length=16,
                              local_rollout_forward_batch_size=1, num_sample_generations=0, learning_rate=1e-6, use_cpu=True, bf16=False, gradient_checkpointing=True, report_to=[], save_strategy="no",
                              disable_tqdm=True, whiten_rewards=False, kl_coef=0.05)  # fmt: skip
        trainer = PPOTrainer(args=arguments, processing_class=tokenizer, model=policy, ref_model=reference, reward_model=reward, value_model=critic, train_dataset=data,
                             eval_dataset=data.select(range(2)))  # fmt: skip
        trainer.train()
    print(json.dumps({"params": sum(p.numel() for p in policy.parameters()), "steps": steps, "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "trl": trl.__version__, "torch": torch.__version__}))  # fmt: skip


main()
