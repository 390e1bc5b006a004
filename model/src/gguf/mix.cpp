#include "gguf/mix.h"

#include <charconv>
#include <string>

namespace strata::detail {
namespace {

GgufFormat most_of(GgufMix mix) {
  switch (mix) {
    case GgufMix::f32:
      return GgufFormat::f32;
    case GgufMix::f16:
      return GgufFormat::f16;
    case GgufMix::q4_0:
      return GgufFormat::q4_0;
    case GgufMix::q8_0:
      return GgufFormat::q8_0;
    case GgufMix::q4_k_m:
      return GgufFormat::q4_k;
    case GgufMix::q5_k_m:
      return GgufFormat::q5_k;
    case GgufMix::q6_k:
      return GgufFormat::q6_k;
    case GgufMix::bf16:
      return GgufFormat::bf16;
    case GgufMix::mxfp4_moe:
      return GgufFormat::q8_0;  // the matrices that are not those of experts
  }
  return GgufFormat::f32;
}

constexpr std::int64_t kFewExperts = 8;

/// The first and the last eighth of the layers, and every third one between.
bool deserves_more_bits(std::int64_t layer, std::int64_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

/// The N of "blk.N.ffn_down.weight"; -1 outside the layers.
std::int64_t number_of_layer(std::string_view name) {
  std::int64_t layer = -1;
  if (name.starts_with("blk.")) std::from_chars(name.data() + 4, name.data() + name.size(), layer);
  return layer;
}

}  // namespace

GgufMixOf gguf_mix_of(GgufMix mix, const GgufArchitecture& architecture, const DecoderConfig& config,
                      bool has_head) {
  const bool is_70b =
      config.layers == 80 &&
      (architecture.is_70b || (architecture.is_70b_if_grouped && config.heads != config.kv_heads));
  return {mix, config.layers, is_70b, has_head, config.experts.n};
}

GgufFormat gguf_matrix_format(const GgufMixOf& of, const GgufTensor& tensor) {
  const GgufFormat most = most_of(of.mix);
  const GgufBlock block = gguf_block(most);
  if (block.elems == 1) return most;
  if (of.mix == GgufMix::mxfp4_moe && tensor.shape.size() == 3 && of.experts > 1) return GgufFormat::mxfp4;
  const std::string_view name = tensor.name;
  if (name == "output.weight" || (!of.has_head && name == "token_embd.weight"))
    return tensor.columns() % block.elems != 0 || most == GgufFormat::q8_0 ? GgufFormat::q8_0
                                                                           : GgufFormat::q6_k;
  const auto ends = [&](std::string_view part) { return name.ends_with(part); };
  const bool is_value = ends("attn_v.weight") || ends("attn_qkv.weight"),
             is_down = name.find("ffn_down") != std::string_view::npos;
  // In a model of 8 experts the few values of attention deserve more.
  if (of.experts == kFewExperts && (is_value || ends("attn_k.weight"))) return GgufFormat::q8_0;
  if (of.experts == kFewExperts && of.mix == GgufMix::q4_k_m && ends("attn_output.weight"))
    return GgufFormat::q5_k;
  const bool is_medium = of.mix == GgufMix::q4_k_m || of.mix == GgufMix::q5_k_m;
  if (is_medium && (is_value || is_down) && deserves_more_bits(number_of_layer(name), of.layers))
    return GgufFormat::q6_k;
  return of.is_70b && is_value && most == GgufFormat::q4_k ? GgufFormat::q5_k : most;
}

GgufFormat gguf_fitting_format(GgufFormat format, std::uint64_t columns) {
  const auto fits = [&](GgufFormat one) { return columns % gguf_block(one).elems == 0; };
  if (fits(format)) return format;
  const GgufFormat smaller = format == GgufFormat::q4_k   ? GgufFormat::q5_0
                             : format == GgufFormat::q5_k ? GgufFormat::q5_1
                             : format == GgufFormat::q6_k ? GgufFormat::q8_0
                                                          : format;
  return fits(smaller) ? smaller : GgufFormat::f16;
}

}  // namespace strata::detail
