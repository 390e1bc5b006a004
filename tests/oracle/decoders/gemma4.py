"""Gemma 4 (Gemma team 2026), dense and with experts beside the dense MLP."""
import torch
import torch.nn.functional as F

from base_families import Llama
from experts import Mixture
from layers import Rope, Unsupported, attention, gelu_tanh, rms_norm, split_heads, upcast_dtype


class ProportionalRope(Rope):
    """Turns the first pairs of a head alone, with the frequencies that they have where all pairs turn."""

    def __init__(self, config, head_dim):
        super().__init__({"rope_theta": config["rope_theta"]}, head_dim)
        self.turned = int(config.get("partial_rotary_factor", 1.0) * head_dim // 2)
        self.factor = config.get("factor", 1.0)

    def frequencies(self):
        turns = torch.arange(self.width // 2) < self.turned
        return super().frequencies() / self.factor * turns


class Gemma4(Llama):
    """Layers that see all keys have other heads, whose values may be the keys' projection, and another RoPE; values are
    normalized, too, and a layer's result has a factor that is not trained."""

    tied_by_default, head_norms = True, True
    pre_norms = ("input_layernorm", "pre_feedforward_layernorm")
    post_norms = ("post_attention_layernorm", "post_feedforward_layernorm")

    def __init__(self, config):
        super().__init__({k: v for k, v in config.items() if k not in ("mlp_bias", "rope_parameters", "layer_types")})
        default = ["sliding_attention" if (n + 1) % 6 else "full_attention" for n in range(self.layers)]
        self.full = [kind == "full_attention" for kind in config.get("layer_types") or default]
        self.full[-1] = True
        self.one_projection = config.get("attention_k_eq_v", False)
        own = config.get("num_global_key_value_heads") if self.one_projection else None
        of_full = {"head_dim": config.get("global_head_dim", 512), "num_key_value_heads": own or self.kv_heads}
        for layer, given in (config.get("per_layer_config") or {}).items():
            of_full = {"head_dim": self.head_dim, "num_key_value_heads": self.kv_heads} | given
            assert self.full[int(layer)]
        self.full_dim, self.full_kv = of_full["head_dim"], of_full["num_key_value_heads"]
        usual = {"sliding_attention": {"rope_theta": 1e4}, "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6}}
        found = config.get("rope_parameters") or usual
        self.rope = Rope({"rope_parameters": found["sliding_attention"]}, self.head_dim)
        proportional = found["full_attention"].get("rope_type", "default") == "proportional"
        self.full_rope = (ProportionalRope if proportional else Rope)({"rope_parameters": found["full_attention"]} | found["full_attention"], self.full_dim)

    def default_head_dim(self):
        return 256

    def read_switches(self, config):
        for key, usual in (("hidden_size_per_layer_input", 256), ("num_kv_shared_layers", 0), ("use_double_wide_mlp", False)):
            if config.get(key, usual):
                raise Unsupported(f"{key} is {config.get(key, usual)}")
        if config.get("hidden_activation", "gelu_pytorch_tanh") != "gelu_pytorch_tanh" or config.get("use_bidirectional_attention"):
            raise Unsupported("another gate, or attention both ways")
        self.logit_cap = config.get("final_logit_softcapping")
        self.embedding_factor = self.hidden**0.5
        self.window = config.get("sliding_window", 512)

    def gate(self, x):
        return gelu_tanh(x)

    def is_trained(self, name):
        return not name.endswith(".layer_scalar")

    def heads_of(self, layer):
        """Elements of a head, and heads of keys."""
        return (self.full_dim, self.full_kv) if self.full[layer] else (self.head_dim, self.kv_heads)

    def has_values(self, layer):
        return not (self.full[layer] and self.one_projection)

    def shapes(self):
        shapes, h = super().shapes(), self.hidden
        for n in range(self.layers):
            at, (d, kv) = f"layers.{n}.self_attn.", self.heads_of(n)
            shapes = {name: shape for name, shape in shapes.items() if not name.startswith(at)}
            rows = {"q_proj": self.heads * d, "k_proj": kv * d} | ({"v_proj": kv * d} if self.has_values(n) else {})
            shapes |= {f"{at}{name}.weight": (size, h) for name, size in rows.items()}
            shapes |= {at + "o_proj.weight": (h, self.heads * d), at + "q_norm.weight": (d,), at + "k_norm.weight": (d,)}
            if self.qkv_bias:
                shapes |= {f"{at}{name}.bias": (size,) for name, size in (rows | {"o_proj": h}).items()}
            shapes[f"layers.{n}.layer_scalar"] = (1,)
        return shapes

    def attention(self, w, at, layer, y, rows):
        _, kv = self.heads_of(layer)
        q = split_heads(w.linear(y, at + "q_proj", self.qkv_bias), self.heads)
        k = split_heads(w.linear(y, at + "k_proj", self.qkv_bias), kv)
        v = split_heads(w.linear(y, at + "v_proj", self.qkv_bias), kv) if self.has_values(layer) else k
        q, k, v = self.norm(q, w[at + "q_norm.weight"]), self.norm(k, w[at + "k_norm.weight"]), rms_norm(v, 1, self.eps)
        q, k = self.rotated(w, at, q, k, self.full_rope if self.full[layer] else self.rope, rows)
        mixed = attention(q, k, v, rows, window=None if self.full[layer] else self.window, scalar=1.0)
        return w.linear(mixed, at + "o_proj", self.out_bias)

    def added_by_mlp(self, w, at, x):
        return self.mlp(w, at + "mlp.", self.norm(x, w[at + self.pre_norms[1] + ".weight"]))

    def hidden_states(self, w, tokens, rows):
        x = w["embed_tokens.weight"][tokens]
        x = x * torch.tensor(self.embedding_factor, dtype=x.dtype)
        for n in range(self.layers):
            at = f"layers.{n}."
            mixed = self.attention(w, at + "self_attn.", n, self.norm(x, w[at + self.pre_norms[0] + ".weight"]), rows)
            x = x + self.norm(mixed, w[at + self.post_norms[0] + ".weight"])
            x = x + self.norm(self.added_by_mlp(w, at, x), w[at + self.post_norms[1] + ".weight"])
            x = x * w[at + "layer_scalar"]
        return self.norm(x, w["norm.weight"])


class Gemma4Mixture(Mixture, Gemma4):
    """Every token is computed by the dense MLP and by some experts. Router, experts and both results have norms of their own,
    and the weights of an expert a factor."""

    renormalize = True

    def read_switches(self, config):
        super().read_switches(config | {"num_experts_per_tok": config["top_k_experts"]})

    def shapes(self):
        e, h, f = self.n_experts, self.hidden, self.expert_inner
        shapes = Gemma4.shapes(self)
        for n in range(self.layers):
            at = f"layers.{n}."
            shapes |= {at + "experts.gate_up_proj": (e, 2 * f, h), at + "experts.down_proj": (e, h, f)}
            shapes |= {at + "router.proj.weight": (e, h), at + "router.scale": (h,), at + "router.per_expert_scale": (e,)}
            norms = "post_feedforward_layernorm_1", "pre_feedforward_layernorm_2", "post_feedforward_layernorm_2"
            shapes |= {f"{at}{norm}.weight": (h,) for norm in norms}
        return shapes

    def per_expert(self, found):
        return found

    def mlp(self, w, at, x):
        return Llama.mlp(self, w, at, x)

    def expert_weights(self, w, layer, x):
        seen = rms_norm(x, 1, self.eps) * w[layer + "router.scale"] * self.hidden**-0.5
        logits = F.linear(seen, w[layer + "router.proj.weight"])
        logits_in_full = logits.to(upcast_dtype(logits.dtype))
        scores, experts = logits_in_full.softmax(-1), self.choose(logits_in_full)
        best = scores.gather(-1, experts)
        best = best / best.sum(-1, keepdim=True) * w[layer + "router.per_expert_scale"][experts]
        return torch.zeros_like(scores).scatter(-1, experts, best).to(logits.dtype)

    def added_by_mlp(self, w, at, x):
        dense = self.norm(super().added_by_mlp(w, at, x), w[at + "post_feedforward_layernorm_1.weight"])
        weights = self.expert_weights(w, at, x)
        seen, y = self.norm(x, w[at + "pre_feedforward_layernorm_2.weight"]), 0
        for e in range(self.n_experts):
            gate, up = F.linear(seen, w[at + "experts.gate_up_proj"][e]).chunk(2, -1)
            y = y + weights[..., e, None] * F.linear(self.gate(gate) * up, w[at + "experts.down_proj"][e])
        return dense + self.norm(y, w[at + "post_feedforward_layernorm_2.weight"])


def gemma4(config):
    return (Gemma4Mixture if config.get("enable_moe_block") else Gemma4)(config)
