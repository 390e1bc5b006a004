#include <strata/model/decoder_config.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <strata/runtime/str.h>

namespace strata {
namespace {

using Position = DecoderConfig::Position;

// Far above any model, and low enough that no product of sizes comes near 2^63.
constexpr std::int64_t kMaxLayers = 10000;
constexpr std::int64_t kMaxWidth = 1 << 20;
constexpr std::int64_t kMaxExperts = 1024;
constexpr std::int64_t kMaxVocab = 1 << 22;
constexpr std::int64_t kMaxPositions = std::int64_t{1} << 31;

/// Per layer: false for every `every`-th layer, true for the others.
std::vector<bool> but_every(std::int64_t every, std::int64_t layers) {
  std::vector<bool> of(static_cast<std::size_t>(layers), true);
  for (std::int64_t i = every; every > 0 && i <= layers; i += every)
    of[static_cast<std::size_t>(i - 1)] = false;
  return of;
}

struct DecoderProblems {
  std::string text{};

  void need(bool ok, const std::string& what) {
    if (!ok) text += (text.empty() ? "" : "\n") + what;
  }
  void need_range(const char* name, std::int64_t value, std::int64_t most) {
    need(value >= 1 && value <= most, str("model.", name, " is ", value, "; it must be 1 to ", most));
  }
};

bool divides(std::int64_t divisor, std::int64_t value) { return divisor >= 1 && value % divisor == 0; }

// `own_head_dim`: the size of a head is set, and does not follow from the width.
void check_decoder_sizes(const DecoderConfig& c, bool own_head_dim, DecoderProblems& problems) {
  problems.need_range("layers", c.layers, kMaxLayers);
  problems.need_range("hidden", c.hidden, kMaxWidth);
  problems.need_range("heads", c.heads, kMaxWidth);
  problems.need_range("ffn", c.ffn, 4 * kMaxWidth);
  problems.need_range("vocab", c.vocab, kMaxVocab);
  problems.need_range("seq", c.seq, kMaxPositions);
  problems.need_range("kv_heads", c.kv_heads, kMaxWidth);
  problems.need(c.heads < 1 || c.head_dim <= kMaxWidth / c.heads,
                str("model.heads is ", c.heads, " and model.head_dim ", c.head_dim,
                    "; their product must be at most ", kMaxWidth));
  problems.need(c.positions <= kMaxPositions,
                str("the model has ", c.positions, " positions; there may be at most ", kMaxPositions));
  problems.need(own_head_dim || c.heads < 1 || divides(c.heads, c.hidden),
                str("model.hidden is ", c.hidden, " and model.heads ", c.heads,
                    "; the first must be a multiple of the second"));
  problems.need(c.kv_heads < 1 || divides(c.kv_heads, c.heads),
                str("model.heads is ", c.heads, " and model.kv_heads ", c.kv_heads,
                    "; the first must be a multiple of the second"));
  problems.need(c.head_dim >= 1 || c.heads < 1 || c.hidden < c.heads, str("model.head_dim is ", c.head_dim));
  problems.need(c.positions >= c.seq, str("model.seq is ", c.seq, "; the model has only ", c.positions,
                                          " positions: set model.seq=", c.positions, " or less"));
}

void check_decoder_attention(const DecoderConfig& c, DecoderProblems& problems) {
  problems.need(c.position != Position::rope || (c.rotary_dim >= 2 && c.rotary_dim % 2 == 0 &&
                                                 c.rotary_dim <= c.head_dim && c.rotary_dim <= 2048),
                str("RoPE rotates ", c.rotary_dim, " elements of a head of ", c.head_dim,
                    "; it must be an even number, at most the head size and at most 2048"));
  for (const auto& [name, of] : {std::pair{"rope_layers", &c.rope_layers}, std::pair{"sliding", &c.sliding}})
    problems.need(c.layers < 1 || c.layers > kMaxLayers || std::ssize(*of) == c.layers,
                  str(name, " has ", of->size(), " layers, but the model has ", c.layers));
  problems.need(c.query_growth_from == 0 || c.seq <= c.query_growth_from,
                str("model.seq is ", c.seq, "; the queries of ", family_limits(c.family).title,
                    " grow from position ", c.query_growth_from,
                    " on, which is not supported: set model.seq=", c.query_growth_from, " or less"));
  problems.need(c.window >= 0 && c.window <= kMaxPositions, str("the window has ", c.window, " keys"));
  problems.need(c.window > 0 || std::count(c.sliding.begin(), c.sliding.end(), true) == 0,
                "a layer has a sliding window, but the window has 0 keys");
  problems.need(c.score_softcap >= 0 && c.logit_softcap >= 0 && c.query_scalar >= 0,
                str("soft caps of ", c.score_softcap, " and ", c.logit_softcap, " and a query scalar of ",
                    c.query_scalar, "; each must be 0 or more"));
  problems.need(c.embedding_factor > 0 && c.residual_factor > 0 && c.score_factor >= 0 && c.logit_divisor > 0,
                str("factors of ", c.embedding_factor, " for embeddings, ", c.residual_factor,
                    " for residuals and ", c.score_factor, " for scores and a divisor of ", c.logit_divisor,
                    " for logits; each must be above 0"));
}

void check_experts(const DecoderConfig& c, DecoderProblems& problems) {
  const ExpertsConfig& e = c.experts;
  const FamilyLimits limits = family_limits(c.family);
  problems.need(limits.scores || !c.scores,
                str("transformers has no reward model of ", limits.title, ", as which one could be written"));
  problems.need(limits.some_experts || limits.experts == (e.n > 0) || limits.title.empty(),
                str("model.experts is ", e.n, ", but the MLPs of ", limits.title,
                    limits.experts ? " are mixtures of experts" : " are no mixtures of experts"));
  if (e.n == 0) {
    problems.need(e.per_token == 0 && e.ffn == 0 && e.shared_ffn == 0,
                  str("model.experts_per_token is ", e.per_token, ", model.expert_ffn ", e.ffn,
                      " and model.shared_ffn ", e.shared_ffn, ", but model.experts is 0"));
    return;
  }
  problems.need_range("experts", e.n, kMaxExperts);
  problems.need(e.per_token >= 1 && e.per_token <= e.n,
                str("model.experts_per_token is ", e.per_token, " and model.experts ", e.n,
                    "; the first must be 1 to the second"));
  problems.need_range("expert_ffn", e.ffn, 4 * kMaxWidth);
  problems.need(limits.expert_ffn || e.ffn == c.ffn, str("model.expert_ffn is ", e.ffn, " and model.ffn ",
                                                         c.ffn, "; in ", limits.title, " they are equal"));
  const bool has_shared = e.shared_gate || e.shared_plain;
  problems.need(
      has_shared ? e.shared_ffn >= 1 && e.shared_ffn <= 4 * kMaxWidth : e.shared_ffn == 0,
      str("model.shared_ffn is ", e.shared_ffn, "; it must be ",
          has_shared ? "1 or more" : "0, since no MLP is beside the experts", " in ", limits.title));
  problems.need(!e.shared_plain || limits.any_shared_ffn || e.ffn < 1 || e.shared_ffn % e.ffn == 0,
                str("model.shared_ffn is ", e.shared_ffn, " and model.expert_ffn ", e.ffn,
                    "; the first must be a multiple of the second in ", limits.title));
  problems.need(is_gated(c.mlp) || c.mlp == DecoderConfig::Mlp::relu2,
                str("model.experts is ", e.n, ", but the MLPs of ", c.family, " have no gate"));
  problems.need(e.latent >= 0 && e.latent <= kMaxWidth,
                str("experts compute rows of ", e.latent, " elements; they may have at most ", kMaxWidth));
  problems.need(c.layers < 1 || c.layers > kMaxLayers || std::ssize(e.layers) == c.layers,
                str("experts have ", e.layers.size(), " layers, but the model has ", c.layers));
  const auto& [score, renormalize, eps, scale, groups, top_groups, by_best] = e.rule;
  problems.need(groups >= 1 && divides(groups, e.n) && top_groups >= 1 && top_groups <= groups,
                str("a router with ", top_groups, " of ", groups, " groups of ", e.n, " experts"));
  problems.need(groups < 1 || !divides(groups, e.n) || e.per_token <= top_groups * (e.n / groups),
                str("model.experts_per_token is ", e.per_token, ", but the router chooses among ", top_groups,
                    " of ", groups, " groups of ", e.n, " experts"));
  problems.need(e.gate_limit >= 0 && (e.gate_limit == 0 || e.gate_alpha > 0),
                str("a gate with a limit of ", e.gate_limit, " and an alpha of ", e.gate_alpha));
  problems.need(eps >= 0 && scale > 0, str("a router with an eps of ", eps, " and a scale of ", scale));
}

void check_full_heads(const DecoderConfig& c, DecoderProblems& problems) {
  problems.need(!c.value_norm || c.qk_norm == DecoderConfig::QkNorm::heads,
                "values are normalized, but queries and keys are not, each head by itself");
  if (!c.full_heads) return;
  const FullHeads& f = *c.full_heads;
  problems.need(f.head_dim >= 2 && f.head_dim % 2 == 0 && f.head_dim <= 2048 &&
                    (c.heads < 1 || f.head_dim <= kMaxWidth / c.heads),
                str("layers that see all keys have ", c.heads, " heads of ", f.head_dim,
                    " elements; these must be even, 2 to 2048, and at most ", kMaxWidth, " together"));
  problems.need(c.heads < 1 || divides(f.kv_heads, c.heads),
                str("layers that see all keys have ", c.heads, " heads and ", f.kv_heads,
                    " of keys; the first must be a multiple of the second"));
  problems.need(f.rotary_share >= 0 && f.rotary_share <= 1,
                str("RoPE turns a share of ", f.rotary_share, " of a head; it must be 0 to 1"));
}

void check_short_conv(const DecoderConfig& c, DecoderProblems& problems) {
  const bool any = std::count(c.mixers.begin(), c.mixers.end(), Mixer::short_conv) > 0;
  const FamilyLimits limits = family_limits(c.family);
  problems.need(limits.short_conv || !any || limits.title.empty(),
                str("a layer is a short convolution, which ", limits.title, " does not have"));
  problems.need((!any && c.conv_taps == 0) || (c.conv_taps >= 2 && c.conv_taps <= 8),
                str("short convolutions have ", c.conv_taps, " taps; they must have 2 to 8"));
}

void check_mamba(const DecoderConfig& c, DecoderProblems& problems) {
  const bool any = std::any_of(c.mixers.begin(), c.mixers.end(),
                               [](Mixer m) { return m == Mixer::mamba || m == Mixer::both; });
  const FamilyLimits limits = family_limits(c.family);
  problems.need(limits.mamba || !any || limits.title.empty(),
                str("a layer is Mamba-2, which ", limits.title, " does not have"));
  const MambaConfig& m = c.mamba;
  if (!any && m.taps == 0) return;
  problems.need(m.taps >= 2 && m.taps <= 8,
                str("the convolution of Mamba-2 has ", m.taps, " taps; it must have 2 to 8"));
  const auto fits = [](std::int64_t n, std::int64_t of) { return n >= 1 && of >= 1 && n <= kMaxWidth / of; };
  problems.need(
      fits(m.heads, m.head_dim) && fits(m.groups, m.state),
      str("Mamba-2 has ", m.heads, " heads of ", m.head_dim, " elements and ", m.groups, " groups of ",
          m.state, " rows of state; each must be at least 1, and both products at ", "most ", kMaxWidth));
  problems.need(divides(m.groups, m.heads), str("Mamba-2 has ", m.heads, " heads in ", m.groups,
                                                " groups; the first must be a multiple of the second"));
  problems.need(m.step_low >= 0 && m.step_low < m.step_high,
                str("the steps of Mamba-2 are limited to ", m.step_low, " and ", m.step_high,
                    "; the first must be 0 or more, and below the second"));
}

void check_latent(const DecoderConfig& c, DecoderProblems& problems) {
  const LatentConfig& l = c.latent;
  if (l.kv_rank == 0) return;
  problems.need(
      l.selects == 0 || c.seq <= l.selects,
      str("model.seq is ", c.seq, "; the index of the model selects ", l.selects,
          " keys of longer sequences, which is not supported: set model.seq=", l.selects, " or less"));
  const auto within = [](std::int64_t n) { return n >= 1 && n <= kMaxWidth; };
  problems.need(within(l.kv_rank) && l.q_rank <= kMaxWidth,
                str("latent attention has ranks of ", l.q_rank, " and ", l.kv_rank, "; they may be at most ",
                    kMaxWidth, ", and the second at least 1"));
  problems.need(
      within(l.plain) && within(l.rotated) && l.rotated % 2 == 0 && within(l.value) &&
          l.value <= l.plain + l.rotated,
      str("heads of latent attention have ", l.plain, " and ", l.rotated, " elements, and values of ",
          l.value, "; each must be at least 1, the second even, and values no longer than both together"));
  problems.need(c.head_dim == l.plain + l.rotated && c.rotary_dim == l.rotated && c.kv_heads == c.heads,
                str("model.head_dim is ", c.head_dim, " and model.kv_heads ", c.kv_heads,
                    "; in latent attention they are ", l.plain + l.rotated, " and ", c.heads));
}

void check_delta(const DecoderConfig& c, DecoderProblems& problems) {
  const bool any = std::count(c.mixers.begin(), c.mixers.end(), Mixer::delta) > 0;
  const FamilyLimits limits = family_limits(c.family);
  problems.need(c.layers < 1 || c.layers > kMaxLayers || std::ssize(c.mixers) == c.layers,
                str("mixers have ", c.mixers.size(), " layers, but the model has ", c.layers));
  problems.need(limits.delta || !any || limits.title.empty(),
                str("a layer is a gated delta net, which ", limits.title, " does not have"));
  const DeltaConfig& d = c.delta;
  if (!any && d.taps == 0) return;
  problems.need(d.taps >= 2 && d.taps <= 8,
                str("the convolution of gated delta nets has ", d.taps, " taps; it must have 2 to 8"));
  const auto fits = [](std::int64_t heads, std::int64_t dim) {
    return heads >= 1 && dim >= 1 && heads <= kMaxWidth / dim;
  };
  problems.need(fits(d.key_heads, d.key_dim) && fits(d.value_heads, d.value_dim),
                str("gated delta nets have ", d.key_heads, " heads of keys of ", d.key_dim, " and ",
                    d.value_heads, " heads of values of ", d.value_dim,
                    "; each must be at least 1, and both products at most ", kMaxWidth));
  problems.need(divides(d.key_heads, d.value_heads),
                str("gated delta nets have ", d.value_heads, " heads of values and ", d.key_heads,
                    " of keys; the first must be a multiple of the second"));
}

}  // namespace

std::int64_t longest_sequence(const DecoderConfig& c) {
  std::int64_t longest = c.positions;
  for (const std::int64_t limit : {c.query_growth_from, c.latent.selects})
    if (limit > 0 && (longest == 0 || limit < longest)) longest = limit;
  return longest;
}

bool has_mlp(const DecoderConfig& c, std::size_t layer) {
  return !c.one_part || c.mixers[layer] == Mixer::none;
}

float embedding_scale(const DecoderConfig& c) {
  return c.embedding_factor * (c.scaled_embedding ? std::sqrt(static_cast<float>(c.hidden)) : 1.0f);
}

float score_scale(const DecoderConfig& c) {
  if (c.score_factor > 0) return c.score_factor;
  const bool own = c.query_scalar > 0 && c.query_scalar != static_cast<float>(c.head_dim);
  return own ? 1 / std::sqrt(c.query_scalar) : 0;
}

LayerHeads layer_heads(const DecoderConfig& c, std::size_t layer) {
  if (!c.full_heads || c.sliding[layer]) return {c.heads, c.kv_heads, c.head_dim};
  return {c.heads, c.full_heads->kv_heads, c.full_heads->head_dim, c.full_heads->keys_as_values};
}

bool has_softmax_routers(const DecoderConfig& c) {
  return c.experts.n > 0 && c.experts.rule.score == kernels::RouterRule::Score::softmax;
}

namespace {

// A new model without these sizes has heads as wide together as the heads of DeepSeek's are for their width.
void set_latent_sizes(DecoderConfig& c) {
  LatentConfig& l = c.latent;
  const std::int64_t of_head = c.heads > 0 ? std::max<std::int64_t>(c.hidden / c.heads / 2 * 2, 2) : 0;
  if (l.rotated == 0) l.rotated = std::max<std::int64_t>(of_head / 4 * 2, 2);
  if (l.plain == 0) l.plain = c.head_dim > l.rotated ? c.head_dim - l.rotated : of_head;
  if (l.value == 0) l.value = l.plain;
  if (l.kv_rank == 0) l.kv_rank = 4 * l.plain;
  if (c.head_dim == 0) c.head_dim = l.plain + l.rotated;
  if (c.rotary_dim == 0) c.rotary_dim = l.rotated;
}
// Elements turn in pairs.
std::int64_t usual_rotary_dim(const DecoderConfig& c) {
  if (c.rotary_interleaved) return c.head_dim / 2;
  return c.rotary_divisor == 1 ? c.head_dim
                               : std::max<std::int64_t>(c.head_dim / c.rotary_divisor / 2 * 2, 2);
}
DeltaConfig with_derived_sizes(DeltaConfig d, const DecoderConfig& c) {
  if (d.key_heads == 0) d.key_heads = c.heads;
  if (d.value_heads == 0) d.value_heads = 2 * d.key_heads;
  if (d.key_dim == 0) d.key_dim = c.head_dim / 2;
  if (d.value_dim == 0) d.value_dim = d.key_dim;
  return d;
}

MambaConfig with_derived_sizes(MambaConfig m, const DecoderConfig& c) {
  const std::int64_t inner = 2 * c.hidden;
  for (std::int64_t n = c.head_dim; n > 0 && m.head_dim == 0; --n)
    if (inner % n == 0) m.head_dim = n;
  if (m.heads == 0 && m.head_dim > 0) m.heads = std::max<std::int64_t>(inner / m.head_dim, 1);
  if (m.groups == 0) m.groups = 1;
  if (m.state == 0) m.state = 2 * m.head_dim;
  return m;
}
std::vector<Mixer> usual_mixers(const DecoderConfig& c) {
  const Mixer attention = c.latent.kv_rank > 0 ? Mixer::latent : Mixer::attention,
              other = c.mamba.taps > 0  ? Mixer::mamba
                      : c.conv_taps > 0 ? Mixer::short_conv
                                        : Mixer::delta;
  std::vector<Mixer> mixers;
  for (std::int64_t layer = 0, nth = 1; layer < c.layers; ++layer) {
    const bool has_mlp_alone = c.one_part && layer % 2 == 1;
    const bool attends = c.attention_every > 0 && nth % c.attention_every == 0;
    mixers.push_back(has_mlp_alone              ? Mixer::none
                     : c.mamba.beside_attention ? Mixer::both
                     : attends                  ? attention
                                                : other);
    nth += has_mlp_alone ? 0 : 1;
  }
  return mixers;
}

}  // namespace

DecoderConfig with_derived_sizes(DecoderConfig c) {
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  if (family_limits(c.family).latent) set_latent_sizes(c);
  if (c.head_dim == 0 && c.heads > 0) c.head_dim = c.hidden / c.heads;
  if (c.full_heads) {
    FullHeads& f = *c.full_heads;
    if (f.head_dim == 0) f.head_dim = 2 * c.head_dim;
    if (f.kv_heads == 0) f.kv_heads = c.kv_heads % 4 == 0 ? c.kv_heads / 4 : c.kv_heads;
  }
  if (c.positions == 0) c.positions = c.seq;
  if (c.rotary_dim == 0) c.rotary_dim = usual_rotary_dim(c);
  if (c.layers < 1 || c.layers > kMaxLayers) return c;  // validate() returns the error
  if (c.rope_layers.empty()) c.rope_layers = but_every(c.no_rope_every, c.layers);
  if (c.mixers.empty()) c.mixers = usual_mixers(c);
  if (c.experts.n > 0 && c.experts.ffn == 0) c.experts.ffn = c.ffn;
  if (c.experts.n > 0 && c.experts.layers.empty() && std::ssize(c.mixers) == c.layers)
    for (std::int64_t i = 0; i < c.layers; ++i)
      c.experts.layers.push_back(i >= c.experts.dense_layers && has_mlp(c, static_cast<std::size_t>(i)));
  if (c.delta.taps > 0) c.delta = with_derived_sizes(c.delta, c);
  if (c.mamba.taps > 0) c.mamba = with_derived_sizes(c.mamba, c);
  if (c.sliding.empty())
    c.sliding = c.window > 0 ? but_every(c.full_every, c.layers)
                             : std::vector<bool>(static_cast<std::size_t>(c.layers), false);
  if (c.full_last) c.sliding.back() = false;
  return c;
}

Status validate(const DecoderConfig& config) {
  DecoderProblems problems;
  if (!decoder_for_family(config.family)) {
    std::string known;
    for (const std::string_view name : decoder_families()) known += str(known.empty() ? "" : ", ", name);
    problems.need(false, str("model.family is ", config.family, "; the supported families are ", known));
  }
  const DecoderConfig c = with_derived_sizes(config);
  check_decoder_sizes(c, config.head_dim != 0, problems);
  check_decoder_attention(c, problems);
  check_experts(c, problems);
  check_full_heads(c, problems);
  check_delta(c, problems);
  check_short_conv(c, problems);
  check_mamba(c, problems);
  check_latent(c, problems);
  return problems.text.empty() ? Status::ok() : Status::error(Code::invalid, problems.text);
}

}  // namespace strata
