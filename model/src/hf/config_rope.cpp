#include "config_rope.h"

#include <algorithm>

namespace strata::detail {
namespace {

using Frequencies = RopeFrequencies;
using Scaling = Frequencies::Scaling;

/// 0.1 m ln(s) + 1: YaRN's attention factor, which grows with the length (Peng et al. 2023, section 3.4).
double yarn_mscale(double factor, double m) { return factor <= 1 ? 1.0 : 0.1 * m * std::log(factor) + 1.0; }

void read_yarn(Keys& s, const DecoderConfig& c, Frequencies& f) {
  f.scaling = Scaling::yarn;
  f.factor = s.positive({"factor"});
  f.original_positions = static_cast<float>(s.integer({"original_max_position_embeddings"}, c.positions));
  f.beta_fast = s.positive({"beta_fast"}, 32.0);
  f.beta_slow = s.positive({"beta_slow"}, 1.0);
  f.truncate = s.flag("truncate", true);
  const auto factor = static_cast<double>(f.factor);
  const double m = s.number({"mscale"}, 0.0), m_all = s.number({"mscale_all_dim"}, 0.0);
  const double grown =
      m != 0 && m_all != 0 ? yarn_mscale(factor, m) / yarn_mscale(factor, m_all) : yarn_mscale(factor, 1);
  f.attention_factor = s.positive({"attention_factor"}, grown);
  if (!(f.theta > 1)) s.unsupported(str("rope_theta is ", f.theta, " with YaRN, which needs its logarithm"));
  if (!(f.original_positions > 0)) s.unsupported("original_max_position_embeddings is 0 with YaRN");
}

void read_scaling(Keys& k, const json& scaling, const DecoderConfig& c, Frequencies& f) {
  if (!scaling.is_object()) return k.unsupported(str("rope_scaling is ", scaling.dump().substr(0, 80)));
  Keys s = k.within(scaling);
  f.theta = s.positive({"rope_theta"}, static_cast<double>(f.theta));
  const std::string type = s.text({"rope_type", "type"}, "default");
  if (type != "default" && c.family == "phi3") {  // Phi-3 only has longrope, and formerly called it yarn
    s.unsupported(str("rope_scaling.rope_type is ", type));
  } else if (type == "linear") {
    f.scaling = Scaling::linear;
    f.factor = s.positive({"factor"});
  } else if (type == "llama3") {
    f.scaling = Scaling::llama3;
    f.factor = s.positive({"factor"});
    f.low_freq_factor = s.positive({"low_freq_factor"});
    f.high_freq_factor = s.positive({"high_freq_factor"});
    f.original_positions = static_cast<float>(s.integer({"original_max_position_embeddings"}));
  } else if (type == "yarn") {
    read_yarn(s, c, f);
  } else if (type != "default") {
    s.unsupported(str("rope_scaling.rope_type is ", type));
  }
  k.take(s);
}

/// Reads the fraction of a head's elements that RoPE rotates.
void read_rotary_dim(Keys& k, DecoderConfig& c) {
  const bool known = c.rotary_interleaved || c.family == "phi3";
  double share = k.number({"partial_rotary_factor"}, c.rotary_interleaved ? 0.5 : 1.0);
  if (const json* rope = k.find({"rope_parameters"});
      rope != nullptr && rope->contains("partial_rotary_factor"))
    share = k.within(*rope).number({"partial_rotary_factor"});
  if (!known && share != 1.0) return k.unsupported("partial_rotary_factor is not 1");
  if (!(share >= 0 && share <= 1)) {
    k.unsupported(str("partial_rotary_factor is ", share));
    share = 0;
  }
  if (!known) return;
  const std::int64_t d = c.head_dim > 0 || c.heads == 0 ? c.head_dim : c.hidden / c.heads;
  c.rotary_dim = static_cast<std::int64_t>(static_cast<double>(d) * share);
}

/// Reads settings per kind of layer: {"full_attention": {...}, "sliding_attention": {...}}.
void read_by_layer(Keys& k, const json& rope, DecoderConfig& c) {
  for (const auto& [kind, f] :
       {std::pair{"full_attention", &c.frequencies}, std::pair{"sliding_attention", &*c.sliding_frequencies}})
    if (const auto at = rope.find(kind); at != rope.end() && !at->is_null()) read_scaling(k, *at, c, *f);
}

json scaling_json(const Frequencies& f) {
  switch (f.scaling) {
    case Scaling::none:
      return nullptr;
    case Scaling::linear:
      return {{"rope_type", "linear"}, {"factor", decimal(f.factor)}};
    case Scaling::llama3:
      return {{"rope_type", "llama3"},
              {"factor", decimal(f.factor)},
              {"low_freq_factor", decimal(f.low_freq_factor)},
              {"high_freq_factor", decimal(f.high_freq_factor)},
              {"original_max_position_embeddings", static_cast<std::int64_t>(f.original_positions)}};
    case Scaling::yarn: {
      json j = {{"rope_type", "yarn"},
                {"factor", decimal(f.factor)},
                {"beta_fast", decimal(f.beta_fast)},
                {"beta_slow", decimal(f.beta_slow)},
                {"truncate", f.truncate},
                {"original_max_position_embeddings", static_cast<std::int64_t>(f.original_positions)}};
      // Omit a factor that readers compute themselves, with more digits than f32 has.
      if (f.attention_factor != static_cast<float>(yarn_mscale(static_cast<double>(f.factor), 1)))
        j["attention_factor"] = decimal(f.attention_factor);
      return j;
    }
  }
  return nullptr;
}

}  // namespace

void read_rope(Keys& k, DecoderConfig& c) {
  c.frequencies.theta = k.positive({"rope_theta"}, static_cast<double>(c.frequencies.theta));
  if (c.sliding_frequencies)
    c.sliding_frequencies->theta =
        k.positive({"rope_local_base_freq"}, static_cast<double>(c.sliding_frequencies->theta));
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    const json* scaling = k.find({name});
    if (scaling == nullptr) continue;
    if (c.sliding_frequencies &&
        (scaling->contains("full_attention") || scaling->contains("sliding_attention")))
      read_by_layer(k, *scaling, c);
    else
      read_scaling(k, *scaling, c, c.frequencies);
  }
  read_rotary_dim(k, c);
}

json rope_json(const DecoderConfig& c) {
  json j = {{"rope_theta", decimal(c.frequencies.theta)}, {"rope_scaling", scaling_json(c.frequencies)}};
  if (c.rotary_interleaved || c.family == "phi3")
    j["partial_rotary_factor"] = static_cast<double>(c.rotary_dim) / static_cast<double>(c.head_dim);
  if (!c.sliding_frequencies) return j;
  j["rope_local_base_freq"] = decimal(c.sliding_frequencies->theta);
  json full = scaling_json(c.frequencies), sliding = scaling_json(*c.sliding_frequencies);
  for (const auto& [of, f] :
       {std::pair{&full, &c.frequencies}, std::pair{&sliding, &*c.sliding_frequencies}}) {
    if (of->is_null()) *of = {{"rope_type", "default"}};
    (*of)["rope_theta"] = decimal(f->theta);
  }
  j["rope_parameters"] = {{"full_attention", full}, {"sliding_attention", sliding}};
  return j;
}

double decimal(float x) { return std::stod(str(x)); }

}  // namespace strata::detail
