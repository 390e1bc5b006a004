#include "other_names.h"

#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

constexpr OtherName kOtherNames[] = {
    {"bfloat16", "bf16"},
    {"tensor_parallel.tensor_parallel", "tensor_parallel.tp"},
    {"tensor_parallel.replace_with_kernel_inject", "tensor_parallel.kernel_inject"},
    {"zero_optimization.prefetch_bucket_size", "zero_optimization.stage3_prefetch_bucket_size"},
    {"zero_optimization.param_persistence_threshold", "zero_optimization.stage3_param_persistence_threshold"},
    {"zero_optimization.model_persistence_threshold", "zero_optimization.stage3_model_persistence_threshold"},
    {"zero_optimization.max_live_parameters", "zero_optimization.stage3_max_live_parameters"},
    {"zero_optimization.max_reuse_distance", "zero_optimization.stage3_max_reuse_distance"},
    {"zero_optimization.gather_16bit_weights_on_model_save",
     "zero_optimization.stage3_gather_16bit_weights_on_model_save"},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save",
     "zero_optimization.stage3_gather_16bit_weights_on_model_save"},
    {"zero_optimization.module_granularity_threshold",
     "zero_optimization.stage3_module_granularity_threshold"},
    {"zero_optimization.use_all_reduce_for_fetch_params",
     "zero_optimization.stage3_use_all_reduce_for_fetch_params"},
    {"zero_optimization.allgather_sequential", "zero_optimization.stage3_allgather_sequential"},
};

}  // namespace

std::span<const OtherName> other_names() noexcept { return kOtherNames; }

std::string table_name(std::string_view written) {
  for (const OtherName& other : kOtherNames)
    if (written == other.name || is_below(written, other.name))
      return str(other.key, written.substr(other.name.size()));
  return std::string(written);
}

}  // namespace strata::detail
