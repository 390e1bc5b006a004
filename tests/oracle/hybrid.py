"""Families some of whose layers have a state instead of keys and values of all tokens."""
import math

import torch
import torch.nn.functional as F

from base_families import Llama
from experts import GroupedMixture, Mixture
from layers import Weights, attention, rms_norm, split_heads, upcast_dtype


def causal_convolution(x, weight, rows):
    """Each channel [batch, seq, channels] of a token is a sum over it and the tokens before it in its document, one for each
    tap of the weight [channels, 1, taps], the last of which is the token's own."""
    taps = weight.shape[-1]
    y = torch.zeros_like(x)
    at = torch.arange(x.shape[1])
    for back in range(taps):
        moved = F.pad(x, (0, 0, back, 0))[:, : x.shape[1]]
        inside = (rows.positions >= back) & (at[None] >= back)
        y = y + moved * inside[..., None].to(x.dtype) * weight[:, 0, taps - 1 - back]
    return y


def gated_delta_rule(q, k, v, decay, beta, rows):
    """Yang et al. 2025, token by token: of its state, which decays by exp(decay), a head forgets what it had stored under the key and
    stores the value there, both by the strength beta. Queries and keys [batch, seq, heads, n], values [batch, seq, heads, m], decay and beta
    [batch, seq, heads]."""
    high = upcast_dtype(q.dtype)
    q, k, v, decay, beta = (x.to(high) for x in (q, k, v, decay, beta))
    q, k = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (q, k))
    q = q * q.shape[-1] ** -0.5
    batch, seq, heads, n = k.shape
    state, out = torch.zeros(batch, heads, n, v.shape[-1], dtype=high), []
    for t in range(seq):
        older = (rows.positions[:, t] > 0).to(high)[:, None, None, None]
        state = state * older * decay[:, t].exp()[..., None, None]
        stored = torch.einsum("bhnm,bhn->bhm", state, k[:, t])
        state = state + torch.einsum("bhn,bhm->bhnm", k[:, t], (v[:, t] - stored) * beta[:, t, :, None])
        out.append(torch.einsum("bhnm,bhn->bhm", state, q[:, t]))
    return torch.stack(out, 1)


class Qwen35(Llama):
    """Qwen team 2026, after Yang et al. 2025: three of four layers are gated delta nets, and the result of attention has a gate, which comes
    with the queries of each head."""

    head_norms, norm_offset, rotary_part = True, 1.0, 0.25

    def __init__(self, config):
        super().__init__({k: v for k, v in config.items() if k not in ("mlp_bias", "layer_types")})
        every = config.get("full_attention_interval", 4)
        default = ["linear_attention" if (n + 1) % every else "full_attention" for n in range(self.layers)]
        self.types = config.get("layer_types") or default
        self.key_heads, self.value_heads = config.get("linear_num_key_heads", 16), config.get("linear_num_value_heads", 32)
        self.key_dim, self.value_dim = config.get("linear_key_head_dim", 128), config.get("linear_value_head_dim", 128)
        self.taps = config.get("linear_conv_kernel_dim", 4)

    def default_head_dim(self):
        return 256

    def qkv_sizes(self, q, kv):
        return ("q_proj", 2 * q), ("k_proj", kv), ("v_proj", kv)

    def shapes(self):
        h, keys, values = self.hidden, self.key_heads * self.key_dim, self.value_heads * self.value_dim
        shapes = super().shapes()
        for n, kind in enumerate(self.types):
            if kind != "linear_attention":
                continue
            shapes = {name: shape for name, shape in shapes.items() if not name.startswith(f"layers.{n}.self_attn.")}
            at, width = f"layers.{n}.linear_attn.", 2 * keys + values
            shapes |= {at + "in_proj_qkv.weight": (width, h), at + "in_proj_z.weight": (values, h)}
            shapes |= {at + "in_proj_b.weight": (self.value_heads, h), at + "in_proj_a.weight": (self.value_heads, h)}
            shapes |= {at + "conv1d.weight": (width, 1, self.taps), at + "A_log": (self.value_heads,), at + "dt_bias": (self.value_heads,)}
            shapes |= {at + "norm.weight": (self.value_dim,), at + "out_proj.weight": (h, values)}
        return shapes

    def attention(self, w, at, layer, y, rows):
        if self.types[layer] == "linear_attention":
            return self.delta(w, at.replace("self_attn", "linear_attn"), y, rows)
        q, k, v = self.project(w, at, y)
        q, gate = q.view(*y.shape[:2], self.heads, 2 * self.head_dim).chunk(2, -1)
        q, k, v = q.transpose(1, 2), split_heads(k, self.kv_heads), split_heads(v, self.kv_heads)
        q, k = self.norm(q, w[at + "q_norm.weight"]), self.norm(k, w[at + "k_norm.weight"])
        q, k = self.rotated(w, at, q, k, self.rope, rows)
        mixed = attention(q, k, v, rows) * torch.sigmoid(gate.flatten(-2))
        return w.linear(mixed, at + "o_proj", self.out_bias)

    def delta(self, w, at, x, rows):
        batch, seq, _ = x.shape
        keys, values = self.key_heads * self.key_dim, self.value_heads * self.value_dim
        mixed = F.silu(causal_convolution(w.linear(x, at + "in_proj_qkv", False), w[at + "conv1d.weight"], rows))
        q, k, v = mixed.split((keys, keys, values), -1)
        group = self.value_heads // self.key_heads
        q, k = (part.view(batch, seq, self.key_heads, self.key_dim).repeat_interleave(group, 2) for part in (q, k))
        high = upcast_dtype(x.dtype)
        step = F.softplus(w.linear(x, at + "in_proj_a", False).to(high) + w[at + "dt_bias"])
        beta = torch.sigmoid(w.linear(x, at + "in_proj_b", False))
        v = v.view(batch, seq, self.value_heads, self.value_dim)
        y = gated_delta_rule(q, k, v, -w[at + "A_log"].to(high).exp() * step, beta, rows).to(x.dtype)
        z = w.linear(x, at + "in_proj_z", False).view(*y.shape)
        y = rms_norm(y, w[at + "norm.weight"], self.eps)
        y = (y.to(high) * F.silu(z.to(high))).to(x.dtype)
        return w.linear(y.flatten(-2), at + "out_proj", False)


class Qwen35Moe(Mixture, Qwen35):
    """The same with experts, and an MLP beside them, in all layers."""

    renormalize = True

    def __init__(self, config):
        super().__init__({"intermediate_size": config["moe_intermediate_size"]} | config)


class Qwen3Next(Mixture, Qwen35):
    """Qwen team 2025: the parts of a gated delta net come from two matrices, whose rows are ordered by key head."""

    def __init__(self, config):
        super().__init__({"norm_topk_prob": True} | config)

    def joined(self):
        """Names of the two and their rows for a key head."""
        group = self.value_heads // self.key_heads
        wide = group * self.value_dim
        return (("in_proj_qkvz", (self.key_dim, self.key_dim, wide, wide)), ("in_proj_ba", (group, group)))

    def shapes(self):
        shapes = super().shapes()
        for n, kind in enumerate(self.types):
            if kind == "linear_attention":
                at = f"layers.{n}.linear_attn."
                for name in ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"):
                    del shapes[f"{at}{name}.weight"]
                shapes |= {f"{at}{name}.weight": (self.key_heads * sum(rows), self.hidden) for name, rows in self.joined()}
        return shapes

    def delta(self, w, at, x, rows):
        parts = []
        for name, sizes in self.joined():
            of_heads = w[f"{at}{name}.weight"].view(self.key_heads, sum(sizes), self.hidden)
            parts += [part.reshape(-1, self.hidden) for part in of_heads.split(sizes, 1)]
        q, k, v, z, b, a = parts
        apart = {"in_proj_qkv": torch.cat((q, k, v)), "in_proj_z": z, "in_proj_b": b, "in_proj_a": a}
        found = Weights(w.tensors | {f"{w.prefix}{at}{name}.weight": part for name, part in apart.items()}, w.prefix)
        return super().delta(found, at, x, rows)


class Lfm2(Llama):
    """Liquid AI 2025: most layers are a short convolution between two gates that depend on the token."""

    head_norms, tied_by_default, eps_by_default = True, True, 1e-5
    pre_norms = ("operator_norm", "ffn_norm")

    def __init__(self, config):
        inner = config.get("block_ff_dim") or config["intermediate_size"]
        if config.get("block_auto_adjust_ff_dim", True):
            factor, multiple = config.get("block_ffn_dim_multiplier", 1.0), config.get("block_multiple_of", 256)
            inner = int(2 * inner / 3)
            inner = inner if factor is None else -(-int(factor * inner) // multiple) * multiple
        more = {"intermediate_size": inner, "rms_norm_eps": config.get("norm_eps", 1e-5), "tie_word_embeddings": config.get("tie_embedding", config.get("tie_word_embeddings", True))}
        super().__init__({"rope_theta": 1e6} | {k: v for k, v in config.items() if k not in ("mlp_bias", "attention_bias", "layer_types")} | more)
        full = config.get("full_attn_idxs")
        default = ["full_attention" if full is None or n in full else "conv" for n in range(self.layers)]
        self.types = config.get("layer_types") or default
        self.taps, self.conv_bias = config.get("conv_L_cache", 3), config.get("conv_bias", False)

    RENAMED = {"self_attn.q_norm": "self_attn.q_layernorm", "self_attn.k_norm": "self_attn.k_layernorm", "self_attn.o_proj": "self_attn.out_proj",
               "mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2"}  # fmt: skip

    def named(self, name):
        for ours, theirs in self.RENAMED.items():
            name = name.replace(f".{ours}.", f".{theirs}.")
        return "embedding_norm.weight" if name == "norm.weight" else name

    def shapes(self):
        shapes = {self.named(name): shape for name, shape in super().shapes().items()}
        for n, kind in enumerate(self.types):
            if kind != "conv":
                continue
            shapes = {name: shape for name, shape in shapes.items() if not name.startswith(f"layers.{n}.self_attn.")}
            at, h = f"layers.{n}.conv.", self.hidden
            shapes |= {at + "in_proj.weight": (3 * h, h), at + "conv.weight": (h, 1, self.taps), at + "out_proj.weight": (h, h)}
            if self.conv_bias:
                shapes |= {at + "in_proj.bias": (3 * h,), at + "conv.bias": (h,), at + "out_proj.bias": (h,)}
        return shapes

    def hidden_states(self, w, tokens, rows):
        class Named(Weights):
            def __getitem__(this, name):
                return super().__getitem__(self.named(name))

        return super().hidden_states(Named(w.tensors, w.prefix), tokens, rows)

    def attention(self, w, at, layer, y, rows):
        if self.types[layer] != "conv":
            return super().attention(w, at, layer, y, rows)
        at = at.replace("self_attn", "conv")
        before, after, x = w.linear(y, at + "in_proj", self.conv_bias).chunk(3, -1)
        mixed = causal_convolution(before * x, w[at + "conv.weight"], rows)
        if self.conv_bias:
            mixed = mixed + w[at + "conv.bias"]
        return w.linear(after * mixed, at + "out_proj", self.conv_bias)


class Lfm2Moe(GroupedMixture, Lfm2):
    """Liquid AI 2025: LFM2 with mixtures whose router has sigmoid scores and a bias for the choice alone."""

    router, experts, parts = "feed_forward.gate", "feed_forward.experts.", ("w1", "w3", "w2")
    bias_of_choice, least_sum = "feed_forward.expert_bias", 1e-6

    def __init__(self, config):
        super().__init__(config | {"block_auto_adjust_ff_dim": False})

    def read_switches(self, config):
        grouped = {"n_routed_experts": config["num_experts"], "n_shared_experts": 0, "first_k_dense_replace": config.get("num_dense_layers", 2)}
        super().read_switches(config | grouped)
        if not config.get("use_expert_bias", True):
            self.bias_of_choice = None

    def shapes(self):
        dense = [f"layers.{n}.feed_forward.{part}.weight" for n in self.mixtures for part in self.parts]
        return {name: shape for name, shape in super().shapes().items() if name not in dense}


class DeepSeekV3(GroupedMixture, Llama):
    """DeepSeek-AI 2024: keys and values are made of a short row of each token, queries, too; a part of each query and key turns with
    its position, and all heads share that of a key."""

    usual_scale, usual_dense = 2.5, 3

    def __init__(self, config):
        self.plain, self.rotated = config.get("qk_nope_head_dim", 128), config.get("qk_rope_head_dim", 64)
        self.value = config.get("v_head_dim", 128)
        self.q_rank, self.kv_rank = config.get("q_lora_rank", 1536), config.get("kv_lora_rank", 512)
        usual = {"routed_scaling_factor": self.usual_scale, "first_k_dense_replace": self.usual_dense}
        super().__init__(usual | {k: v for k, v in config.items() if k != "mlp_bias"} | {"head_dim": self.rotated})
        self.rope.interleaved = config.get("rope_interleave", True)
        found = config.get("rope_scaling") or config.get("rope_parameters") or {}
        growth = found.get("mscale_all_dim") or 0
        self.growth = 1.0
        if growth and found.get("rope_type", "default") != "default" and found["factor"] > 1:
            self.growth = (0.1 * growth * math.log(found["factor"]) + 1.0) ** 2

    def shapes(self):
        h, shapes = self.hidden, {name: shape for name, shape in super().shapes().items() if ".self_attn." not in name}
        for n in range(self.layers):
            at, d = f"layers.{n}.self_attn.", self.plain + self.rotated
            if self.q_rank:
                shapes |= {at + "q_a_proj.weight": (self.q_rank, h), at + "q_a_layernorm.weight": (self.q_rank,)}
                shapes[at + "q_b_proj.weight"] = (self.heads * d, self.q_rank)
                if self.qkv_bias:
                    shapes[at + "q_a_proj.bias"] = (self.q_rank,)
            else:
                shapes[at + "q_proj.weight"] = (self.heads * d, h)
            shapes |= {at + "kv_a_proj_with_mqa.weight": (self.kv_rank + self.rotated, h), at + "kv_a_layernorm.weight": (self.kv_rank,)}
            shapes |= {at + "kv_b_proj.weight": (self.heads * (self.plain + self.value), self.kv_rank), at + "o_proj.weight": (h, self.heads * self.value)}
            if self.qkv_bias:
                shapes |= {at + "kv_a_proj_with_mqa.bias": (self.kv_rank + self.rotated,), at + "o_proj.bias": (h,)}
        return shapes

    def attention(self, w, at, layer, y, rows):
        def norm(x, name):  # whatever rms_norm_eps says
            return rms_norm(x, w[at + name], 1e-6)

        if self.q_rank:
            q = w.linear(norm(w.linear(y, at + "q_a_proj", self.qkv_bias), "q_a_layernorm.weight"), at + "q_b_proj", False)
        else:
            q = w.linear(y, at + "q_proj", False)
        short, turned = w.linear(y, at + "kv_a_proj_with_mqa", self.qkv_bias).split((self.kv_rank, self.rotated), -1)
        kv = split_heads(w.linear(norm(short, "kv_a_layernorm.weight"), at + "kv_b_proj", False), self.heads)
        k, v = kv.split((self.plain, self.value), -1)
        q, q_turned = split_heads(q, self.heads).split((self.plain, self.rotated), -1)
        q = torch.cat((q, self.rope.rotate(q_turned, rows.positions)), -1)
        k_turned = self.rope.rotate(turned[:, None], rows.positions).expand(-1, self.heads, -1, -1)
        mixed = attention(q, torch.cat((k, k_turned), -1), v, rows, scalar=(self.plain + self.rotated) / self.growth**2)
        return w.linear(mixed, at + "o_proj", self.out_bias)

    def without_effect(self, name):
        return None


class Glm4MoeLite(DeepSeekV3):
    """GLM team 2026."""

    eps_by_default, usual_scale, usual_dense = 1e-5, 1.8, 1

    def read_switches(self, config):
        super().read_switches(config)
        kinds = config.get("mlp_layer_types") or ["dense"] + ["sparse"] * (self.layers - 1)
        self.mixtures = [n for n, kind in enumerate(kinds) if kind == "sparse"]


class DeepSeekV2(DeepSeekV3):
    """DeepSeek-AI 2024: experts by their softmax, whose groups are chosen by their best one, and weights that are not renormalized."""

    usual_scale, usual_dense = 1.0, 0

    def read_switches(self, config):
        limited = config.get("topk_method", "greedy") == "group_limited_greedy"
        shared = {"n_shared_experts": 2} | config | {"norm_topk_prob": False}
        super().read_switches(shared | ({} if limited else {"n_group": 1, "topk_group": 1}))

    bias_of_choice = None

    def scores(self, w, layer, logits):
        scores = logits.softmax(-1)
        return scores, scores

    def score_of_group(self, grouped):
        return grouped.amax(-1)


class Indexed:
    """DeepSeek-AI 2025: an index of each layer selects keys for a query: all of them in the rows of the cases, so that it has no effect."""

    def index_shapes(self, config, text_type, text_class):
        kinds = config.get("mlp_layer_types")
        dense = {"first_k_dense_replace": kinds.index("sparse")} if kinds else {}
        usual = {"routed_scaling_factor": 2.5}
        self.text_family = text_class(usual | config | dense | {"model_type": text_type})
        self.index_dim, self.index_heads = config["index_head_dim"], config["index_n_heads"]
        self.with_index = [n for n, kind in enumerate(config.get("indexer_types") or ["full"] * self.layers) if kind == "full"]

    def shapes(self):
        shapes, inner = super().shapes(), self.index_dim * self.index_heads
        for n in self.with_index:
            at = f"layers.{n}.self_attn.indexer."
            shapes |= {at + "wq_b.weight": (inner, self.q_rank), at + "wk.weight": (self.index_dim, self.hidden)}
            shapes |= {at + "k_norm.weight": (self.index_dim,), at + "k_norm.bias": (self.index_dim,), at + "weights_proj.weight": (self.index_heads, self.hidden)}
        return shapes

    def is_trained(self, name):
        return ".indexer." not in name and super().is_trained(name)


class DeepSeekV32(Indexed, DeepSeekV3):
    def __init__(self, config):
        super().__init__(config)
        self.index_shapes(config, "deepseek_v3", DeepSeekV3)

    def read_switches(self, config):
        super().read_switches(config)
        kinds = config.get("mlp_layer_types")
        if kinds:
            self.mixtures = [n for n, kind in enumerate(kinds) if kind == "sparse"]


class GlmMoeDsa(Indexed, Glm4MoeLite):
    usual_scale = 2.5

    def __init__(self, config):
        dense = config.get("first_k_dense_replace", 3)
        layers = config["num_hidden_layers"]
        config = {"mlp_layer_types": ["dense"] * min(dense, layers) + ["sparse"] * (layers - dense)} | config
        super().__init__(config)
        self.index_shapes(config, "glm4_moe_lite", Glm4MoeLite)
