"""Tokenizers and chat templates of every family in small, for the claim text_ends: the kind of tokenizer and the special
tokens that its published instruct models have, what their tokenizer_config.json and generation_config.json say, and their
template. Of Qwen2, Qwen3, LLaMA, Phi-3 and Gemma it is that which trl ships. GPT-2, OPT and BLOOM were published without
one: theirs is transformers' old default."""
import dataclasses
import json
import pathlib

import claim

PLAIN = "{% for message in messages %}{{ message.content }}{{ eos_token }}{% endfor %}"
CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")  # fmt: skip
GLM = ("[gMASK]<sop>{%- for msg in messages %}{%- if msg.role == 'system' %}<|system|>\n{{ msg.content }}{%- elif msg.role == 'user' %}<|user|>\n{{ msg.content }}"
       "{%- elif msg.role == 'assistant' %}<|assistant|>\n{{ msg.content }}{%- endif %}{%- endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}")  # fmt: skip
MISTRAL = ("{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
           "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if message['role'] == 'user' %}"
           "{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}"
           "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}")  # fmt: skip
OLMO2 = ("{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}{{ '<|system|>\n' + message['content'] + '\n' }}"
         "{% elif message['role'] == 'user' %}{{ '<|user|>\n' + message['content'] + '\n' }}{% elif message['role'] == 'assistant' %}"
         "{% if not loop.last %}{{ '<|assistant|>\n'  + message['content'] + eos_token + '\n' }}{% else %}{{ '<|assistant|>\n'  + message['content'] + eos_token }}"
         "{% endif %}{% endif %}{% if loop.last and add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}{% endfor %}")  # fmt: skip


@dataclasses.dataclass
class Family:
    case: str  # a case of tests/oracle/make_folders.py
    tokenizer: str  # a folder of tests/text/tokenizers
    special: tuple  # tokens that are appended where the file lacks them
    bos: str | None
    eos: str
    pad: str | None
    ends: tuple  # eos_token_id of generation_config.json
    template: str  # or the name of trl's
    prefix: tuple = ()  # the tokens that the post-processor writes before a text
    change: dict = dataclasses.field(default_factory=dict)  # changes of the configuration, so that GGUF takes it
    gguf: bool = True
    first: str | None = None  # bos_token_id of config.json and generation_config.json, if the tokenizer has no BOS


END = "<|endoftext|>"
LLAMA = ("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|start_header_id|>", "<|end_header_id|>")
QWEN = (END, "<|im_start|>", "<|im_end|>")
GLM_TOKENS = (END, "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")
GLM_ENDS = (END, "<|user|>", "<|observation|>")
FAMILIES = {
    "gpt2": Family("gpt2", "gpt2", (END,), END, END, None, (END,), PLAIN),
    "opt": Family("opt", "gpt2", ("<s>", "<pad>", "</s>"), "</s>", "</s>", "<pad>", ("</s>",), PLAIN, ("</s>",), gguf=False),
    "bloom": Family("bloom", "gpt2", ("<unk>", "<s>", "</s>", "<pad>"), "<s>", "</s>", "<pad>", ("</s>",), PLAIN),
    "llama": Family("llama", "llama3", LLAMA, "<|begin_of_text|>", "<|eot_id|>", None, ("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"), "llama3", ("<|begin_of_text|>",)),
    "qwen2": Family("qwen2", "qwen2", QWEN, None, "<|im_end|>", END, ("<|im_end|>", END), "qwen2_5", first=END),
    "qwen3": Family("qwen3", "qwen2", (*QWEN, "<think>", "</think>"), None, "<|im_end|>", END, ("<|im_end|>", END), "qwen3", first=END),
    "glm": Family("glm", "llama3", GLM_TOKENS, None, END, END, GLM_ENDS, GLM, ("[gMASK]", "<sop>"), {"head_dim": 16}),
    "glm4": Family("glm4", "llama3", GLM_TOKENS, None, END, END, GLM_ENDS, GLM, ("[gMASK]", "<sop>")),
    "mistral": Family("mistral", "mistral", (), "<s>", "</s>", None, ("</s>",), MISTRAL, ("<s>",)),
    "olmo2": Family("olmo2", "llama3", (END, "<|pad|>"), END, END, "<|pad|>", (END,), OLMO2),
    "phi3": Family("phi3", "phi3", ("<|assistant|>", "<|system|>"), "<s>", END, END, (END, "<|assistant|>", "<|end|>"), "phi3"),
    "smollm3": Family("smollm3", "llama3", ("<|begin_of_text|>", "<|end_of_text|>", "<|im_start|>", "<|im_end|>"), None, "<|im_end|>", "<|im_end|>", ("<|im_end|>",), CHATML, first="<|begin_of_text|>"),
    "gemma2": Family("gemma2", "gemma", (), "<bos>", "<eos>", "<pad>", ("<eos>", "<end_of_turn>"), "gemma", ("<bos>",), {"query_pre_attn_scalar": 24}),
    "gemma3_text": Family("gemma3", "gemma", (), "<bos>", "<eos>", "<pad>", ("<eos>", "<end_of_turn>"), "gemma3", ("<bos>",), {"query_pre_attn_scalar": 24}),
}  # fmt: skip
BYTE_LEVEL = ("gpt2", "llama3", "qwen2")  # their special tokens are behind the vocabulary, and each family has its own


def tokenizer_of(family):
    root = json.loads((claim.ROOT / f"tests/text/tokenizers/{family.tokenizer}.json").read_text())
    added = [] if family.tokenizer in BYTE_LEVEL else root["added_tokens"]
    ids = {token["content"]: token["id"] for token in added}
    after = max([*root["model"]["vocab"].values(), *ids.values()]) + 1
    for i, name in enumerate(name for name in family.special if name not in ids):
        ids[name] = after + i
        added.append({"id": ids[name], "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                      "special": name not in ("<think>", "</think>")})  # fmt: skip
    root["added_tokens"] = added
    sequence = [{"SpecialToken": {"id": name, "type_id": 0}} for name in family.prefix]
    if sequence:
        root["post_processor"] = {"type": "TemplateProcessing", "single": [*sequence, {"Sequence": {"id": "A", "type_id": 0}}],
                                  "pair": [*sequence, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                                  "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in family.prefix}}  # fmt: skip
    elif family.tokenizer in BYTE_LEVEL:
        root["post_processor"] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    return root, ids, max([*root["model"]["vocab"].values(), *ids.values()]) + 1


def write_texts(folder, family, template):
    """The tokenizer's files. Returns the ids that the configuration has."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    root, ids, vocab = tokenizer_of(family)
    ends = [ids[name] for name in family.ends]
    named = {"bos_token": family.bos, "eos_token": family.eos, "pad_token": family.pad}
    said = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 128, "clean_up_tokenization_spaces": False, "chat_template": template}
    generation = {"bos_token_id": ids.get(family.bos or family.first), "eos_token_id": ends if len(ends) > 1 else ends[0], "pad_token_id": ids.get(family.pad)}
    for name, value in (("tokenizer.json", root), ("tokenizer_config.json", said | {k: v for k, v in named.items() if v}),
                        ("generation_config.json", {k: v for k, v in generation.items() if v is not None})):  # fmt: skip
        (folder / name).write_text(json.dumps(value, ensure_ascii=False, indent=1))
    return {"vocab_size": vocab, "bos_token_id": ids.get(family.bos or family.first), "eos_token_id": ids[family.eos], "pad_token_id": ids.get(family.pad)}
