"""What every family has, the families with LayerNorm, and those with RoPE whose layers see all keys."""
import math

import torch
import torch.nn.functional as F

from layers import Rope, Rows, Unsupported, Weights, attention, gelu_tanh, rms_norm, soft_cap, split_heads, upcast_dtype


class Family:
    """Base class. A family sets vocab, hidden, layers and tied, and defines shapes() and hidden_states()."""

    prefix, table, final_table = "model.", "embed_tokens.weight", "lm_head.weight"

    def __init__(self, config):
        self.model_type = config["model_type"]
        self.vocab = config["vocab_size"]
        self.tied = config.get("tie_word_embeddings", self.tied_by_default)

    def logits(self, tensors, tokens, doc_start=None):
        w = Weights(tensors, self.prefix)
        x = self.hidden_states(w, tokens, Rows(tokens, doc_start))
        return F.linear(x, w[self.table] if self.tied else tensors[self.final_table])

    def all_shapes(self):
        """{name: shape} of everything in the file, names with their prefix."""
        named = {self.prefix + name: shape for name, shape in self.shapes().items()}
        if not self.tied:
            named[self.final_table] = (self.vocab, self.hidden)
        return named

    def per_expert(self, found):
        """`found` under the names of files, where transformers' models stack tensors of experts."""
        return found

    def is_trained(self, name):
        return True

    router_aux, router_z = 0.0, 0.0  # see experts.py
    text_family = None  # what an export without parts that have no effect is of; None: this family

    def replay(self, choices):
        """From now on routers take these experts [routers, batch, seq, k]; None: their own. See routing.py."""
        assert choices is None, f"{self.model_type} has no routers"

    def choices(self):
        """The experts that the routers of the last call of logits() took; None without routers."""
        return None

    def without_effect(self, name):
        """Mask of the elements of this tensor that do not affect the result, or None. A bias of the keys adds
        the same to all scores of a query, which cancels in softmax, unless RoPE rotates it."""
        return None


class Gpt2(Family):
    """Radford et al. 2019. Linear layers are stored as [in, out]."""

    prefix, table, tied_by_default = "transformer.", "wte.weight", True

    def __init__(self, config):
        super().__init__(config)
        self.hidden, self.layers, self.heads = config["n_embd"], config["n_layer"], config["n_head"]
        self.inner = config.get("n_inner") or 4 * self.hidden
        self.positions = config["n_positions"]
        self.eps = config.get("layer_norm_epsilon", 1e-5)
        act = config.get("activation_function", "gelu_new")
        if act not in ("gelu_new", "gelu_pytorch_tanh"):
            raise Unsupported(f"activation_function {act}")
        if config.get("scale_attn_by_inverse_layer_idx") or not config.get("scale_attn_weights", True):
            raise Unsupported("another scale of the attention")

    def shapes(self):
        h, f = self.hidden, self.inner
        shapes = {"wte.weight": (self.vocab, h), "wpe.weight": (self.positions, h)}
        for n in range(self.layers):
            for norm in ("ln_1", "ln_2"):
                shapes |= {f"h.{n}.{norm}.weight": (h,), f"h.{n}.{norm}.bias": (h,)}
            for name, i, o in (("attn.c_attn", h, 3 * h), ("attn.c_proj", h, h), ("mlp.c_fc", h, f), ("mlp.c_proj", f, h)):
                shapes |= {f"h.{n}.{name}.weight": (i, o), f"h.{n}.{name}.bias": (o,)}
        return shapes | {"ln_f.weight": (h,), "ln_f.bias": (h,)}

    def hidden_states(self, w, tokens, rows):
        def conv(x, name):
            return x @ w[name + ".weight"] + w[name + ".bias"]

        x = w["wte.weight"][tokens] + w["wpe.weight"][rows.positions]
        for n in range(self.layers):
            q, k, v = conv(w.norm(x, f"h.{n}.ln_1", self.eps), f"h.{n}.attn.c_attn").chunk(3, -1)
            mixed = attention(*(split_heads(part, self.heads) for part in (q, k, v)), rows)
            x = x + conv(mixed, f"h.{n}.attn.c_proj")
            inner = gelu_tanh(conv(w.norm(x, f"h.{n}.ln_2", self.eps), f"h.{n}.mlp.c_fc"))
            x = x + conv(inner, f"h.{n}.mlp.c_proj")
        return w.norm(x, "ln_f", self.eps)

    def without_effect(self, name):
        if not name.endswith("attn.c_attn.bias"):
            return None
        return torch.arange(3 * self.hidden) // self.hidden == 1


class Opt(Family):
    """Zhang et al. 2022: GPT-2 with ReLU; position p is row p + 2 of the table."""

    prefix, table, tied_by_default = "model.decoder.", "embed_tokens.weight", True

    def __init__(self, config):
        super().__init__(config)
        self.hidden, self.layers = config["hidden_size"], config["num_hidden_layers"]
        self.heads, self.inner = config["num_attention_heads"], config["ffn_dim"]
        self.positions = config["max_position_embeddings"]
        act = config.get("activation_function", "relu")
        if act != "relu" or (config.get("word_embed_proj_dim") or self.hidden) != self.hidden:
            raise Unsupported(f"activation_function {act} or word_embed_proj_dim")
        if not config.get("do_layer_norm_before", True) or config.get("_remove_final_layer_norm"):
            raise Unsupported("norms after the blocks")
        if not config.get("enable_bias", True) or not config.get("layer_norm_elementwise_affine", True):
            raise Unsupported("OPT without biases")

    def shapes(self):
        h, f = self.hidden, self.inner
        shapes = {"embed_tokens.weight": (self.vocab, h), "embed_positions.weight": (self.positions + 2, h)}
        for n in range(self.layers):
            for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj"):
                shapes |= {f"layers.{n}.{name}.weight": (h, h), f"layers.{n}.{name}.bias": (h,)}
            shapes |= {f"layers.{n}.fc1.weight": (f, h), f"layers.{n}.fc1.bias": (f,)}
            shapes |= {f"layers.{n}.fc2.weight": (h, f), f"layers.{n}.fc2.bias": (h,)}
            for norm in ("self_attn_layer_norm", "final_layer_norm"):
                shapes |= {f"layers.{n}.{norm}.weight": (h,), f"layers.{n}.{norm}.bias": (h,)}
        return shapes | {"final_layer_norm.weight": (h,), "final_layer_norm.bias": (h,)}

    def hidden_states(self, w, tokens, rows):
        x = w["embed_tokens.weight"][tokens] + w["embed_positions.weight"][rows.positions + 2]
        for n in range(self.layers):
            at = f"layers.{n}."
            y = w.norm(x, at + "self_attn_layer_norm", 1e-5)
            q, k, v = (split_heads(w.linear(y, f"{at}self_attn.{name}_proj"), self.heads) for name in "qkv")
            x = x + w.linear(attention(q, k, v, rows), at + "self_attn.out_proj")
            inner = w.linear(w.norm(x, at + "final_layer_norm", 1e-5), at + "fc1").relu()
            x = x + w.linear(inner, at + "fc2")
        return w.norm(x, "final_layer_norm", 1e-5)

    def without_effect(self, name):
        return torch.ones(self.hidden, dtype=torch.bool) if name.endswith("k_proj.bias") else None


class Bloom(Family):
    """Le Scao et al. 2022: a norm after the embedding, ALiBi, and one matrix with q, k, v interleaved per
    head."""

    prefix, table, tied_by_default = "transformer.", "word_embeddings.weight", True

    def __init__(self, config):
        super().__init__(config)
        self.hidden = config.get("n_embed") or config["hidden_size"]
        self.layers = config.get("n_layer") or config["num_hidden_layers"]
        self.heads = config.get("n_head") or config["num_attention_heads"]
        self.eps = config.get("layer_norm_epsilon", 1e-5)
        if config.get("apply_residual_connection_post_layernorm"):
            raise Unsupported("residual connections after the norm")

    def shapes(self):
        h = self.hidden
        shapes = {"word_embeddings.weight": (self.vocab, h)}
        shapes |= {f"word_embeddings_layernorm.{part}": (h,) for part in ("weight", "bias")}
        for n in range(self.layers):
            for norm in ("input_layernorm", "post_attention_layernorm"):
                shapes |= {f"h.{n}.{norm}.weight": (h,), f"h.{n}.{norm}.bias": (h,)}
            for name, i, o in (
                ("self_attention.query_key_value", h, 3 * h),
                ("self_attention.dense", h, h),
                ("mlp.dense_h_to_4h", h, 4 * h),
                ("mlp.dense_4h_to_h", 4 * h, h),
            ):
                shapes |= {f"h.{n}.{name}.weight": (o, i), f"h.{n}.{name}.bias": (o,)}
        return shapes | {"ln_f.weight": (h,), "ln_f.bias": (h,)}

    def slopes(self):
        """Press et al. 2022: a geometric series; heads beyond a power of two use every second slope of the
        next series."""

        def series(n):
            return [2.0 ** (-8.0 * (i + 1) / n) for i in range(n)]

        whole = 2 ** int(math.log2(self.heads))
        return torch.tensor((series(whole) + series(2 * whole)[0::2])[: self.heads], dtype=torch.float64)

    def hidden_states(self, w, tokens, rows):
        x = w.norm(w["word_embeddings.weight"][tokens], "word_embeddings_layernorm", self.eps)
        at = torch.arange(tokens.shape[1])
        bias = (self.slopes()[:, None, None] * (at[None, :] - at[:, None])).to(upcast_dtype(x.dtype))  # [heads, t, s], <= 0
        for n in range(self.layers):
            y = w.linear(w.norm(x, f"h.{n}.input_layernorm", self.eps), f"h.{n}.self_attention.query_key_value")
            batch, seq, _ = y.shape
            parts = y.view(batch, seq, self.heads, 3, self.hidden // self.heads)
            q, k, v = (parts[:, :, :, i].transpose(1, 2) for i in range(3))
            x = x + w.linear(attention(q, k, v, rows, bias), f"h.{n}.self_attention.dense")
            y = w.norm(x, f"h.{n}.post_attention_layernorm", self.eps)
            inner = gelu_tanh(w.linear(y, f"h.{n}.mlp.dense_h_to_4h"))
            x = x + w.linear(inner, f"h.{n}.mlp.dense_4h_to_h")
        return w.norm(x, "ln_f", self.eps)

    def without_effect(self, name):
        if not name.endswith("query_key_value.bias"):
            return None
        return torch.arange(3 * self.hidden) // (self.hidden // self.heads) % 3 == 1


class Llama(Family):
    """Touvron et al. 2023, and the families derived from it: Qwen2 and Qwen3 (Yang et al. 2024, 2025), GLM-4
    (GLM team 2024), and the newer ones below."""

    tied_by_default = False
    eps_by_default = 1e-6
    qkv_bias_by_default, out_has_it_too = False, True
    head_norms = False  # RMSNorm of each query and key head before RoPE
    # Norms of the input and of the output of attention and MLP; None: no norm.
    pre_norms = ("input_layernorm", "post_attention_layernorm")
    post_norms = (None, None)
    norm_offset = 0.0  # added to the stored weight of a norm
    window, score_cap, logit_cap, scalar, embedding_factor = None, None, None, None, 1.0
    fused_gate = False  # gate and up in one matrix, gate first
    interleaved, rotary_part = False, 1.0

    def __init__(self, config):
        super().__init__(config)
        self.hidden, self.layers = config["hidden_size"], config["num_hidden_layers"]
        self.inner, self.heads = config["intermediate_size"], config["num_attention_heads"]
        self.kv_heads = config.get("num_key_value_heads") or self.heads
        self.head_dim = config.get("head_dim") or self.default_head_dim()
        self.eps = config.get("rms_norm_eps", self.eps_by_default)
        self.qkv_bias = config.get("attention_bias", self.qkv_bias_by_default)
        self.out_bias = self.qkv_bias and self.out_has_it_too
        self.mlp_bias = config.get("mlp_bias", False)
        self.rope = Rope(config, self.head_dim, self.interleaved, self.rotary_part)
        self.read_switches(config)

    def read_switches(self, config):
        """Sets the differences of families other than sizes: which layers have a sliding window, and their
        RoPE."""
        if config.get("hidden_act", "silu") != "silu":
            raise Unsupported(f"hidden_act {config['hidden_act']}")
        if config.get("use_sliding_window") or "sliding_attention" in (config.get("layer_types") or ()):
            raise Unsupported("sliding windows")

    def window_of(self, layer):
        return self.window

    def rope_of(self, layer):
        return self.rope

    def norm(self, x, weight):
        return rms_norm(x, weight + self.norm_offset if self.norm_offset else weight, self.eps)

    def default_head_dim(self):
        return self.hidden // self.heads

    def shapes(self):
        h, f, d = self.hidden, self.inner, self.head_dim
        shapes = {"embed_tokens.weight": (self.vocab, h)}
        for n in range(self.layers):
            norms = [norm for norm in (*self.pre_norms, *self.post_norms) if norm]
            shapes |= {f"layers.{n}.{norm}.weight": (h,) for norm in norms}
            q, kv = self.heads * d, self.kv_heads * d
            shapes |= {f"layers.{n}.self_attn.{norm}.weight": (size,) for norm, size in self.qk_norm_sizes(q, kv)}
            linears = [(f"self_attn.{name}", h, size, self.qkv_bias) for name, size in self.qkv_sizes(q, kv)]
            linears += [("self_attn.o_proj", q, h, self.out_bias)]
            if self.fused_gate:
                linears += [("mlp.gate_up_proj", h, 2 * f, False)]
            else:
                linears += [("mlp.gate_proj", h, f, self.mlp_bias), ("mlp.up_proj", h, f, self.mlp_bias)]
            linears += [("mlp.down_proj", f, h, self.mlp_bias and not self.fused_gate)]
            for name, i, o, bias in linears:
                shapes[f"layers.{n}.{name}.weight"] = (o, i)
                if bias:
                    shapes[f"layers.{n}.{name}.bias"] = (o,)
        return shapes | {"norm.weight": (h,)}

    def qkv_sizes(self, q, kv):
        return ("q_proj", q), ("k_proj", kv), ("v_proj", kv)

    def qk_norm_sizes(self, q, kv):
        return (("q_norm", self.head_dim), ("k_norm", self.head_dim)) if self.head_norms else ()

    def project(self, w, at, y):
        """q, k and v of all heads, concatenated."""
        return (w.linear(y, f"{at}{name}_proj", self.qkv_bias) for name in "qkv")

    def rotated(self, w, at, q, k, rope, rows):
        return (rope.rotate(q, rows.positions), rope.rotate(k, rows.positions)) if rope else (q, k)

    def attention(self, w, at, layer, y, rows):
        q, k, v = self.project(w, at, y)
        q, k, v = split_heads(q, self.heads), split_heads(k, self.kv_heads), split_heads(v, self.kv_heads)
        if self.head_norms:
            q, k = self.norm(q, w[at + "q_norm.weight"]), self.norm(k, w[at + "k_norm.weight"])
        q, k = self.rotated(w, at, q, k, self.rope_of(layer), rows)
        mixed = attention(q, k, v, rows, window=self.window_of(layer), cap=self.score_cap, scalar=self.scalar, sinks=self.sinks(w, at))
        return w.linear(mixed, at + "o_proj", self.out_bias)

    def sinks(self, w, at):
        return None

    def gate(self, x):
        return F.silu(x)

    def mlp(self, w, at, y):
        if self.fused_gate:
            gate, up = w.linear(y, at + "gate_up_proj", False).chunk(2, -1)
            return w.linear(self.gate(gate) * up, at + "down_proj", False)
        gate, up = (w.linear(y, f"{at}{name}_proj", self.mlp_bias) for name in ("gate", "up"))
        return w.linear(self.gate(gate) * up, at + "down_proj", self.mlp_bias)

    def hidden_states(self, w, tokens, rows):
        def norm(x, name):
            return self.norm(x, w[name + ".weight"]) if name else x

        x = w["embed_tokens.weight"][tokens]
        if self.embedding_factor != 1.0:
            x = x * torch.tensor(self.embedding_factor, dtype=x.dtype)
        for n in range(self.layers):
            at = f"layers.{n}."
            before, after = ([name and at + name for name in names] for names in (self.pre_norms, self.post_norms))
            x = x + norm(self.attention(w, at + "self_attn.", n, norm(x, before[0]), rows), after[0])
            x = x + norm(self.mlp(w, at + "mlp.", norm(x, before[1])), after[1])
        return norm(x, "norm")

    def logits(self, tensors, tokens, doc_start=None):
        return soft_cap(super().logits(tensors, tokens, doc_start), self.logit_cap)

    def without_effect(self, name):
        if not name.endswith("k_proj.bias") or self.rope.width == self.head_dim or self.head_norms:
            return None
        return torch.arange(self.kv_heads * self.head_dim) % self.head_dim >= self.rope.width


class Qwen2(Llama):
    qkv_bias_by_default, out_has_it_too = True, False

    def __init__(self, config):
        # These keys are LLaMA's; here they are ignored.
        super().__init__({k: v for k, v in config.items() if k not in ("attention_bias", "mlp_bias")})


class Qwen3(Llama):
    head_norms = True

    def default_head_dim(self):
        return 128

    def __init__(self, config):
        super().__init__({k: v for k, v in config.items() if k != "mlp_bias"})


class Glm(Llama):
    eps_by_default = 1.5625e-7
    qkv_bias_by_default, out_has_it_too = True, False
    fused_gate, interleaved, rotary_part = True, True, 0.5

    def default_head_dim(self):
        return 128


class Glm4(Glm):
    post_norms = ("post_self_attn_layernorm", "post_mlp_layernorm")


class Granite(Llama):
    """Granite team 2024: LLaMA with factors of embeddings, scores, residuals and logits, as in Yang et al. 2022."""

    def read_switches(self, config):
        super().read_switches(config)
        self.embedding_factor = config.get("embedding_multiplier", 1.0)
        self.residual_factor = config.get("residual_multiplier", 1.0)
        self.scalar = config.get("attention_multiplier", 1.0) ** -2
        self.logits_scaling = config.get("logits_scaling", 1.0)

    def attention(self, w, at, layer, y, rows):
        return super().attention(w, at, layer, y, rows) * self.residual_factor

    def mlp(self, w, at, y):
        return super().mlp(w, at, y) * self.residual_factor

    def logits(self, tensors, tokens, doc_start=None):
        return super().logits(tensors, tokens, doc_start) / self.logits_scaling
