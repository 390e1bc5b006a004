"""The layers of the families: norms, rotary positions, attention, the loss; each as in its paper."""
import math

import torch
import torch.nn.functional as F


class Unsupported(ValueError):
    """The config has a setting that is not implemented here."""


def upcast_dtype(dtype):
    """The dtype of norms, softmax and losses: at least float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def layer_norm(x, weight, bias, eps):
    z = x.to(upcast_dtype(x.dtype))
    z = z - z.mean(-1, keepdim=True)
    z = z / torch.sqrt((z * z).mean(-1, keepdim=True) + eps)
    return (z * weight + bias).to(x.dtype)


def rms_norm(x, weight, eps):
    z = x.to(upcast_dtype(x.dtype))
    z = z / torch.sqrt((z * z).mean(-1, keepdim=True) + eps)
    return z.to(x.dtype) * weight


def soft_cap(x, cap):
    """Limits values smoothly to the cap and keeps their order; None: no cap."""
    return x if cap is None else cap * torch.tanh(x / cap)


def gelu_tanh(x):
    return F.gelu(x, approximate="tanh")


def split_heads(x, heads):
    batch, seq, width = x.shape
    return x.view(batch, seq, heads, width // heads).transpose(1, 2)  # [batch, heads, seq, head_dim]


def attention(q, k, v, rows, bias=None, window=None, cap=None, scalar=None, sinks=None):
    """softmax(q k' / sqrt(d) + bias) v over the tokens each token sees; heads of q share those of k in equal
    groups. `scalar` replaces d. `sinks`: a score of each head that has no value (Xiao et al. 2023)."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    high = upcast_dtype(q.dtype)
    scores = q.to(high) @ k.to(high).transpose(-1, -2) / math.sqrt(scalar or q.shape[-1])
    scores = soft_cap(scores, cap)
    if bias is not None:
        scores = scores + bias
    batch, _, seq, _ = q.shape
    scores = scores.masked_fill(~rows.seen_within(window)[:, None], -math.inf)
    if sinks is not None:
        scores = torch.cat((scores, sinks.to(high)[None, :, None, None].expand(batch, -1, seq, 1)), -1)
    shares = scores.softmax(-1)[..., :seq].to(v.dtype)
    return (shares @ v).transpose(1, 2).reshape(batch, seq, -1)


class Rows:
    """Attention mask and positions: token t of a row sees [doc_start[t], t], and its position counts from
    doc_start[t]."""

    def __init__(self, tokens, doc_start=None):
        at = torch.arange(tokens.shape[1])
        start = torch.zeros_like(tokens) if doc_start is None else doc_start
        self.positions = at[None] - start  # [batch, seq]
        self.sees = (at[None, None] <= at[None, :, None]) & (at[None, None] >= start[:, :, None])  # [batch, t, s]

    def seen_within(self, window):
        """The mask restricted to the last `window` tokens, including the token's own (Beltagy et al. 2020);
        None: all."""
        at = torch.arange(self.sees.shape[-1])
        return self.sees if window is None else self.sees & (at[:, None] - at[None] < window)


class Rope:
    """Rotary positions (Su et al. 2021); scaling `linear` (Chen et al. 2023), `llama3` (Grattafiori et al.
    2024) and `yarn` (Peng et al. 2023)."""

    def __init__(self, config, head_dim, interleaved=False, part=1.0):
        # Newer configs have everything in rope_parameters, older ones the base next to an optional
        # rope_scaling.
        found = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
        self.kind = found.get("rope_type", found.get("type", "default"))
        self.theta = float(found.get("rope_theta", config.get("rope_theta", 10000.0)))
        if self.kind == "dynamic" and found.get("alpha"):  # Hunyuan's: the base is stretched, whatever the length is
            self.kind, self.theta = "default", self.theta * found["alpha"] ** (head_dim / (head_dim - 2))
        part = found.get("partial_rotary_factor", config.get("partial_rotary_factor", part))
        self.width = int(head_dim * part)
        self.interleaved = interleaved
        keys = {"default": (), "linear": ("factor",)}
        keys["yarn"] = ("factor",)
        keys["llama3"] = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
        if self.kind not in keys:
            raise Unsupported(f"rope of type {self.kind}")
        self.scaling = {key: float(found[key]) for key in keys[self.kind]}
        self.attention_factor = 1.0  # scales cosines and sines
        if self.kind == "yarn":
            self.read_yarn(found, config)

    def read_yarn(self, found, config):
        original = found.get("original_max_position_embeddings") or config["max_position_embeddings"]
        rounds = (math.floor, math.ceil) if found.get("truncate", True) else (float, float)
        # Indices of the frequencies that rotate beta times within the original positions; between them is a
        # blend.
        betas = found.get("beta_fast") or 32, found.get("beta_slow") or 1
        ends = [self.width * math.log(original / (beta * 2 * math.pi)) / (2 * math.log(self.theta)) for beta in betas]
        low, high = (end(at) for end, at in zip(rounds, ends, strict=True))
        self.scaling |= {"low": max(low, 0), "high": min(high, self.width - 1)}

        def growth(m):
            return 1.0 if self.scaling["factor"] <= 1 else 0.1 * m * math.log(self.scaling["factor"]) + 1.0

        m, m_all = found.get("mscale"), found.get("mscale_all_dim")
        grown = growth(m) / growth(m_all) if m and m_all else growth(1)
        self.attention_factor = float(found.get("attention_factor") or grown)

    def frequencies(self):
        plain = self.theta ** (-torch.arange(0, self.width, 2, dtype=torch.float64) / self.width)
        if self.kind == "default":
            return plain
        slow = plain / self.scaling["factor"]
        if self.kind == "linear":
            return slow
        if self.kind == "yarn":
            low, high = self.scaling["low"], self.scaling["high"]
            at = torch.arange(self.width // 2, dtype=torch.float64)
            share = ((at - low) / (high - low if high != low else 0.001)).clamp(0, 1)
            return (1 - share) * plain + share * slow
        low, high = self.scaling["low_freq_factor"], self.scaling["high_freq_factor"]
        turns = self.scaling["original_max_position_embeddings"] * plain / (2 * math.pi)
        blend = ((turns - low) / (high - low)).clamp(0, 1)  # 1 if a wave fits many times, 0 if hardly once
        return blend * plain + (1 - blend) * slow

    def rotate(self, x, positions):
        high = upcast_dtype(x.dtype)
        angles = positions[:, None, :, None].to(high) * self.frequencies().to(high)
        cos, sin = ((of * self.attention_factor).to(x.dtype) for of in (angles.cos(), angles.sin()))
        turned, kept = x[..., : self.width], x[..., self.width :]
        if self.interleaved:
            a, b = turned[..., 0::2], turned[..., 1::2]
            turned = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
        else:
            a, b = turned.chunk(2, -1)
            turned = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
        return torch.cat((turned, kept), -1)


class Weights:
    """A dict of weights that is indexed by names without the family's prefix."""

    def __init__(self, tensors, prefix):
        self.tensors, self.prefix = tensors, prefix

    def __getitem__(self, name):
        return self.tensors[self.prefix + name]

    def linear(self, x, name, bias=True):
        """Linear layer with a weight [out, in]."""
        return F.linear(x, self[name + ".weight"], self[name + ".bias"] if bias else None)

    def norm(self, x, name, eps):
        return layer_norm(x, self[name + ".weight"], self[name + ".bias"], eps)


def mean_loss(logits, targets):
    """Mean of -log p(target) over the targets that are not negative."""
    counts = targets >= 0
    log_p = logits.to(upcast_dtype(logits.dtype)).log_softmax(-1)
    return -log_p.gather(-1, targets.clamp(min=0)[..., None])[..., 0][counts].mean()
