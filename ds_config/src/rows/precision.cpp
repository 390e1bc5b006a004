#include <cmath>
#include <cstdint>

#include <strata/runtime/str.h>

#include "conversions.h"

namespace strata::detail {
namespace {

/// fp16.enabled and bf16.enabled.
Outcome dtype(const TableRow& row, const Json& value, const Document& document) {
  if (!value.is_boolean()) return not_a_boolean();
  const bool is_bf16 = row.row.key == "bf16.enabled";
  const std::string_view other = is_bf16 ? "fp16.enabled" : "bf16.enabled";
  if (value == true) {
    if (document.is_true(other)) return refused(str("it excludes ", other));
    return taken("train.dtype", is_bf16 ? "bf16" : "f16");
  }
  if (document.is_true(other) || document.is_auto(other)) return meaningless(str(other, " sets the dtype"));
  return taken("train.dtype", "f32", "without fp16 and bf16 DeepSpeed trains in f32");
}

Outcome loss_scale(const TableRow& row, const Json& value, const Document&) {
  if (!value.is_number() || value.get<double>() < 0) return not_in_range(row, "a number");
  const double scale = value.get<double>();
  if (scale == 0) return meaningless("strata's loss scale is always dynamic");
  int exponent = 0;
  if (std::frexp(scale, &exponent) != 0.5 || scale < 1 || scale > row.max)
    return refused("strata's loss scale is a power of two from 1 to 2^24");
  return taken("optim.loss_scale", static_cast<std::int64_t>(scale),
               "the first one; strata halves it on an overflow and repeats the step");
}

Outcome initial_scale(const TableRow& row, const Json& value, const Document& document) {
  if (!is_integer(value) || value.get<double>() < 0) return not_in_range(row, "an integer");
  if (document.number("fp16.loss_scale", 0) != 0) return meaningless("fp16.loss_scale sets it");
  if (value.get<double>() > 24)
    return taken("optim.loss_scale", 1 << 24, "the largest of strata, 2^24; it is adjusted on overflow");
  return taken("optim.loss_scale", 1 << value.get<int>(), "the first one, 2^this; adjusted on overflow");
}

Outcome overflow(const TableRow&, const Json& value, const Document&) {
  if (!value.is_boolean()) return not_a_boolean();
  if (value == true)
    return taken("optim.non_finite", "skip", "a step whose gradient is not finite is skipped");
  return taken("optim.non_finite", "stop",
               "strata never applies a gradient that is not finite: it stops and names the tensor");
}

Outcome bf16_states(const TableRow&, const Json& value, const Document&) {
  if (!value.is_boolean()) return not_a_boolean();
  if (value == false) return meaningless("moments are f32 by default");
  return taken("offload.states", "bf16", "moments of 2 bytes, which strata rounds at random");
}

constexpr std::string_view kScaling =
    "strata doubles the loss scale after 2,000 good steps, halves it on an overflow, and repeats that step";
constexpr std::string_view kMasters = "the masters of 16-bit parameters are always f32";
constexpr std::string_view kAutocast = "strata computes all of a model in train.dtype";
constexpr std::string_view kQuantized = "strata does not train quantized weights";
constexpr TableRow kPrecisionRows[] = {
    {{"fp16.enabled", DsVerdict::taken, "train.dtype", "parameters and activations; masters are f32"}, dtype},
    {{"fp16.loss_scale", DsVerdict::taken, "optim.loss_scale", "the first loss scale"},
     loss_scale,
     {},
     0,
     16777216},
    {{"fp16.initial_scale_power", DsVerdict::taken, "optim.loss_scale", "the first loss scale"},
     initial_scale,
     {},
     0,
     24},
    {{"fp16.auto_cast", DsVerdict::meaningless, "", "inputs are tokens"}},
    {{"fp16.loss_scale_window", DsVerdict::meaningless, "optim.loss_scale", kScaling}},
    {{"fp16.hysteresis", DsVerdict::meaningless, "optim.loss_scale", kScaling}},
    {{"fp16.consecutive_hysteresis", DsVerdict::meaningless, "optim.loss_scale", kScaling}},
    {{"fp16.min_loss_scale", DsVerdict::meaningless, "optim.loss_scale", kScaling}},
    {{"fp16.fp16_master_weights_and_grads", DsVerdict::refused, "", kMasters}, nullptr, "false"},
    {{"bf16.enabled", DsVerdict::taken, "train.dtype", "parameters and activations; masters are f32"}, dtype},
    {{"bf16.check_grad_overflow", DsVerdict::taken, "optim.non_finite", "gradients that are not finite"},
     overflow},
    {{"bf16.immediate_grad_update", DsVerdict::meaningless, "", "when gradients are added changes no sum"}},
    {{"bf16.bf16_master_weights_and_grads", DsVerdict::refused, "", kMasters}, nullptr, "false"},
    {{"bf16.bf16_optimizer_states", DsVerdict::taken, "offload.states", "the format of the moments"},
     bf16_states},
    {{"data_types.grad_accum_dtype", DsVerdict::refused, "", "gradients of micro-batches are added in f32"},
     nullptr,
     "\"fp32\"|\"float32\"|\"float\"|\"torch.float32\""},
    {{"data_types.param_dtype", DsVerdict::meaningless, "train.dtype",
      "DeepSpeed requires it to be what fp16 and bf16 say"}},
    {{"data_types.buffer_dtype", DsVerdict::meaningless, "", "the models have no buffers that are stored"}},
    {{"data_types.keep_in_fp32_modules", DsVerdict::refused, "train.dtype", kAutocast},
     nullptr,
     "\"auto\"|[]",
     0,
     0,
     true},
    {{"torch_autocast.enabled", DsVerdict::refused, "train.dtype", kAutocast}, nullptr, "false"},
    {{"torch_autocast.dtype", DsVerdict::refused, "train.dtype", kAutocast}},
    {{"torch_autocast.lower_precision_safe_modules", DsVerdict::refused, "train.dtype", kAutocast}},
    {{"amp.enabled", DsVerdict::refused, "train.dtype", "strata has no Apex; use fp16 or bf16"},
     nullptr,
     "false"},
    {{"amp.*", DsVerdict::refused, "train.dtype", "strata has no Apex; use fp16 or bf16"}},
    {{"weight_quantization.enabled", DsVerdict::refused, "", kQuantized}, nullptr, "false"},
    {{"weight_quantization.num_bits", DsVerdict::refused, "", kQuantized}},
    {{"weight_quantization.q_type", DsVerdict::refused, "", kQuantized}},
    {{"weight_quantization.q_groups", DsVerdict::refused, "", kQuantized}},
    {{"weight_quantization.quantized_initialization", DsVerdict::refused, "", kQuantized}},
    {{"weight_quantization.post_init_quant", DsVerdict::refused, "", kQuantized}},
    {{"quantize_training.*", DsVerdict::refused, "", kQuantized}},
    {{"compression_training.*", DsVerdict::refused, "", "strata does not prune or quantize what it trains"}},
    {{"eigenvalue.*", DsVerdict::refused, "", kQuantized}},
};

}  // namespace

std::span<const TableRow> precision_rows() noexcept { return kPrecisionRows; }

}  // namespace strata::detail
