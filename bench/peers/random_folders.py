#!/usr/bin/env python3
"""Draws random model folders of transformers and adapter folders of PEFT, for the claim random_folders: answers lines of
JSON on stdin, {"case": N, "kind": "model" or "adapter", "seed": N, "at": FOLDER}, with a line each: what was drawn, how often
transformers or PEFT could not run a draw, the model's folder, the adapter's, [context, token] pairs, the log-probability
that transformers, in float32 with eager attention, gives to each token, and the largest difference from those in float64.
Exit code 77 without torch, transformers and PEFT."""
import dataclasses
import json
import os
import pathlib
import random
import shutil
import sys
import warnings

try:
    import peft
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print(f"random_folders: {error}", file=sys.stderr)
    sys.exit(77)

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()
warnings.simplefilter("ignore")
torch.set_num_threads(1)

GLMS, GEMMAS = ("glm", "glm4"), ("gemma2", "gemma3_text")
FAMILIES = ("gpt2", "opt", "bloom", "llama", "qwen2", "qwen3", *GLMS, "mistral", "olmo2", "phi3", "smollm3", *GEMMAS)
OWN_HEAD_DIM = ("llama", "qwen3", "mistral", *GLMS, *GEMMAS)  # the class of their configuration has head_dim
POSITIONS, SEQUENCES, TRIES = 64, 2, 40
ACTS = ("gelu", "gelu_new", "relu", "quick_gelu", "tanh", "relu2", "mish", "gelu_pytorch_tanh", "silu", "swish", "gelu_fast", "leaky_relu")
# Keys that are left out of some files, with the default of the class as their value.
DEFAULTED = ("num_key_value_heads", "head_dim", "rms_norm_eps", "layer_norm_epsilon", "hidden_act", "hidden_activation", "activation_function",
             "tie_word_embeddings", "attention_bias", "mlp_bias", "sliding_window", "use_sliding_window", "max_window_layers",
             "query_pre_attn_scalar", "final_logit_softcapping", "attn_logit_softcapping", "n_inner", "no_rope_layer_interval",
             "word_embed_proj_dim", "rope_parameters", "layer_types", "no_rope_layers", "n_head", "max_position_embeddings")  # fmt: skip
# Other names of the same keys, in older files.
OLD_NAMES = {"gpt2": {"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
                      "n_positions": "max_position_embeddings"},
             "bloom": {"n_layer": "num_hidden_layers", "n_head": "num_attention_heads", "hidden_size": "n_embed"}}  # fmt: skip


class Draw:
    """A random configuration, the edits of the file that spell it as other versions do, and how the weights are stored."""

    def __init__(self, family, rng, odd=None, seed=1):
        """`odd` is the number of the setting that few models have, or -1 for none; without it, strata has all that is drawn."""
        self.family, self.rng, self.names = family, rng, []
        self.config = {"model_type": family, "vocab_size": rng.randint(40, 300), "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": None}
        self.removed, self.added = [], {}
        {"gpt2": self.gpt2, "opt": self.opt, "bloom": self.bloom}.get(family, self.llama)()
        if self.likely(0.8):
            self.config["tie_word_embeddings"] = self.likely(0.5)
        if odd is not None and self.likely(0.25):
            self.leave_out()
        if odd is not None and odd >= 0:
            self.be_odd(odd, seed)
        self.respell(odd is not None)
        self.dtype = rng.choice(("float32", "float32", "float32", "bfloat16", "float16"))
        self.shards, self.bare = self.likely(0.3), self.likely(0.15)
        self.tensors = rng.choice((None, None, None, None, None, "equal head", "other head", "buffers"))

    def likely(self, share):
        return self.rng.random() < share

    def gpt2(self):
        heads = self.rng.choice((1, 2, 3, 4, 6))
        self.config |= {"n_positions": POSITIONS, "n_embd": heads * self.rng.choice((8, 12, 16)), "n_layer": self.rng.randint(1, 3),
                        "n_head": heads, "n_inner": self.rng.choice((None, 40, 75)), "layer_norm_epsilon": self.rng.choice((1e-5, 1e-3, 1e-2)),
                        "activation_function": self.rng.choice(("gelu_new", "gelu_new", "gelu_pytorch_tanh", "gelu_fast")),
                        "reorder_and_upcast_attn": self.likely(0.2), "attn_pdrop": self.rng.choice((0.0, 0.1, 0.5))}  # fmt: skip

    def opt(self):
        heads = self.rng.choice((1, 2, 3, 4, 6))
        hidden = heads * self.rng.choice((8, 12, 16))
        self.config |= {"hidden_size": hidden, "word_embed_proj_dim": self.rng.choice((None, hidden)), "ffn_dim": self.rng.randint(40, 120),
                        "num_hidden_layers": self.rng.randint(1, 3), "num_attention_heads": heads, "max_position_embeddings": POSITIONS,
                        "activation_function": "relu", "dropout": self.rng.choice((0.0, 0.1)), "layerdrop": self.rng.choice((0.0, 0.2)),
                        "pad_token_id": 1}  # fmt: skip

    def bloom(self):
        heads = self.rng.choice((1, 2, 3, 4, 6, 8))
        self.config |= {"hidden_size": heads * self.rng.choice((8, 12, 16)), "n_layer": self.rng.randint(1, 3), "n_head": heads,
                        "layer_norm_epsilon": self.rng.choice((1e-5, 1e-3, 1e-2)), "hidden_dropout": self.rng.choice((0.0, 0.1)),
                        "pretraining_tp": self.rng.choice((1, 2))}  # fmt: skip

    def llama(self):
        rng, family, c = self.rng, self.family, self.config
        heads = rng.choice((1, 2, 3, 4, 6, 8))
        self.head_dim, self.layers = rng.choice((8, 12, 16, 24, 32)), rng.choice((1, 2, 3, 4, 11))
        own = family in OWN_HEAD_DIM
        c |= {"hidden_size": heads * (rng.choice((8, 12, 16)) if own else self.head_dim), "intermediate_size": rng.randint(40, 120),
              "num_hidden_layers": self.layers, "num_attention_heads": heads, "attention_dropout": rng.choice((0.0, 0.1)),
              "num_key_value_heads": rng.choice([n for n in range(1, heads + 1) if heads % n == 0]),
              "rms_norm_eps": rng.choice((1e-6, 1e-5, 1e-3, 1e-2)), "max_position_embeddings": rng.choice((POSITIONS, 2 * POSITIONS))}  # fmt: skip
        if own:
            c["head_dim"] = self.head_dim
        if family in ("llama", "qwen3", "olmo2", "smollm3", *GLMS, *GEMMAS) and self.likely(0.6):
            c["attention_bias"] = self.likely(0.5)
        if family in ("llama", "smollm3") and self.likely(0.6):
            c["mlp_bias"] = self.likely(0.5)
        if family not in GEMMAS and self.likely(0.3):
            c["hidden_act"] = rng.choice(("silu", "swish"))
        self.windows()
        if family in GEMMAS:
            c |= {"query_pre_attn_scalar": rng.choice((self.head_dim, 20, 256, 7)), "final_logit_softcapping": rng.choice((None, 30.0, 3.0))}
            if family == "gemma2":
                c["attn_logit_softcapping"] = rng.choice((None, 50.0, 2.0))
        self.rope(rng.choice(("default", "default", "linear", "llama3", "yarn") if family != "phi3" else ("default",)))

    def windows(self):
        rng, family, c = self.rng, self.family, self.config
        window = rng.choice((1, 3, 7, 16, 40, 100))
        types = [rng.choice(("sliding_attention", "full_attention")) for _ in range(self.layers)]
        if family in ("mistral", "phi3"):
            c["sliding_window"] = rng.choice((None, window))
        if family in ("qwen2", "qwen3"):
            c |= {"use_sliding_window": self.likely(0.6), "sliding_window": window, "max_window_layers": rng.randint(0, self.layers + 1)}
            if c["use_sliding_window"] and self.likely(0.4):
                c["layer_types"] = types
        if family == "smollm3":
            if self.likely(0.6):
                c |= {"use_sliding_window": True, "sliding_window": window}
            turned = [rng.randint(0, 1) for _ in range(self.layers + rng.randint(0, 1))]
            c |= rng.choice(({}, {"no_rope_layer_interval": rng.randint(1, 4)}, {"no_rope_layers": turned}))
            if c.get("use_sliding_window") and self.likely(0.3):
                c["layer_types"] = types
        if family in GEMMAS:
            pattern = {"sliding_window_pattern": rng.randint(1, 4)} if family == "gemma3_text" else {}
            c |= {"sliding_window": window} | rng.choice(({}, {"layer_types": types}, pattern))

    def scaling(self, kind):
        """The settings of a kind of RoPE."""
        rng = self.rng
        original = {"original_max_position_embeddings": rng.choice((16, 32))}
        factor = {"factor": rng.choice((2.0, 4.0, 8.0, 2.5))}
        half = int(self.head_dim * self.share) // 2
        yarn = rng.choice(({}, {"beta_fast": 4.0, "beta_slow": 1.0}, {"attention_factor": 1.5}, {"truncate": False, "beta_fast": 8.0},
                           {"mscale": 0.7, "mscale_all_dim": 1.3}, {"beta_fast": None}, {"mscale": 0.7}))  # fmt: skip
        more = {"default": {}, "linear": factor, "dynamic": factor, "proportional": factor | {"partial_rotary_factor": 0.5},
                "llama3": factor | original | {"low_freq_factor": 1.0, "high_freq_factor": rng.choice((2.0, 4.0))}, "yarn": factor | original | yarn,
                "longrope": original | {"short_factor": [1.0 + 0.1 * i for i in range(half)], "long_factor": [2.0 + 0.3 * i for i in range(half)]},
                "yarn without factor": original | {"factor": None}}  # fmt: skip
        return {"rope_type": kind.split()[0]} | more[kind]

    def rope(self, kind):
        rng, c = self.rng, self.config
        shares = [share for share in (0.5, 0.75, 1.0, 0.3, 0.4) if int(self.head_dim * share) % 2 == 0]
        self.share, self.kind = rng.choice(shares) if self.family in (*GLMS, "phi3") else 1.0, kind
        settings = {"rope_theta": rng.choice((100.0, 5000.0, 10000.0, 5e5))} | self.scaling(kind)
        if self.share != 1.0 or (self.family in GLMS and self.likely(0.5)):
            settings["partial_rotary_factor"] = self.share
        c["rope_parameters"] = settings
        if self.family == "gemma3_text":
            local = {"rope_theta": rng.choice((50.0, 700.0, 10000.0))} | self.scaling(rng.choice(("default", "default", "linear")))
            c["rope_parameters"] = {"full_attention": settings, "sliding_attention": local}

    def whole_rope(self):
        rope = self.config["rope_parameters"]
        return rope.setdefault("full_attention", {}) if self.family == "gemma3_text" else rope

    def leave_out(self):
        """Keys whose value is the default of the class and that the file does not have."""
        defaults = {field.name: field.default for field in dataclasses.fields(transformers.CONFIG_MAPPING[self.family])}
        for key in self.rng.sample(DEFAULTED, 8):
            if key not in defaults or (key == "rope_parameters" and self.family in GLMS):
                continue
            value = defaults[key]
            if key == "num_key_value_heads" and value is not None:
                self.config["num_attention_heads"] = value * self.rng.choice((1, 2) if value < 16 else (1,))
            if key == "n_head":
                self.config["hidden_size" if self.family == "bloom" else "n_embd"] = value * 8
            self.config[key] = value
            if key in ("num_key_value_heads", "head_dim"):
                self.config["hidden_size"] = self.config["num_attention_heads"] * 8
            self.removed.append(key)
            self.names.append(f"without {key}")

    def be_odd(self, number, seed):
        """Makes one of the changes: first the family's own, then the others, which have another order in each family."""
        own, common = self.odd()
        changes = own + random.Random(f"odd {seed} {self.family}").sample(common, len(common))
        name, change = changes[number % len(changes)]
        self.names.append(name)
        before = dict(self.config)
        change() if callable(change) else self.config.update(change)
        self.removed = [key for key in self.removed if self.config[key] == before[key]]

    def acts(self, key, *known):
        return [(f"{key} {act}", {key: act}) for act in ACTS if act not in known]

    def odd(self):
        """Settings that few published models have: the family's own, and others."""
        c, add = self.config, self.added.update
        if self.family == "gpt2":
            return [("unscaled", {"scale_attn_weights": False}), ("cross attention", {"add_cross_attention": True}),
                    ("by layer", {"scale_attn_by_inverse_layer_idx": True}), ("n_ctx", lambda: add(n_ctx=POSITIONS)),
                    ("window", lambda: add(sliding_window=4))], self.acts("activation_function", "gelu_new")  # fmt: skip
        if self.family == "opt":
            return [("norm after", {"do_layer_norm_before": False}), ("no biases", {"enable_bias": False}),
                    ("plain norms", {"layer_norm_elementwise_affine": False}), ("embedding width", {"word_embed_proj_dim": c["hidden_size"] // 2}),
                    ("no last norm", {"_remove_final_layer_norm": True})], self.acts("activation_function", "relu")  # fmt: skip
        if self.family == "bloom":
            return [("residual", {"apply_residual_connection_post_layernorm": True}), ("n_inner", lambda: add(n_inner=50)),
                    ("exact", {"slow_but_exact": True, "pretraining_tp": 2}), ("exact alone", {"slow_but_exact": True, "pretraining_tp": 1}),
                    ("two widths", lambda: add(n_embed=c["hidden_size"], hidden_size=2 * c["hidden_size"]))], []  # fmt: skip
        return self.odd_llama()

    def odd_llama(self):
        c, rng, add = self.config, self.rng, self.added.update
        act, other = ("hidden_activation", "hidden_act") if self.family in GEMMAS else ("hidden_act", "hidden_activation")
        known = "gelu_pytorch_tanh" if self.family in GEMMAS else "silu"
        kinds = ("dynamic", "longrope", "proportional", "yarn", "yarn without factor")
        own, found = [], [(f"rope {kind}", lambda kind=kind: self.rope(kind)) for kind in kinds]
        found += [*rng.sample(self.acts(act, known, "swish"), 2), ("act under the other key", lambda: add({other: "relu"})),
                  ("rotary share", lambda: self.whole_rope().update(partial_rotary_factor=rng.choice((0.5, 0.7, 0.3)))),
                  ("pretraining_tp", {"pretraining_tp": 2}), ("mlp_bias", {"mlp_bias": True}), ("attention_bias", {"attention_bias": True}),
                  ("original positions outside", {"original_max_position_embeddings": 24}), ("head_dim", {"head_dim": self.head_dim + 4}),
                  ("soft caps", {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}), ("no window", {"sliding_window": None}),
                  ("window", {"use_sliding_window": True, "sliding_window": 5}), ("pattern", lambda: add(sliding_window_pattern=3)),
                  *((f"{kind} layers", {"layer_types": [f"{kind}_attention"] * self.layers}) for kind in ("sliding", "full")),
                  ("both ropes", lambda: add({"rope_theta": 300.0, "rope_scaling": {"rope_type": "linear", "factor": 3.0}})),
                  ("theta twice", lambda: add(rope_theta=300.0)), ("theta", lambda: self.whole_rope().update(rope_theta=rng.choice((1, 2, 10**7)))),
                  ("eps", {"rms_norm_eps": 0.5})]  # fmt: skip
        if self.family in GEMMAS:
            two = {"hidden_act": "gelu_pytorch_tanh"}
            own += [("both ways", {"use_bidirectional_attention": True}),
                    ("two acts", lambda: (c.update(hidden_activation="relu"), add(two))), ("another act", {"hidden_activation": "gelu"})]  # fmt: skip
        if self.family == "gemma3_text":
            own += [("flat rope", {"rope_parameters": {"rope_theta": 300.0, "rope_type": "linear", "factor": 3.0}}),
                    ("one rope", {"rope_parameters": {"sliding_attention": {"rope_theta": 300.0, "rope_type": "default"}}})]  # fmt: skip
        if self.family == "smollm3":
            own += [("interval", {"no_rope_layer_interval": 1}), ("short list", {"no_rope_layers": [1]})]
        return own, found

    def respell(self, rope_too):
        c, rng = self.config, self.rng
        if self.likely(0.3):
            self.removed, self.added = [*self.removed, "dtype"], self.added | {"torch_dtype": "float32"}
        for new, old in OLD_NAMES.get(self.family, {}).items():
            if self.likely(0.3) and new not in self.removed and new not in self.added:
                self.removed, self.added = [*self.removed, new], self.added | {old: c[new]}
        if self.family in GEMMAS and "layer_types" not in c and self.likely(0.5):
            self.removed.append("layer_types")
        rope = c.get("rope_parameters")
        is_new = self.family == "gemma3_text" and rope and ("full_attention" not in rope or rope["sliding_attention"]["rope_type"] != "default")
        if rope and rope_too and not is_new and "rope_parameters" not in self.removed and "rope_theta" not in self.added and self.likely(0.5):
            self.old_rope(dict(self.whole_rope()))

    def old_rope(self, whole):
        self.names.append("old rope")
        inside = self.kind != "default" and self.likely(0.2)  # keys that usually are beside the scaling
        old = {} if inside else {key: whole.pop(key) for key in ("rope_theta", "partial_rotary_factor") if key in whole}
        if self.family == "gemma3_text":
            old["rope_local_base_freq"] = self.config["rope_parameters"]["sliding_attention"]["rope_theta"]
        if self.likely(0.5):
            whole["type"] = whole.pop("rope_type")
        old["rope_scaling"] = None if whole.get("type", whole.get("rope_type")) == "default" else whole
        self.removed, self.added = [*self.removed, "rope_parameters"], self.added | old

    def shown(self):
        files = [self.dtype, self.tensors, *[name for name in ("shards", "bare") if getattr(self, name)]]
        return {"names": self.names, "config": self.config, "removed": self.removed, "added": self.added, "files": files}


class Unusable(Exception):
    """transformers or PEFT does not run what was drawn."""


def randomize(model, family, seed):
    """Weights with which each part of a model shows in its results."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            module = name.rsplit(".", 2)[-2]
            if "norm" in module or module.startswith("ln_"):
                parameter.copy_(0.2 * noise + (1 if name.endswith(".weight") and family not in GEMMAS else 0))
            else:
                is_table = "embed" in name or module in ("wte", "wpe")
                parameter.copy_(noise * (0.2 if name.endswith(".bias") else 0.3 if is_table else 0.15))
    return model


def from_folder(folder, dtype=torch.float32):
    """transformers' model of a folder, if it finds every weight there."""
    auto = transformers.AutoModelForCausalLM
    model, report = auto.from_pretrained(folder, dtype=dtype, attn_implementation="eager", output_loading_info=True)
    if report["missing_keys"] or report["mismatched_keys"]:
        raise Unusable("weights")
    return model.eval()


def write_model(draw, folder, seed):
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**json.loads(json.dumps(draw.config))))
    randomize(model, draw.family, seed).to(getattr(torch, draw.dtype))
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    (model.base_model if draw.bare and tied else model).save_pretrained(folder, max_shard_size="20KB" if draw.shards else "1GB")
    whole = folder / "model.safetensors"
    if draw.tensors and whole.exists() and not draw.bare:
        tensors = load_file(whole)
        if tied and draw.tensors.endswith("head"):
            head = model.get_input_embeddings().weight.detach().clone()
            tensors["lm_head.weight"] = head if draw.tensors == "equal head" else torch.flip(head, (0,)).contiguous()
        if draw.tensors == "buffers" and draw.family in ("gpt2", "llama"):
            name = "transformer.h.0.attn.bias" if draw.family == "gpt2" else "model.layers.0.self_attn.rotary_emb.inv_freq"
            tensors[name] = torch.ones(1, 1, 8, 8) if draw.family == "gpt2" else torch.ones(4)
        save_file(tensors, whole, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config = {key: value for key, value in config.items() if key not in draw.removed} | draw.added
    (folder / "config.json").write_text(json.dumps(config, indent=1))


def draw_sequences(vocab, rng, positions):
    """Random ids, and a token for each prefix of them, which is not the one that follows."""
    return [([rng.randrange(3, vocab) for _ in range(positions)], [rng.randrange(vocab) for _ in range(positions)]) for _ in range(SEQUENCES)]


def pairs_of(sequences):
    return [[ids[: i + 1], token] for ids, tokens in sequences for i, token in enumerate(tokens)]


def logprobs(model, sequences, **more):
    """The log-probabilities of the tokens. A RoPE that depends on the length of the sequence, which strata does not have,
    would need a forward for each pair."""
    found = []
    for ids, tokens in sequences:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids]), **more).logits[0, -len(ids) :]
        table = logits.double().log_softmax(-1)
        found += [table[i, token].item() for i, token in enumerate(tokens)]
    if not all(value == value and abs(value) < 1e4 for value in found):
        raise Unusable("not finite")
    return found


def most_apart(some, others):
    return max(abs(a - b) for a, b in zip(some, others, strict=True))


def draw_model(name, family, at, odd=None):
    for tried in range(TRIES):
        rng = random.Random(f"model {name} {tried}")
        shutil.rmtree(at, ignore_errors=True)
        at.mkdir(parents=True)
        names = []
        try:
            draw = Draw(family, rng, odd + tried if odd is not None and odd >= 0 else odd, name.split()[0])
            names = draw.names
            write_model(draw, at / "model", rng.randrange(10**6))
            model = from_folder(at / "model")
            sequences = draw_sequences(draw.config["vocab_size"], rng, POSITIONS - 4)
            found = logprobs(model, sequences)
            rounding = most_apart(found, logprobs(from_folder(at / "model", torch.float64), sequences))
        except Exception as error:  # transformers raises errors of any type
            tell(f"model {name}, try {tried}: {family} {names}", error)
            continue
        answer = {"kind": family, "drawn": draw.shown(), "tries": tried, "model": str(at / "model"), "pairs": pairs_of(sequences), "want": found,
                  "rounding": rounding}  # fmt: skip
        return draw, model, answer
    raise Unusable(f"model {name}")


def tell(what, error):
    print(f"{what}: {type(error).__name__}: {error}"[:300].replace("\n", " "), file=sys.stderr, flush=True)


# LoRA by turns; {} takes what the draw of rank, alpha and modules gives.
LORA = [{}, {}, {"use_rslora": True}, {"use_dora": True}, {"target_modules": "all-linear"}, {"target_modules": None}, {"r": 40},
        {"target_modules": "all-linear", "use_dora": True, "use_rslora": True}, {"use_dora": True, "patterns": "names"}, {"half": True},
        {"use_dora": True, "half": True}, {"patterns": "names"}, {"patterns": "whole"}, {"patterns": "regex"}, {"patterns": "overlap"},
        {"patterns": "absent"}, {"layers_to_transform": True}, {"layers_to_transform": True, "layers_pattern": True}, {"lora_alpha": 0},
        {"target_modules": "regex"}, {"target_modules": "whole"}, {"target_modules": "some absent"}, {"target_modules": "head"},
        {"target_modules": "embedding"}, {"modules_to_save": "lm_head"}, {"modules_to_save": "embed"}, {"modules_to_save": "norm"},
        {"modules_to_save": "nothing"}, {"bias": "all"}, {"bias": "lora_only"}, {"lora_bias": True}, {"init_lora_weights": False},
        *({"init_lora_weights": start} for start in ("gaussian", "orthogonal", "eva", "olora", "pissa", "pissa_niter_4")),
        *({"init_lora_weights": start, "converted": True} for start in ("pissa", "olora")), {"trainable_token_indices": [3, 7]},
        {"exclude_modules": True}, {"target_parameters": True}, {"alora_invocation_tokens": [5, 6]}, {"layer_replication": True},
        {"ensure_weight_tying": True}, {"bin": True}]  # fmt: skip
VIRTUAL = ["PROMPT_TUNING", "PROMPT_TUNING", "P_TUNING", "P_TUNING", "PREFIX_TUNING", "PREFIX_TUNING", "PREFIX_TUNING"]
ADAPTERS = 80


def linears(model):
    head = model.get_output_embeddings()
    return [name for name, module in model.named_modules() if type(module).__name__ in ("Linear", "Conv1D") and module is not head]


def table_of(model):
    return next(name for name, module in model.named_modules() if module is model.get_input_embeddings())


def last_norm(model):
    return [name for name, module in model.named_modules() if "Norm" in type(module).__name__][-1]


def lora_settings(base, rng, family, variant):
    """Keyword arguments of LoraConfig."""
    names = linears(base)
    kinds = sorted({name.rsplit(".", 1)[1] for name in names})
    chosen = rng.sample(kinds, rng.randint(1, len(kinds)))
    settings = {"r": rng.choice((1, 2, 4, 5, 6, 8)), "lora_alpha": rng.choice((1, 4, 8, 16, 3)), "lora_dropout": rng.choice((0.0, 0.1))}
    settings |= {"target_modules": chosen} | {key: value for key, value in variant.items() if key not in ("patterns", "converted", "half", "bin")}
    one = next(name for name in names if name.endswith(chosen[0]))
    if patterns := variant.get("patterns"):
        name = {"names": chosen[0], "whole": "^" + one.replace(".", "\\."), "regex": rf".*\.0\..*{chosen[0]}", "overlap": one.split(".", 2)[2],
                "absent": "no_such"}[patterns]  # fmt: skip
        settings |= {"rank_pattern": {name: 3} | ({chosen[0]: 2} if patterns == "overlap" else {}), "alpha_pattern": {name: 24.0}}
    targets = {"regex": rf".*\.{chosen[0]}", "whole": [one, *chosen[1:]], "some absent": [*chosen, "no_such_proj"], "head": [*chosen, "lm_head"],
               "embedding": [*chosen, table_of(base).rsplit(".", 1)[1]]}  # fmt: skip
    settings["target_modules"] = targets.get(variant.get("target_modules"), settings["target_modules"])
    if "modules_to_save" in settings:
        kept = {"lm_head": ["lm_head"], "embed": [table_of(base)], "norm": [last_norm(base)], "nothing": []}
        settings["modules_to_save"] = kept[settings["modules_to_save"]]
    if "layers_to_transform" in settings:
        settings["layers_to_transform"] = rng.choice(([0], 0, list(range(base.config.num_hidden_layers))))
    if "layers_pattern" in settings:
        settings["layers_pattern"] = rng.choice(("h", ["h"]) if family in ("gpt2", "bloom") else ("layers", ["layers"]))
    if "exclude_modules" in settings:
        settings |= {"target_modules": kinds, "exclude_modules": [chosen[0]]}
    if "target_parameters" in settings:
        settings |= {"target_parameters": [chosen[0] + ".weight"], "target_modules": [kinds[-1] if kinds[-1] != chosen[0] else kinds[0]]}
    if "layer_replication" in settings:
        settings["layer_replication"] = [[0, 1], [0, 1]]
    return settings


def others():
    """The types of PEFT besides LoRA and those with virtual tokens."""
    return [kind.value for kind in peft.PeftType if kind.value not in ("LORA", "XLORA", *VIRTUAL)]


def other_settings(kind, base, rng):
    """A configuration of another type, with as little as it takes."""
    of = peft.mapping.PEFT_TYPE_TO_CONFIG_MAPPING[peft.PeftType(kind)]
    fields = {field.name for field in dataclasses.fields(of)}
    kinds = sorted({name.rsplit(".", 1)[1] for name in linears(base)})
    own = {"IA3": {"target_modules": kinds[:2], "feedforward_modules": kinds[:1]}, "LN_TUNING": {"target_modules": [last_norm(base)]},
           "TRAINABLE_TOKENS": {"token_indices": [3, 5], "target_modules": [table_of(base).rsplit(".", 1)[1]]}, "OFT": {"r": 0},
           "ADAPTION_PROMPT": {"adapter_len": 4, "adapter_layers": 1, "target_modules": None},
           "P_TUNING": {"encoder_reparameterization_type": rng.choice(("MLP", "LSTM"))},
           "PREFIX_TUNING": {"prefix_projection": rng.random() < 0.4}}.get(kind, {})  # fmt: skip
    small = {"num_virtual_tokens": rng.randint(1, 4), "num_tasks": 2, "total_step": 10, "init_r": 4, "target_r": 2, "boft_block_size": 2, "topk": 2,
             "vector_length": 2, "n_frequency": 8, "block_size": 4, "rank": 4, "num_vectors": 8, "encoder_hidden_size": rng.randint(8, 24),
             "cpt_token_ids": [3, 4], "cpt_mask": [1, 1], "cpt_tokens_type_mask": [1, 1], "r": 4, "group_size": 4, "oft_block_size": 4,
             "target_modules": kinds[:1]}  # fmt: skip
    return of(task_type="CAUSAL_LM", **{key: value for key, value in (small | own).items() if key in fields and value is not None})


def write_adapter(kind, variant, base, family, at, rng, seed):
    """Writes the adapter with random values, and returns its settings as they were given."""
    settings = lora_settings(base, rng, family, variant) if kind == "LORA" else {}
    config = peft.LoraConfig(task_type="CAUSAL_LM", **settings) if kind == "LORA" else other_settings(kind, base, rng)
    model = peft.get_peft_model(base, config).eval()
    if variant.get("converted"):
        start, config.init_lora_weights = config.init_lora_weights, True
        model.save_pretrained(at / "start")
        config.init_lora_weights = start
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and "lora_A" not in name:
                parameter.add_((0.02 if "magnitude" in name else 0.1) * torch.randn(parameter.shape, generator=generator))
    if variant.get("half"):
        model.to(torch.bfloat16)
    more = {"path_initial_model_for_weight_conversion": str(at / "start")} if variant.get("converted") else {}
    model.save_pretrained(at / "adapter", **more, safe_serialization=not variant.get("bin"))
    return settings or config.to_dict()


def in_float64(at, sequences):
    model = peft.PeftModel.from_pretrained(from_folder(at / "base/model", torch.float64), at / "adapter", autocast_adapter_dtype=False)
    return logprobs(model.eval().double(), sequences)


def draw_adapter(case, seed, at):
    mixed = random.Random(f"kinds {seed}").sample(others(), len(others()))
    kinds = VIRTUAL + mixed
    kind, variant = ("LORA", LORA[case]) if case < len(LORA) else (kinds[case - len(LORA)], {})
    for tried in range(TRIES):
        rng = random.Random(f"adapter {seed} {case} {tried}")
        if kind in mixed and tried >= TRIES // 2:  # PEFT does not run it, whatever the model
            kind = rng.choice(kinds[ADAPTERS - len(LORA) :])
        try:
            draw, model, answer = draw_model(f"of adapter {rng.random()}", FAMILIES[(5 * case + seed + tried) % len(FAMILIES)], at / "base")
            settings = write_adapter(kind, variant, from_folder(at / "base/model"), draw.family, at, rng, case)
            sequences = draw_sequences(draw.config["vocab_size"], rng, POSITIONS - 8)
            plain, more = logprobs(model, sequences), {"task_ids": torch.tensor([0])} if kind in ("POLY", "MULTITASK_PROMPT_TUNING") else {}
            found = logprobs(peft.PeftModel.from_pretrained(model, at / "adapter").eval(), sequences, **more)
            is_plain = kind in ("LORA", *VIRTUAL) and (variant.get("converted") or not isinstance(variant.get("init_lora_weights"), str))
            rounding = most_apart(found, in_float64(at, sequences)) if is_plain else 0  # PEFT has not all in float64
        except Exception as error:  # PEFT raises errors of any type
            tell(f"adapter {case}, try {tried}: {kind} {variant}", error)
            shutil.rmtree(at, ignore_errors=True)
            continue
        drawn = {"variant": variant, "settings": json.loads(json.dumps(settings, default=str)), "base": draw.shown()}
        return answer | {"kind": kind, "drawn": drawn, "tries": tried + answer["tries"], "adapter": str(at / "adapter"), "want": found,
                         "pairs": pairs_of(sequences), "effect": most_apart(plain, found), "rounding": rounding}  # fmt: skip
    raise Unusable(f"adapter {case}")


def main():
    answers = os.fdopen(os.dup(1), "w")  # the output of a library is no answer
    os.dup2(2, 1)
    print(json.dumps({"transformers": transformers.__version__, "peft": peft.__version__, "adapters": ADAPTERS}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        case, at = request["case"], pathlib.Path(request["at"])
        try:
            if request["kind"] == "model":
                turn = case // len(FAMILIES)  # three of five have such a setting
                odd = turn * 3 // 5 if (turn + 1) * 3 // 5 > turn * 3 // 5 else -1
                answer = draw_model(f"{request['seed']} {case}", FAMILIES[case % len(FAMILIES)], at, odd)[2]
            else:
                answer = draw_adapter(case, request["seed"], at)
        except Exception as error:  # the claim says of which case
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(answer), file=answers, flush=True)


main()
