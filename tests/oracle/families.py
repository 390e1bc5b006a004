"""strata's model families in plain PyTorch, as an independent reference.

Written from the papers and the published checkpoints, slow and simple. A model is a `Family` read from
config.json and a dict of weights under their Hugging Face names: `family.logits(weights, tokens, doc_start)`.
Computation is in the dtype of the weights; float64 is the reference for the others.

    families.py selfcheck    compares all of this with the transformers package, if that is installed
"""
import sys

import torch

from base_families import Bloom, Glm, Glm4, Gpt2, Granite, Llama, Opt, Qwen2, Qwen3
from decoders.gemma4 import gemma4
from decoders.mamba import FalconH1, GraniteHybrid, NemotronH
from experts import GroupedMixture, Mixture
from hybrid import DeepSeekV2, DeepSeekV3, DeepSeekV32, Glm4MoeLite, GlmMoeDsa, Lfm2, Lfm2Moe, Qwen3Next, Qwen35, Qwen35Moe
from layers import Rope, Unsupported, gelu_tanh, upcast_dtype


class Mistral(Llama):
    """Jiang et al. 2023: every layer has a sliding window."""

    def __init__(self, config):
        # The layers never have biases; the keys of the config are ignored.
        super().__init__({k: v for k, v in config.items() if k not in ("attention_bias", "mlp_bias")})

    def read_switches(self, config):
        self.window = config.get("sliding_window", 4096)


class Olmo2(Llama):
    """OLMo team 2024: only norms of the outputs of attention and MLP; one norm over all queries of a token,
    one over all keys."""

    eps_by_default = 1e-5
    pre_norms, post_norms = (None, None), ("post_attention_layernorm", "post_feedforward_layernorm")

    def qk_norm_sizes(self, q, kv):
        return ("q_norm", q), ("k_norm", kv)

    def project(self, w, at, y):
        q, k, v = super().project(w, at, y)
        return self.norm(q, w[at + "q_norm.weight"]), self.norm(k, w[at + "k_norm.weight"]), v

    def without_effect(self, name):
        return None  # a bias of the keys affects their norm


class Phi3(Mistral):
    """Abdin et al. 2024: one matrix for q, k and v, one for gate and up."""

    eps_by_default, fused_gate = 1e-5, True

    def read_switches(self, config):
        self.window = config.get("sliding_window")
        if self.rope.kind != "default":
            raise Unsupported(f"rope of type {self.rope.kind} of Phi-3")

    def qkv_sizes(self, q, kv):
        return (("qkv_proj", q + 2 * kv),)

    def project(self, w, at, y):
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return w.linear(y, at + "qkv_proj", False).split((q, kv, kv), -1)


class SmolLm3(Llama):
    """Bakouch et al. 2025: every fourth layer has no position encoding (Yang et al. 2025)."""

    tied_by_default = True

    def __init__(self, config):
        super().__init__({"rope_theta": 2e6} | config)

    def read_switches(self, config):
        every = config.get("no_rope_layer_interval", 4)
        self.turned = config.get("no_rope_layers") or [int((n + 1) % every != 0) for n in range(self.layers)]
        self.window = config.get("sliding_window") if config.get("use_sliding_window") else None
        default = ["sliding_attention" if self.window and not turned else "full_attention" for turned in self.turned]
        self.types = config.get("layer_types") or default

    def window_of(self, layer):
        return self.window if self.types[layer] == "sliding_attention" else None

    def rope_of(self, layer):
        return self.rope if self.turned[layer] else None

    def without_effect(self, name):
        if name.endswith("k_proj.bias") and not self.turned[int(name.split(".")[2])]:
            return torch.ones(self.kv_heads * self.head_dim, dtype=torch.bool)
        return super().without_effect(name)


class Gemma2(Llama):
    """Gemma team 2024: norms before and after, norm weights stored around 0, some sliding layers, soft caps
    of scores and logits."""

    tied_by_default, norm_offset, every = True, 1.0, 2
    pre_norms = ("input_layernorm", "pre_feedforward_layernorm")
    post_norms = ("post_attention_layernorm", "post_feedforward_layernorm")
    score_cap_by_default, logit_cap_by_default = 50.0, 30.0

    def default_head_dim(self):
        return 256

    def read_switches(self, config):
        if config.get("hidden_activation", "gelu_pytorch_tanh") != "gelu_pytorch_tanh" or config.get("use_bidirectional_attention"):
            raise Unsupported("another gate, or attention both ways")
        self.score_cap = config.get("attn_logit_softcapping", self.score_cap_by_default)
        self.logit_cap = config.get("final_logit_softcapping", self.logit_cap_by_default)
        self.scalar = config.get("query_pre_attn_scalar", 256)
        self.embedding_factor = self.hidden**0.5
        self.window = config.get("sliding_window", 4096)
        every = config.get("sliding_window_pattern", self.every)
        default = ["sliding_attention" if (n + 1) % every else "full_attention" for n in range(self.layers)]
        self.types = config.get("layer_types") or default

    def window_of(self, layer):
        return self.window if self.types[layer] == "sliding_attention" else None

    def gate(self, x):
        return gelu_tanh(x)


class Gemma3(Gemma2):
    """Gemma team 2025: norms of heads instead of soft caps; sliding layers have their own RoPE."""

    head_norms, every = True, 6
    score_cap_by_default = logit_cap_by_default = None

    def __init__(self, config):
        nested = {kind: dict(of) for kind, of in (config.get("rope_parameters") or {}).items() if isinstance(of, dict)}
        rest = {k: v for k, v in config.items() if k != "rope_parameters"}
        super().__init__({"rope_theta": 1e6} | rest | {"rope_parameters": nested.get("full_attention")})
        local = {"rope_theta": config.get("rope_local_base_freq", 1e4)} | nested.get("sliding_attention", {})
        self.local_rope = Rope({"rope_parameters": local, "max_position_embeddings": config.get("max_position_embeddings")}, self.head_dim)

    def rope_of(self, layer):
        return self.local_rope if self.types[layer] == "sliding_attention" else self.rope


class Olmo3(Olmo2):
    """OLMo team 2025: OLMo 2 with sliding windows, whose layers have a RoPE without scaling."""

    def __init__(self, config):
        theta = config.get("rope_theta", 5e5)
        nested = {kind: dict(of) for kind, of in (config.get("rope_parameters") or {}).items()}
        full = {"rope_theta": theta} | nested.get("full_attention", {}) | (config.get("rope_scaling") or {})
        rest = {k: v for k, v in config.items() if k not in ("rope_parameters", "rope_scaling", "mlp_bias")}
        super().__init__(rest | {"rope_parameters": full})
        local = {"rope_theta": theta} | nested.get("sliding_attention", {})
        self.local_rope = Rope({"rope_parameters": local, "max_position_embeddings": config.get("max_position_embeddings")}, self.head_dim)

    def read_switches(self, config):
        self.window = config.get("sliding_window", 4096)
        default = ["sliding_attention" if (n + 1) % 4 else "full_attention" for n in range(self.layers)]
        self.types = config.get("layer_types") or default

    def window_of(self, layer):
        return self.window if self.types[layer] == "sliding_attention" else None

    def rope_of(self, layer):
        return self.local_rope if self.types[layer] == "sliding_attention" else self.rope


class Ministral3(Mistral):
    """Liu et al. 2026: queries grow with the logarithm of positions beyond the original ones."""

    eps_by_default = 1e-5

    def default_head_dim(self):
        return 128

    def read_switches(self, config):
        self.window = config.get("sliding_window")
        parameters = config["rope_parameters"]
        self.growth, self.original = parameters["llama_4_scaling_beta"], parameters["original_max_position_embeddings"]
        if self.growth and config["max_position_embeddings"] < self.original:
            raise Unsupported("queries that grow beyond the positions")

    def attention(self, w, at, layer, y, rows):
        if self.growth and int(rows.positions.max()) >= self.original:
            raise Unsupported("positions from which queries grow")
        return super().attention(w, at, layer, y, rows)


class SeedOss(Llama):
    """ByteDance Seed team 2025: LLaMA with a key for the bias of the output projection."""

    qkv_bias_by_default = True

    def default_head_dim(self):
        return 128

    def __init__(self, config):
        super().__init__(config)
        self.out_bias = config.get("attention_out_bias", False)


class Exaone4(Llama):
    """LG AI Research 2025: norms of the outputs and of heads; layers that see all keys have no position encoding where the
    others slide."""

    eps_by_default, head_norms = 1e-5, True
    pre_norms, post_norms = (None, None), ("post_attention_layernorm", "post_feedforward_layernorm")

    def __init__(self, config):
        super().__init__({k: v for k, v in config.items() if k not in ("attention_bias", "mlp_bias")})

    def read_switches(self, config):
        self.window = config.get("sliding_window", 4096)
        every = config.get("sliding_window_pattern", 4)
        default = ["sliding_attention" if self.window and (n + 1) % every else "full_attention" for n in range(self.layers)]
        self.types = config.get("layer_types") or default

    def window_of(self, layer):
        return self.window if self.types[layer] == "sliding_attention" else None

    def rope_of(self, layer):
        return self.rope if not self.window or self.types[layer] == "sliding_attention" else None


class HunyuanDense(Llama):
    """Tencent Hunyuan team 2025: norms of query and key heads behind RoPE, and a RoPE base that a fixed alpha stretches."""

    eps_by_default = 1e-5

    def __init__(self, config):
        super().__init__({k: v for k, v in config.items() if k != "mlp_bias"})

    def qk_norm_sizes(self, q, kv):
        return ("query_layernorm", self.head_dim), ("key_layernorm", self.head_dim)

    def rotated(self, w, at, q, k, rope, rows):
        q, k = super().rotated(w, at, q, k, rope, rows)
        return self.norm(q, w[at + "query_layernorm.weight"]), self.norm(k, w[at + "key_layernorm.weight"])

    def without_effect(self, name):
        return None  # a bias of the keys affects their norm


class Qwen2Moe(Mixture, Qwen2):
    """Yang et al. 2024: experts beside an MLP that computes every token, times a sigmoid."""


class Qwen3Moe(Mixture, Qwen3):
    """Yang et al. 2025."""

    def default_head_dim(self):
        return self.hidden // self.heads


class Olmoe(Mixture, Olmo2):
    """Muennighoff et al. 2024."""

    pre_norms, post_norms = Llama.pre_norms, Llama.post_norms


class Mixtral(Mixture, Mistral):
    """Jiang et al. 2024."""

    eps_by_default, renormalize = 1e-5, True
    router, experts, parts = "block_sparse_moe.gate", "block_sparse_moe.experts.", ("w1", "w3", "w2")

    def __init__(self, config):
        super().__init__({"rope_theta": 1e6} | config)

    def read_switches(self, config):
        super().read_switches({"sliding_window": None} | config)


class Glm4Moe(GroupedMixture, Llama):
    """GLM team 2025."""

    eps_by_default, out_has_it_too, rotary_part = 1e-5, False, 0.5

    def __init__(self, config):
        super().__init__({k: v for k, v in config.items() if k != "mlp_bias"})

    def read_switches(self, config):
        super().read_switches(config)
        self.head_norms = config.get("use_qk_norm", False)


class GptOss(Mixture, Llama):
    """Agarwal et al. 2025: sinks, every second layer full, and stacks of experts with biases and clamped gates. Gates and
    ups take turns in the columns of their matrices."""

    eps_by_default, qkv_bias_by_default = 1e-5, True

    def __init__(self, config):
        yarn = dict(rope_type="yarn", factor=32.0, original_max_position_embeddings=4096, truncate=False)
        given = config.get("rope_parameters") or config.get("rope_scaling")
        super().__init__({"rope_theta": 150000.0} | config | {"rope_parameters": given or yarn})

    def default_head_dim(self):
        return 64

    def read_switches(self, config):
        types = config.get("layer_types") or ["full_attention" if n % 2 else "sliding_attention" for n in range(self.layers)]
        super().read_switches({k: v for k, v in config.items() if k != "layer_types"})
        window = config.get("sliding_window", 128)
        self.windows = [window if kind == "sliding_attention" else None for kind in types]
        self.limit, self.alpha = config.get("swiglu_limit", 7.0), config.get("swiglu_alpha", 1.702)

    def window_of(self, layer):
        return self.windows[layer]

    def sinks(self, w, at):
        return w[at + "sinks"]

    def shapes(self):
        n_experts, h, f = self.n_experts, self.hidden, self.inner
        shapes = {name: shape for name, shape in super().shapes().items() if ".mlp." not in name}
        for n in range(self.layers):
            at = f"layers.{n}."
            shapes |= {at + "self_attn.sinks": (self.heads,), at + "mlp.router.weight": (n_experts, h), at + "mlp.router.bias": (n_experts,)}
            at += "mlp.experts."
            shapes |= {at + "gate_up_proj": (n_experts, h, 2 * f), at + "gate_up_proj_bias": (n_experts, 2 * f)}
            shapes |= {at + "down_proj": (n_experts, f, h), at + "down_proj_bias": (n_experts, h)}
        return shapes

    def per_expert(self, found):
        return found

    def mlp(self, w, at, x):
        logits = w.linear(x, at + "router")
        logits_in_full = logits.to(upcast_dtype(logits.dtype))
        experts = self.choose(logits_in_full)
        best = logits_in_full.gather(-1, experts)
        weights = torch.zeros_like(logits).scatter(-1, experts, best.softmax(-1).to(logits.dtype))
        y = 0
        for e in range(self.n_experts):
            both = x @ w[at + "experts.gate_up_proj"][e] + w[at + "experts.gate_up_proj_bias"][e]
            gate, up = both[..., 0::2].clamp(max=self.limit), both[..., 1::2].clamp(-self.limit, self.limit)
            inner = (up + 1) * gate * torch.sigmoid(self.alpha * gate)
            y = y + weights[..., e, None] * (inner @ w[at + "experts.down_proj"][e] + w[at + "experts.down_proj_bias"][e])
        return y


FAMILIES = {"gpt2": Gpt2, "opt": Opt, "bloom": Bloom, "llama": Llama}
FAMILIES |= {"qwen2": Qwen2, "qwen3": Qwen3, "glm": Glm, "glm4": Glm4, "mistral": Mistral, "olmo2": Olmo2}
FAMILIES |= {"phi3": Phi3, "smollm3": SmolLm3, "gemma2": Gemma2, "gemma3_text": Gemma3, "granite": Granite}
FAMILIES |= {"olmo3": Olmo3, "ministral3": Ministral3, "seed_oss": SeedOss, "exaone4": Exaone4, "hunyuan_v1_dense": HunyuanDense}
FAMILIES |= {"qwen2_moe": Qwen2Moe, "qwen3_moe": Qwen3Moe, "olmoe": Olmoe, "mixtral": Mixtral}
FAMILIES |= {"glm4_moe": Glm4Moe, "gpt_oss": GptOss, "qwen3_5_text": Qwen35}
FAMILIES |= {"qwen3_5_moe_text": Qwen35Moe, "qwen3_next": Qwen3Next, "lfm2": Lfm2}
FAMILIES |= {"lfm2_moe": Lfm2Moe, "granitemoehybrid": GraniteHybrid, "falcon_h1": FalconH1, "nemotron_h": NemotronH}
FAMILIES |= {"deepseek_v2": DeepSeekV2, "deepseek_v3": DeepSeekV3, "glm4_moe_lite": Glm4MoeLite, "deepseek_v32": DeepSeekV32, "glm_moe_dsa": GlmMoeDsa}
FAMILIES |= {"gemma4_text": gemma4}


def family_of(config):
    if config.get("model_type") not in FAMILIES:
        raise Unsupported(f"model_type {config.get('model_type')}")
    return FAMILIES[config["model_type"]](config)


if __name__ == "__main__":
    if sys.argv[1:] != ["selfcheck"]:
        sys.exit("usage: families.py selfcheck")
    import selfcheck

    sys.exit(selfcheck.main())
