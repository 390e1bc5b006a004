"""Families with layers of Mamba-2 (Dao and Gu 2024)."""
import torch
import torch.nn.functional as F

from base_families import Granite, Llama
from experts import GroupedMixture, Mixture
from hybrid import causal_convolution
from layers import upcast_dtype


def state_scan(x, b, c, step, decay, skip, rows):
    """Token by token: the state of a head decays by exp(decay), takes the value times its step along `b`, and is read along `c`.
    Values [batch, seq, heads, n], `b` and `c` [batch, seq, heads, m], step and decay [batch, seq, heads], skip [heads]."""
    high = upcast_dtype(x.dtype)
    x, b, c, step, decay, skip = (of.to(high) for of in (x, b, c, step, decay, skip))
    batch, seq, heads, n = x.shape
    state, out = torch.zeros(batch, heads, b.shape[-1], n, dtype=high), []
    for t in range(seq):
        older = (rows.positions[:, t] > 0).to(high)[:, None, None, None]
        state = state * older * decay[:, t].exp()[..., None, None]
        state = state + torch.einsum("bhm,bhn->bhmn", b[:, t], x[:, t] * step[:, t, :, None])
        out.append(torch.einsum("bhmn,bhm->bhn", state, c[:, t]) + skip[:, None] * x[:, t])
    return torch.stack(out, 1)


class Mamba:
    """A mixin for families of LLaMA's kind: what such a layer is, of a config with the keys of Granite 4 and Falcon-H1."""

    mamba, norm_of_state = "mamba.", "gate first"  # or "norm first", or None
    multipliers = None  # factors that z, x, B, C and dt are multiplied by

    def read_mamba(self, config):
        self.m_heads, self.m_groups, self.m_state = config.get("mamba_n_heads", 128), config.get("mamba_n_groups", 1), config.get("mamba_d_state", 256)
        self.m_inner = config.get("mamba_d_ssm") or config.get("mamba_expand", 2) * self.hidden
        self.taps, self.conv_bias = config.get("mamba_d_conv", 4), config.get("mamba_conv_bias", True)
        self.in_bias = self.m_out_bias = config.get("mamba_proj_bias", False)
        low, high = config.get("time_step_limit") or (0.0, float("inf"))
        self.step_limits = low, float("inf") if isinstance(high, dict) else high

    def mamba_shapes(self, at):
        h, channels = self.hidden, self.m_inner + 2 * self.m_groups * self.m_state
        shapes = {at + "in_proj.weight": (self.m_inner + channels + self.m_heads, h), at + "conv1d.weight": (channels, 1, self.taps)}
        shapes |= {at + name: (self.m_heads,) for name in ("A_log", "dt_bias", "D")} | {at + "out_proj.weight": (h, self.m_inner)}
        shapes |= {at + "conv1d.bias": (channels,)} if self.conv_bias else {}
        shapes |= {at + "in_proj.bias": (self.m_inner + channels + self.m_heads,)} if self.in_bias else {}
        shapes |= {at + "out_proj.bias": (h,)} if self.m_out_bias else {}
        return shapes | ({at + "norm.weight": (self.m_inner,)} if self.norm_of_state else {})

    def mixed_by_state(self, w, at, y, rows):
        high, states = upcast_dtype(y.dtype), self.m_groups * self.m_state
        parts = w.linear(y, at + "in_proj", self.in_bias).split((self.m_inner, self.m_inner, states, states, self.m_heads), -1)
        if self.multipliers:
            parts = [of * by for of, by in zip(parts, self.multipliers, strict=True)]
        z, xbc, dt = parts[0], torch.cat(parts[1:4], -1), parts[4]
        xbc = causal_convolution(xbc, w[at + "conv1d.weight"], rows)
        xbc = F.silu(xbc + w[at + "conv1d.bias"] if self.conv_bias else xbc)
        x, b, c = xbc.split((self.m_inner, states, states), -1)
        step = F.softplus(dt.to(high) + w[at + "dt_bias"].to(high)).clamp(*self.step_limits)
        decay = -w[at + "A_log"].to(high).exp() * step
        b, c = (of.unflatten(-1, (self.m_groups, -1)).repeat_interleave(self.m_heads // self.m_groups, 2) for of in (b, c))
        mixed = state_scan(x.unflatten(-1, (self.m_heads, -1)), b, c, step, decay, w[at + "D"], rows).flatten(-2)
        return w.linear(self.gated(w, at, mixed, z.to(high)).to(y.dtype), at + "out_proj", self.m_out_bias)

    def gated(self, w, at, mixed, z):
        if not self.norm_of_state:
            return mixed * F.silu(z)
        if self.norm_of_state == "gate first":
            mixed = mixed * F.silu(z)
        grouped = mixed.unflatten(-1, (self.m_groups, -1))
        grouped = grouped * torch.rsqrt(grouped.square().mean(-1, keepdim=True) + self.eps)
        mixed = grouped.flatten(-2) * w[at + "norm.weight"]
        return mixed * F.silu(z) if self.norm_of_state == "norm first" else mixed


class GraniteHybrid(Mamba, Mixture, Granite):
    """Granite team 2025: most layers are Mamba-2, the others attention without RoPE; an MLP beside the experts, or alone."""

    tied_by_default, shared_gate, renormalize = False, False, True
    router, experts, shared = "block_sparse_moe.router.layer", "block_sparse_moe.", "shared_mlp"

    def __init__(self, config):
        self.width, self.of_experts = config.get("shared_intermediate_size", 1024), config["intermediate_size"]
        super().__init__({k: v for k, v in config.items() if k not in ("mlp_bias", "layer_types")} | {"intermediate_size": self.width})
        types = config.get("layer_types") or ["linear_attention"] * self.layers
        self.types = [{"mamba": "linear_attention", "attention": "full_attention"}.get(kind, kind) for kind in types]
        self.turns = config.get("position_embedding_type") == "rope"
        self.read_mamba(config)

    def read_switches(self, config):
        super().read_switches({"num_local_experts": 8, "num_experts_per_tok": 2} | config)
        self.n_experts, self.expert_inner = config.get("num_local_experts", 8), self.of_experts
        self.mixtures = self.mixtures if self.n_experts else []

    def rope_of(self, layer):
        return self.rope if self.turns else None

    def shapes(self):
        h, shapes = self.hidden, {name: shape for name, shape in Granite.shapes(self).items() if ".mlp." not in name}
        for n, kind in enumerate(self.types):
            at = f"layers.{n}."
            if kind == "linear_attention":
                shapes = {name: shape for name, shape in shapes.items() if not name.startswith(at + "self_attn.")} | self.mamba_shapes(at + self.mamba)
            shapes |= {at + "shared_mlp.input_linear.weight": (2 * self.width, h), at + "shared_mlp.output_linear.weight": (h, self.width)}
            if n in self.mixtures:
                shapes[at + self.router + ".weight"] = (self.n_experts, h)
                shapes[at + "block_sparse_moe.input_linear.weight"] = (self.n_experts, 2 * self.expert_inner, h)
                shapes[at + "block_sparse_moe.output_linear.weight"] = (self.n_experts, h, self.expert_inner)
        return shapes

    def per_expert(self, found):
        names = {"experts.gate_up_proj": "input_linear.weight", "experts.down_proj": "output_linear.weight", "router.weight": "router.layer.weight"}
        for old, new in names.items():
            found = {name.replace("block_sparse_moe." + old, "block_sparse_moe." + new): array for name, array in found.items()}
        return found

    def attention(self, w, at, layer, y, rows):
        if self.types[layer] != "linear_attention":
            return super().attention(w, at, layer, y, rows)
        return self.mixed_by_state(w, at.replace("self_attn.", self.mamba), y, rows) * self.residual_factor

    def pair(self, x, first, second):
        gate, up = F.linear(x, first).chunk(2, -1)
        return F.linear(F.silu(gate) * up, second)

    def mlp(self, w, at, x):
        layer = at.removesuffix("mlp.")
        y = self.pair(x, w[layer + "shared_mlp.input_linear.weight"], w[layer + "shared_mlp.output_linear.weight"])
        if self.n_experts:
            weights = self.expert_weights(w, layer, x)
            first, second = (w[f"{layer}block_sparse_moe.{part}_linear.weight"] for part in ("input", "output"))
            y = sum(weights[..., e, None] * self.pair(x, first[e], second[e]) for e in range(self.n_experts)) + y
        return y * self.residual_factor

    def without_effect(self, name):
        if not name.endswith("k_proj.bias"):
            return None
        return torch.zeros(self.kv_heads * self.head_dim, dtype=torch.bool) if self.turns else torch.ones(self.kv_heads * self.head_dim, dtype=torch.bool)


class FalconH1(Mamba, Llama):
    """Falcon team 2025: attention and Mamba-2 of the same rows are added, and constant factors are everywhere."""

    eps_by_default = 1e-5
    pre_norms = ("input_layernorm", "pre_ff_layernorm")

    def __init__(self, config):
        super().__init__(config)
        self.read_mamba({"mamba_d_ssm": 1024} | config)
        self.m_out_bias = config.get("projectors_bias", False)
        order = "norm first" if config.get("mamba_norm_before_gate", True) else "gate first"
        self.norm_of_state = order if config.get("mamba_rms_norm", False) else None
        self.multipliers = config.get("ssm_multipliers") or [1.0] * 5
        self.factors = {name: config.get(name, 1.0) for name in ("attention_in_multiplier", "attention_out_multiplier", "ssm_in_multiplier",
                                                                 "ssm_out_multiplier", "key_multiplier", "lm_head_multiplier")}  # fmt: skip
        self.gate_factor, self.down_factor = config.get("mlp_multipliers") or (1.0, 1.0)
        self.embedding_factor = config.get("embedding_multiplier", 1.0)

    def named(self, name):
        return name.replace(".mlp.", ".feed_forward.").replace("norm.weight", "final_layernorm.weight") if name == "norm.weight" or ".mlp." in name else name

    def shapes(self):
        shapes = {self.named(name): shape for name, shape in super().shapes().items()}
        for n in range(self.layers):
            shapes |= self.mamba_shapes(f"layers.{n}.{self.mamba}")
        return shapes

    def project(self, w, at, y):
        q, k, v = super().project(w, at, y)
        return q, k * self.factors["key_multiplier"], v

    def attention(self, w, at, layer, y, rows):
        f = self.factors
        mixed = self.mixed_by_state(w, at.replace("self_attn.", self.mamba), y * f["ssm_in_multiplier"], rows) * f["ssm_out_multiplier"]
        return mixed + super().attention(w, at, layer, y * f["attention_in_multiplier"], rows) * f["attention_out_multiplier"]

    def mlp(self, w, at, y):
        at = self.named(at)
        gate, up = (w.linear(y, f"{at}{name}_proj", self.mlp_bias) for name in ("gate", "up"))
        return w.linear(self.gate(gate * self.gate_factor) * up, at + "down_proj", self.mlp_bias) * self.down_factor

    def hidden_states(self, w, tokens, rows):
        w.tensors = w.tensors | {w.prefix + "norm.weight": w["final_layernorm.weight"]}
        return super().hidden_states(w, tokens, rows) * self.factors["lm_head_multiplier"]


class NemotronH(Mamba, GroupedMixture, Llama):
    """NVIDIA 2025: a layer is Mamba-2, attention without RoPE, an MLP or a mixture, with squared ReLUs."""

    prefix, table, mamba, eps_by_default = "backbone.", "embeddings.weight", "mixer.", 1e-5
    router, experts, shared, bias_of_choice = "mixer.gate", "mixer.experts.", "mixer.shared_experts", "mixer.gate.e_score_correction_bias"
    parts = ("up_proj", "down_proj")
    WORDS = {"M": "linear_attention", "mamba": "linear_attention", "E": "moe", "*": "full_attention", "attention": "full_attention", "-": "mlp"}

    def __init__(self, config):
        kinds = config.get("layers_block_type") or config["hybrid_override_pattern"]
        self.types = [self.WORDS.get(kind, kind) for kind in kinds]
        given = {k: v for k, v in config.items() if k not in ("attention_bias", "layers_block_type")}
        super().__init__(given | {"num_hidden_layers": len(self.types), "rms_norm_eps": config.get("layer_norm_epsilon", 1e-5)})
        self.m_heads, self.m_groups, self.m_state = config["mamba_num_heads"], config["n_groups"], config["ssm_state_size"]
        self.m_inner = self.m_heads * config["mamba_head_dim"]
        self.taps, self.conv_bias = config.get("conv_kernel", 4), config.get("use_conv_bias", True)
        self.in_bias = self.m_out_bias = config.get("use_bias", False)
        self.step_limits = config.get("time_step_min", 0.001), float("inf")

    def read_switches(self, config):
        super().read_switches(config)
        self.mixtures = [n for n, kind in enumerate(self.types) if kind == "moe"]
        self.shared_inner, self.latent = config.get("moe_shared_expert_intermediate_size", 7688), config.get("moe_latent_size")

    def expert_shapes(self, h, f):
        return dict(zip(self.parts, ((f, h), (h, f)), strict=True))

    def shapes(self):
        h, q, kv = self.hidden, self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes = {"embeddings.weight": (self.vocab, h), "norm_f.weight": (h,)}
        for n, kind in enumerate(self.types):
            at = f"layers.{n}.mixer."
            shapes[f"layers.{n}.norm.weight"] = (h,)
            if kind == "linear_attention":
                shapes |= self.mamba_shapes(at)
            if kind == "full_attention":
                shapes |= {at + "q_proj.weight": (q, h), at + "k_proj.weight": (kv, h), at + "v_proj.weight": (kv, h), at + "o_proj.weight": (h, q)}
            if kind == "mlp":
                shapes |= self.mlp_shapes(at, self.inner)
            if kind == "moe":
                width = self.latent or h
                shapes |= {at + "gate.weight": (self.n_experts, h), at + "gate.e_score_correction_bias": (self.n_experts,)}
                for e in range(self.n_experts):
                    shapes |= {f"{at}experts.{e}.{part}.weight": shape for part, shape in self.expert_shapes(width, self.expert_inner).items()}
                shapes |= self.mlp_shapes(at + "shared_experts.", self.shared_inner)
                if self.latent:
                    shapes |= self.linear_shapes(at + "fc1_latent_proj", self.latent, h) | self.linear_shapes(at + "fc2_latent_proj", h, self.latent)
        return shapes

    def linear_shapes(self, at, out, width):
        return {at + ".weight": (out, width)} | ({at + ".bias": (out,)} if self.mlp_bias else {})

    def mlp_shapes(self, at, inner):
        return self.linear_shapes(at + "up_proj", inner, self.hidden) | self.linear_shapes(at + "down_proj", self.hidden, inner)

    def rope_of(self, layer):
        return None

    def squared(self, w, at, x, bias):
        return w.linear(F.relu(w.linear(x, at + "up_proj", bias)).square(), at + "down_proj", bias)

    def expert(self, w, at, x):
        return self.squared(w, at, x, False)

    def per_expert(self, found):
        named = {}
        for name, array in found.items():
            at, _, last = name.rpartition(".")
            stacked = last in self.parts and at.endswith(".experts")
            named |= {f"{at}.{e}.{last}.weight": of for e, of in enumerate(array)} if stacked else {name: array}
        return {("backbone." + name.removeprefix("model.") if name.startswith("model.") else name): array for name, array in named.items()}

    def mixture(self, w, layer, x):
        weights, rows = self.expert_weights(w, layer, x), x
        if self.latent:
            rows = w.linear(x, layer + "mixer.fc1_latent_proj", self.mlp_bias)
        y = sum(weights[..., e, None] * self.expert(w, f"{layer}{self.experts}{e}.", rows) for e in range(self.n_experts))
        if self.latent:
            y = w.linear(y, layer + "mixer.fc2_latent_proj", self.mlp_bias)
        return y + self.squared(w, layer + self.shared + ".", x, self.mlp_bias)

    def hidden_states(self, w, tokens, rows):
        x = w[self.table][tokens]
        for n, kind in enumerate(self.types):
            layer = f"layers.{n}."
            at, y = layer + "mixer.", self.norm(x, w[layer + "norm.weight"])
            if kind == "linear_attention":
                x = x + self.mixed_by_state(w, at, y, rows)
            elif kind == "full_attention":
                x = x + self.attention(w, at, n, y, rows)
            else:
                x = x + (self.mixture(w, layer, y) if kind == "moe" else self.squared(w, at, y, self.mlp_bias))
        return self.norm(x, w["norm_f.weight"])

    def without_effect(self, name):
        return None
