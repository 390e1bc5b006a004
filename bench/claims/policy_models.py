"""Folders of large models without a training run: Hugging Face's format, in bf16, with random weights, written by the standard
library alone."""
import json
import pathlib
import random
import shutil
import struct
import sys

TILE = 1 << 20  # values, which every tensor repeats from a place of its own


def shapes(layers, hidden, ffn, vocab):
    """The tensors of a LLaMA with tied embeddings, by name."""
    found = {"model.embed_tokens.weight": [vocab, hidden], "model.norm.weight": [hidden]}
    for i in range(layers):
        at = f"model.layers.{i}."
        found |= {at + f"self_attn.{name}_proj.weight": [hidden, hidden] for name in "qkvo"}
        found |= {at + "mlp.gate_proj.weight": [ffn, hidden], at + "mlp.up_proj.weight": [ffn, hidden], at + "mlp.down_proj.weight": [hidden, ffn]}
        found |= {at + "input_layernorm.weight": [hidden], at + "post_attention_layernorm.weight": [hidden]}
    return found


def count(shape):
    n = 1
    for extent in shape:
        n *= extent
    return n


def tile(seed):
    """Values in (-0.03, 0.03) as bf16, twice in a row, so that TILE of them can be taken from any of the first places."""
    rng = random.Random(seed)
    some = b"".join(struct.pack("<f", rng.uniform(-0.03, 0.03))[2:] for _ in range(1 << 16))
    return some * (2 * TILE // (1 << 16))


def write_tensors(path, tensors, seed):
    values, rng, header, end = tile(seed), random.Random(seed), {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + 2 * count(shape)]}
        end += 2 * count(shape)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name, shape in tensors.items():
            left = 2 * count(shape)
            if name.endswith("norm.weight"):
                out.write(b"\x80\x3f" * (left // 2))
                continue
            while left > 0:
                begin = 2 * rng.randrange(1 << 15)
                out.write(values[begin : begin + min(left, 2 * TILE)])
                left -= min(left, 2 * TILE)


def write_models(root, tokenizer, layers, hidden, ffn, vocab):
    """`root`/base, a model that writes texts, and `root`/reward, one that scores them; the second's file of the first's weights is
    a link, and a session holds both apart. Returns the parameters of the first."""
    tensors = shapes(layers, hidden, ffn, vocab)
    config = {"model_type": "llama", "hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": hidden // 64, "num_key_value_heads": hidden // 64,
              "vocab_size": vocab, "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu", "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 0}  # fmt: skip
    for name, more in (("base", {"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": True}), ("reward", {"architectures": ["LlamaForSequenceClassification"], "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "pad_token_id": 0, "tie_word_embeddings": True})):
        (root / name).mkdir()
        (root / name / "config.json").write_text(json.dumps(config | more))
        for file in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
            if (pathlib.Path(tokenizer) / file).exists():
                shutil.copy(pathlib.Path(tokenizer) / file, root / name / file)
    write_tensors(root / "base" / "model.safetensors", tensors, 1)
    (root / "reward" / "model-00001-of-00002.safetensors").hardlink_to(root / "base" / "model.safetensors")
    write_tensors(root / "reward" / "model-00002-of-00002.safetensors", {"score.weight": [1, hidden]}, 2)
    files = {name: "model-00001-of-00002.safetensors" for name in tensors} | {"score.weight": "model-00002-of-00002.safetensors"}
    (root / "reward" / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": sum(2 * count(s) for s in tensors.values())}, "weight_map": files}))
    return sum(count(shape) for shape in tensors.values())


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir()
    print(write_models(folder, sys.argv[2], *map(int, sys.argv[3:])))
