#include "hf/config/rope.h"

#include <algorithm>
#include <cmath>

#include "family/family.h"

namespace strata::detail {
namespace {

using Frequencies = RopeFrequencies;
using Scaling = Frequencies::Scaling;

/// 0.1 m ln(s) + 1: YaRN's attention factor, which grows with the length (Peng et al. 2023, section 3.4).
double yarn_mscale(double factor, double m) { return factor <= 1 ? 1.0 : 0.1 * m * std::log(factor) + 1.0; }

/// The settings of RoPE in one place of a config.
struct Section {
  const json* values;
  std::string name;       ///< "rope_scaling"
  bool is_global = true;  ///< not of one kind of layers
};

// As in transformers, a value beside the section comes before one in it.
float original_positions(Keys& k, Keys& s, const Section& section, const DecoderConfig& c) {
  const char* const name = "original_max_position_embeddings";
  const bool is_beside = section.is_global && k.find({name}) != nullptr;
  const std::int64_t n = is_beside ? k.integer({name}) : s.integer({name}, c.positions);
  if (n == 0) s.unsupported(str(section.name, ".", name, " is 0"));
  return static_cast<float>(n);
}

void read_yarn(Keys& s, Frequencies& f) {
  f.scaling = Scaling::yarn;
  f.factor = s.positive({"factor"});
  f.beta_fast = s.positive({"beta_fast"}, 32.0);
  f.beta_slow = s.positive({"beta_slow"}, 1.0);
  f.truncate = s.flag("truncate", true);
  const auto factor = static_cast<double>(f.factor);
  const double m = s.number({"mscale"}, 0.0), m_all = s.number({"mscale_all_dim"}, 0.0);
  const double grown =
      m != 0 && m_all != 0 ? yarn_mscale(factor, m) / yarn_mscale(factor, m_all) : yarn_mscale(factor, 1);
  f.attention_factor = s.positive({"attention_factor"}, grown);
  if (!(f.theta > 1)) s.unsupported(str("rope_theta is ", f.theta, " with YaRN, which needs its logarithm"));
}

void read_query_growth(Keys& s, const Section& section, DecoderConfig& c) {
  c.query_growth = static_cast<float>(s.number({"llama_4_scaling_beta"}));
  if (c.query_growth == 0) return;
  c.query_growth_from = s.integer({"original_max_position_embeddings"});
  if (c.query_growth_from == 0) s.unsupported(str(section.name, ".original_max_position_embeddings is 0"));
}

void read_scaling(Keys& k, const Section& section, DecoderConfig& c, Frequencies& f) {
  if (!section.values->is_object())
    return k.unsupported(str(section.name, " is ", section.values->dump().substr(0, 80)));
  Keys s = k.within(*section.values, section.name + ".");
  f.theta = s.positive({"rope_theta"}, static_cast<double>(f.theta));
  const std::string type = s.text({"rope_type", "type"}, "default");
  f = {.theta = f.theta};  // nothing is left of a family's own scaling
  const bool knows = family_of(c).hf.has_rope_scalings;
  if (type == "linear" && knows) {
    f.scaling = Scaling::linear;
    f.factor = s.positive({"factor"});
  } else if (type == "llama3" && knows) {
    f.scaling = Scaling::llama3;
    f.factor = s.positive({"factor"});
    f.low_freq_factor = s.positive({"low_freq_factor"});
    f.high_freq_factor = s.positive({"high_freq_factor"});
    f.original_positions = original_positions(k, s, section, c);
  } else if (type == "yarn" && knows) {
    read_yarn(s, f);
    if (family_of(c).hf.mixers == HfMixers::latent)
      c.latent.mscale_all = static_cast<float>(s.number({"mscale_all_dim"}, 0.0));
    f.original_positions = original_positions(k, s, section, c);
  } else if (type == "dynamic" && family_of(c).hf.has_rope_alpha && s.find({"alpha"}) != nullptr) {
    // A fixed alpha stretches the base, whatever the length of a sequence is.
    const auto d = static_cast<double>(c.head_dim > 0 || c.heads == 0 ? c.head_dim : c.hidden / c.heads);
    if (d <= 2) return k.unsupported(str(section.name, ".alpha with heads of ", d));
    f.theta = static_cast<float>(static_cast<double>(f.theta) *
                                 std::pow(static_cast<double>(s.positive({"alpha"})), d / (d - 2)));
  } else if (type != "default") {
    s.unsupported(str(section.name, s.find({"rope_type"}) != nullptr ? ".rope_type is " : ".type is ", type));
  }
  if (family_of(c).hf.has_query_growth) read_query_growth(s, section, c);
  k.take(s);
}

/// What Ministral 3's configuration has without rope_parameters.
void set_usual_growth(DecoderConfig& c) {
  c.query_growth = 0.1f;
  c.query_growth_from = 16384;
  c.frequencies.scaling = Scaling::yarn;
  c.frequencies.factor = 16;
  c.frequencies.original_positions = 16384;
}

/// Reads the fraction of a head's elements that RoPE rotates. `section`: null if there is none.
void read_rotary_dim(Keys& k, const Section* section, DecoderConfig& c) {
  constexpr const char* kName = "partial_rotary_factor";
  const double usual = family_of(c).hf.rotary_share;
  const bool known = usual > 0;
  std::string name = kName;
  double share = k.number({kName}, known ? usual : 1.0);
  if (section != nullptr && section->values->is_object() && section->values->contains(kName)) {
    name = str(section->name, ".", kName);
    Keys s = k.within(*section->values, section->name + ".");
    share = s.number({kName});
    k.take(s);
  }
  if (!known && share != 1.0) return k.unsupported(str(name, " is ", share));
  if (!(share >= 0 && share <= 1)) {
    k.unsupported(str(name, " is ", share));
    share = 0;
  }
  if (!known) return;
  const std::int64_t d = c.head_dim > 0 || c.heads == 0 ? c.head_dim : c.hidden / c.heads;
  c.rotary_dim = static_cast<std::int64_t>(static_cast<double>(d) * share);
  if (c.rotary_dim % 2 != 0)
    k.unsupported(str(name, " is ", share, ", by which ", c.rotary_dim, " of ", d,
                      " elements of a head turn, an odd number"));
}

/// Reads settings per kind of layer, {"full_attention": {...}, "sliding_attention": {...}}. What is in
/// rope_scaling replaces keys of the former.
void read_by_layer(Keys& k, const json* by_layer, const json* scaling, DecoderConfig& c) {
  json full = {{"rope_type", "default"}};
  Section of_full{&full, "rope_parameters.full_attention", false};
  if (by_layer != nullptr && !by_layer->is_object())
    return k.unsupported(str("rope_parameters is ", by_layer->dump().substr(0, 80)));
  const json none = json::object();
  for (const auto& [kind, values] : (by_layer == nullptr ? none : *by_layer).items()) {
    if (values.is_null()) continue;
    const Section section{&values, str("rope_parameters.", kind), false};
    if (kind == "full_attention")
      full = values;
    else if (kind == "sliding_attention")
      read_scaling(k, section, c, *c.sliding_frequencies);
    else
      k.unsupported(str(section.name, " is ", values.dump().substr(0, 80), ", of no kind of layers"));
  }
  if (scaling != nullptr && scaling->is_object() && full.is_object()) {
    full.update(*scaling);
    of_full.name = "rope_scaling";
  } else if (scaling != nullptr) {
    of_full = {scaling, "rope_scaling", false};
  }
  read_scaling(k, of_full, c, c.frequencies);
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
  const bool is_gemma = family_of(c).hf.is_gemma;
  if (c.sliding_frequencies && is_gemma)  // elsewhere only rope_parameters have it
    c.sliding_frequencies->theta =
        k.positive({"rope_local_base_freq"}, static_cast<double>(c.sliding_frequencies->theta));
  const json *scaling = k.find({"rope_scaling"}), *const parameters = k.find({"rope_parameters"});
  if (scaling != nullptr && scaling->is_object() && scaling->empty()) scaling = nullptr;
  if (c.sliding_frequencies) {
    read_by_layer(k, parameters, scaling, c);
    return read_rotary_dim(k, nullptr, c);
  }
  // If there are both, transformers reads the former alone.
  const Section section =
      scaling != nullptr ? Section{scaling, "rope_scaling"} : Section{parameters, "rope_parameters"};
  if (section.values == nullptr) {
    if (family_of(c).hf.has_query_growth) set_usual_growth(c);
    return read_rotary_dim(k, nullptr, c);
  }
  for (const char* const kind : {"full_attention", "sliding_attention"})
    if (section.values->contains(kind))
      k.unsupported(str(section.name, ".", kind, " is ", (*section.values)[kind].dump().substr(0, 80),
                        ", and all layers of ", c.family, " have the same"));
  read_scaling(k, section, c, c.frequencies);
  read_rotary_dim(k, &section, c);
}

json rope_json(const DecoderConfig& c) {
  json j = {{"rope_theta", decimal(c.frequencies.theta)}, {"rope_scaling", scaling_json(c.frequencies)}};
  if (c.latent.mscale_all != 0) j["rope_scaling"]["mscale_all_dim"] = decimal(c.latent.mscale_all);
  // Without the key, a family with a scaling of its own has that one.
  if (j["rope_scaling"].is_null() && decoder_for_family(c.family)->frequencies.scaling != Scaling::none)
    j["rope_scaling"] = {{"rope_type", "default"}};
  if (family_of(c).hf.rotary_share > 0)
    j["partial_rotary_factor"] = static_cast<double>(c.rotary_dim) / static_cast<double>(c.head_dim);
  if (family_of(c).hf.has_query_growth) {  // transformers needs both keys of the growth
    json all = scaling_json(c.frequencies);
    if (all.is_null()) all = {{"rope_type", "default"}};
    all.update(
        {{"rope_theta", decimal(c.frequencies.theta)}, {"llama_4_scaling_beta", decimal(c.query_growth)}});
    if (c.query_growth_from > 0 || !all.contains("original_max_position_embeddings"))
      all["original_max_position_embeddings"] = c.query_growth_from > 0 ? c.query_growth_from : c.positions;
    j["rope_scaling"] = nullptr;
    j["rope_parameters"] = all;
    return j;
  }
  if (!c.sliding_frequencies) return j;
  if (family_of(c).hf.is_gemma) j["rope_local_base_freq"] = decimal(c.sliding_frequencies->theta);
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
