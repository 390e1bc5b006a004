#include "hf/config/quantization.h"

#include <algorithm>

#include <strata/kernels/values/weight_format.h>
#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

constexpr std::int64_t kInt4Group = kernels::traits_of(kernels::WeightFormat::int4).block_columns;

void read_bitsandbytes(Keys& keys, Keys& quantization) {
  if (quantization.flag("load_in_4bit", false) && quantization.text({"bnb_4bit_quant_type"}, "fp4") != "nf4")
    keys.unsupported("quantization_config.bnb_4bit_quant_type is not nf4");
}

void read_fp8(Keys& keys, Keys& quantization) {
  const json* const block = quantization.find({"weight_block_size"});
  if (block == nullptr || *block != json::array({128, 128}))
    keys.unsupported(str("quantization_config.weight_block_size is ",
                         block == nullptr ? "not there" : block->dump(), ", not [128,128]"));
  if (const std::string scheme = quantization.text({"activation_scheme"}, "dynamic"); scheme != "dynamic")
    keys.unsupported(str("quantization_config.activation_scheme is '", scheme, "', not dynamic"));
  if (const std::string scales = quantization.text({"scale_fmt"}, "float"); scales != "float")
    keys.unsupported(str("quantization_config.scale_fmt is '", scales, "', not float"));
}

/// Refuses every value but one; null and no value are `otherwise`.
void must_equal(Keys& keys, const json& object, const std::string& section, const char* name,
                const json& want, const json& otherwise) {
  const json* const given = keys.within(object).find({name});
  const json& is = given == nullptr ? otherwise : *given;
  if (is != want)
    keys.unsupported(str(section, ".", name, " is ", is.dump().substr(0, 80), ", not ", want.dump()));
}

/// A group of matrices that compressed-tensors has quantized alike.
void read_int4_group(Keys& keys, const json& group, const std::string& section) {
  for (const char* const name : {"input_activations", "output_activations"})
    must_equal(keys, group, section, name, nullptr, nullptr);
  must_equal(keys, group, section, "format", "pack-quantized", "pack-quantized");
  const json* const given = keys.within(group).find({"weights"});
  const json& weights = given == nullptr ? json() : *given;
  const std::string of_weights = section + ".weights";
  must_equal(keys, weights, of_weights, "num_bits", 4, nullptr);
  must_equal(keys, weights, of_weights, "type", "int", "int");
  must_equal(keys, weights, of_weights, "strategy", "group", "group");
  must_equal(keys, weights, of_weights, "group_size", kInt4Group, nullptr);
  must_equal(keys, weights, of_weights, "symmetric", true, true);
  must_equal(keys, weights, of_weights, "dynamic", false, false);
  must_equal(keys, weights, of_weights, "actorder", nullptr, nullptr);
}

bool is_nothing(const json* value) { return value == nullptr || value->empty(); }

// Kimi K2's releases leave all but experts in bf16.
bool leaves_attention(const json* ignored) {
  return ignored != nullptr && ignored->is_array() &&
         std::any_of(ignored->begin(), ignored->end(), [](const json& pattern) {
           return pattern.is_string() &&
                  pattern.get_ref<const std::string&>().find("self_attn") != std::string::npos;
         });
}

void read_compressed_tensors(Keys& keys, const json& given, DecoderConfig& config) {
  const std::string section = "quantization_config";
  must_equal(keys, given, section, "format", "pack-quantized", nullptr);
  must_equal(keys, given, section, "quantization_status", "compressed", "compressed");
  must_equal(keys, given, section, "kv_cache_scheme", nullptr, nullptr);
  const Keys quantization = keys.within(given);
  for (const char* const name : {"sparsity_config", "transform_config"})
    if (!is_nothing(quantization.find({name}))) keys.unsupported(str(section, ".", name, " is there"));
  const json* const groups = quantization.find({"config_groups"});
  if (groups == nullptr || !groups->is_object() || groups->empty())
    keys.unsupported(str(section, ".config_groups is not there"));
  else
    for (const auto& [name, group] : groups->items())
      read_int4_group(keys, group, str(section, ".config_groups.", name));
  config.experts.only_quantized |= config.experts.n > 0 && leaves_attention(quantization.find({"ignore"}));
}

}  // namespace

void read_quantization(Keys& keys, DecoderConfig& config) {
  const json* const given = keys.find({"quantization_config"});
  if (given == nullptr) return;
  Keys quantization = keys.within(*given);
  const std::string method = given->is_object() ? quantization.text({"quant_method"}, "") : "";
  if (method == "bitsandbytes")
    read_bitsandbytes(keys, quantization);
  else if (method == "fp8")
    read_fp8(keys, quantization);
  else if (method == "compressed-tensors")
    read_compressed_tensors(keys, *given, config);
  else if (method != "mxfp4")
    keys.unsupported(str("quantization_config.quant_method is '", method,
                         "', neither bitsandbytes, fp8, mxfp4 nor compressed-tensors"));
  keys.take(quantization);
}

}  // namespace strata::detail
