"""Mixtures of experts in plain PyTorch (Shazeer et al. 2017): every expert computes every token, and what its router did
not choose has weight 0. Slow, and nothing is sorted, gathered or grouped."""
import itertools
import math

import torch
import torch.nn.functional as F

from layers import upcast_dtype


class Mixture:
    """A mixin for families of LLaMA's kind: some or all of their MLPs are mixtures."""

    router, experts, parts = "mlp.gate", "mlp.experts.", ("gate_proj", "up_proj", "down_proj")
    shared, shared_gate = "mlp.shared_expert", True
    renormalize = None  # None: the config says it
    _replayed = None

    def read_switches(self, config):
        super().read_switches(config)
        self.n_experts = config.get("num_experts") or config["num_local_experts"]
        self.chosen = config["num_experts_per_tok"]
        self.expert_inner = config.get("moe_intermediate_size") or self.inner
        self.shared_inner = config.get("shared_expert_intermediate_size")
        if self.renormalize is None:
            self.renormalize = config.get("norm_topk_prob", False)
        step, dense = config.get("decoder_sparse_step", 1), config.get("mlp_only_layers") or ()
        # Coefficients of losses of routers. transformers knows the first one alone.
        self.router_aux = config.get("router_aux_loss_coef", 0.0) if config.get("output_router_logits") else 0.0
        self.router_z = config.get("router_z_loss_coef", 0.0)
        self.mixtures = [n for n in range(self.layers) if (n + 1) % step == 0 and n not in dense]

    def expert_shapes(self, h, f):
        """{name: shape} of an MLP without biases, by its three names."""
        return dict(zip(self.parts, ((f, h), (f, h), (h, f)), strict=True))

    def shapes(self):
        h, shapes = self.hidden, super().shapes()
        for n in self.mixtures:
            at = f"layers.{n}."
            shapes = {name: shape for name, shape in shapes.items() if not name.startswith(at + "mlp.")}
            shapes[f"{at}{self.router}.weight"] = (self.n_experts, h)
            for e in range(self.n_experts):
                found = self.expert_shapes(h, self.expert_inner).items()
                shapes |= {f"{at}{self.experts}{e}.{part}.weight": shape for part, shape in found}
            if self.shared_inner:
                found = self.expert_shapes(h, self.shared_inner).items()
                shapes |= {f"{at}{self.shared}.{part}.weight": shape for part, shape in found}
                if self.shared_gate:
                    shapes[f"{at}{self.shared}_gate.weight"] = (1, h)
        return shapes

    def expert(self, w, at, x):
        gate, up, down = (at + part for part in self.parts)
        return w.linear(self.gate(w.linear(x, gate, False)) * w.linear(x, up, False), down, False)

    def logits(self, tensors, tokens, doc_start=None):
        self._routed = []  # what the routers of this call see
        return super().logits(tensors, tokens, doc_start)

    def router_losses(self):
        """Of all layers of the last call of logits(): the balance of experts as in Fedus et al. 2021, equations 4 to 6,
        with one mean over the rows of all layers, and the z-loss of Zoph et al. 2022, equation 5."""
        logits, chosen = (torch.cat([of.flatten(0, -2) for of in each]) for each in zip(*self._routed, strict=True))
        shares = F.one_hot(chosen, self.n_experts).sum(-2).to(logits.dtype).mean(0)
        aux = self.n_experts * (shares * logits.softmax(-1).mean(0)).sum()
        return aux, logits.logsumexp(-1).square().mean()

    def replay(self, choices):
        self._replayed = choices

    def choose(self, logits):
        """The experts of each token."""
        experts = logits.topk(self.chosen, -1)[1] if self._replayed is None else self._replayed[len(self._routed)]
        self._routed.append((logits, experts))
        return experts

    def choices(self):
        return [experts for _, experts in self._routed] if self.mixtures else None

    def shortfalls(self):
        """For each router and token of the last call of logits(): by how much the score of one of its experts is below that
        of the k-th best, relative to the standard deviation of the router's scores; infinite unless it has k experts."""
        return torch.stack([self.short_of(scores, experts) / scores.std() for scores, experts in self._routed]).detach()

    def short_of(self, scores, experts):
        taken = F.one_hot(experts, self.n_experts).sum(-2)  # refuses numbers that no expert has
        least = torch.where(taken > 0, scores, math.inf).amin(-1)
        short = scores.topk(self.chosen, -1)[0][..., -1] - least
        return torch.where((taken > 0).sum(-1) == self.chosen, short, math.inf)

    def expert_weights(self, w, layer, x):
        """[tokens, experts], 0 where an expert is not chosen."""
        logits = F.linear(x, w[f"{layer}{self.router}.weight"])
        logits_in_full = logits.to(upcast_dtype(logits.dtype))
        scores, experts = logits_in_full.softmax(-1), self.choose(logits_in_full)
        best = scores.gather(-1, experts)
        if self.renormalize:
            best = best / best.sum(-1, keepdim=True)
        return torch.zeros_like(scores).scatter(-1, experts, best).to(logits.dtype)

    def mlp(self, w, at, x):
        layer = at.removesuffix("mlp.")
        if int(layer.split(".")[1]) not in self.mixtures:
            return super().mlp(w, at, x)
        weights = self.expert_weights(w, layer, x)
        y = sum(weights[..., e, None] * self.expert(w, f"{layer}{self.experts}{e}.", x) for e in range(self.n_experts))
        if not self.shared_inner:
            return y
        beside = self.expert(w, f"{layer}{self.shared}.", x)
        return y + (torch.sigmoid(F.linear(x, w[f"{layer}{self.shared}_gate.weight"])) * beside if self.shared_gate else beside)

    def per_expert(self, found):
        """`found` with the stacked tensors of transformers' models and of some folders, [experts, ...], as those of
        each expert."""
        named = {}
        for name, array in found.items():
            at, _, last = name.rpartition(".")
            inside = at.rsplit(".", 1)[0]  # transformers has `mlp` where Mixtral's files have block_sparse_moe
            if last not in ("gate_up_proj", "down_proj") or not at.endswith(".experts"):
                named[name.replace(".mlp.gate.", f".{self.router}.")] = array
                continue
            layer = inside.removesuffix("mlp").removesuffix(self.experts.split(".")[0])
            for e, of in enumerate(array):
                gate, up, down = (f"{layer}{self.experts}{e}.{part}.weight" for part in self.parts)
                if last == "down_proj":
                    named[down] = of
                else:
                    half = len(of) // 2
                    named[gate], named[up] = of[:half], of[half:]
        return named


class GroupedMixture(Mixture):
    """A mixture with the router of DeepSeek-AI 2024: sigmoid scores, a bias for the choice alone, and groups of experts; and
    with an MLP beside the experts that has no gate."""

    shared, shared_gate = "mlp.shared_experts", False
    bias_of_choice, least_sum = "mlp.gate.e_score_correction_bias", 1e-20

    def read_switches(self, config):
        super().read_switches({"num_experts": config["n_routed_experts"], "norm_topk_prob": True} | config)
        self.shared_inner = self.expert_inner * config.get("n_shared_experts", 1)
        self.mixtures = list(range(config.get("first_k_dense_replace", 1), self.layers))
        self.factor, self.groups = config.get("routed_scaling_factor", 1.0), config.get("n_group", 1)
        self.best_groups = config.get("topk_group", 1)
        self.router_aux = 0.0  # transformers has no such loss of these families

    def scores(self, w, layer, logits):
        """What weighs the experts of a token, and by what they are chosen."""
        scores = torch.sigmoid(logits)
        return scores, scores + w[layer + self.bias_of_choice].to(scores.dtype) if self.bias_of_choice else scores

    def score_of_group(self, grouped):
        return grouped.topk(2, -1)[0].sum(-1)

    def shapes(self):
        biases = {f"layers.{n}.{self.bias_of_choice}": (self.n_experts,) for n in self.mixtures}
        return super().shapes() | (biases if self.bias_of_choice else {})

    def is_trained(self, name):
        return not self.bias_of_choice or not name.endswith(self.bias_of_choice)

    def logits(self, tensors, tokens, doc_start=None):
        self._grouped = []
        return super().logits(tensors, tokens, doc_start)

    def shortfalls(self):
        """The same by the groups that suit the experts best: one of them may be short, too."""
        return torch.stack([self.short_of_groups(*seen) / seen[0].std() for seen in zip(self._grouped, self.choices(), strict=True)]).detach()

    def short_of_groups(self, grouped, experts):
        of_groups = self.score_of_group(grouped)
        least, ways = of_groups.topk(self.best_groups, -1)[0][..., -1], []
        for groups in itertools.combinations(range(self.groups), self.best_groups):
            others = torch.tensor([group not in groups for group in range(self.groups)])
            inside = grouped.masked_fill(others[:, None], -math.inf).flatten(-2)
            ways.append(torch.maximum(least - of_groups[..., groups].amin(-1), self.short_of(inside, experts)))
        return torch.stack(ways).amin(0)

    def expert_weights(self, w, layer, x):
        high, router = upcast_dtype(x.dtype), f"{layer}{self.router}."
        logits = F.linear(x.to(high), w[router + "weight"].to(high))
        scores, of_choice = self.scores(w, layer, logits)
        grouped = of_choice.unflatten(-1, (self.groups, -1))
        self._grouped.append(grouped)
        kept = torch.zeros_like(grouped[..., 0]).scatter(-1, self.score_of_group(grouped).topk(self.best_groups, -1)[1], 1.0)
        chosen = self.choose(grouped.masked_fill(kept[..., None] == 0, -math.inf).flatten(-2))
        best = scores.gather(-1, chosen)
        if self.renormalize:
            best = best / (best.sum(-1, keepdim=True) + self.least_sum)
        return torch.zeros_like(scores).scatter(-1, chosen, best * self.factor).to(x.dtype)
