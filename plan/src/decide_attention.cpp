#include "decide_attention.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/config/decide.h>
#include <strata/config/load_config.h>
#include <strata/config/train_config.h>
#include <strata/kernels/attention.h>
#include <strata/kernels/values/attention_order.h>
#include <strata/kernels/cublaslt_algorithms.h>
#include <strata/kernels/values/attention_backend.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

using kernels::AttentionBackend;

/// A backend that the machine has, and its rates.
struct MeasuredBackend {
  AttentionBackend backend;
  double forward, backward;  ///< FLOP/s; 0: not measured
};

// The fastest first. What was not measured is assumed to be faster the later it stands in the enumeration: on
// a GPU of compute capability 9.0, mma.sync reaches about half of what wgmma does, and that half of cuDNN.
std::string order_of(std::vector<MeasuredBackend> all, bool backward) {
  const auto rate = [&](const MeasuredBackend& c) {
    return backward && c.backward > 0 ? c.backward : c.forward;
  };
  const bool measured =
      std::all_of(all.begin(), all.end(), [&](const MeasuredBackend& c) { return rate(c) > 0; });
  std::stable_sort(all.begin(), all.end(), [&](const MeasuredBackend& a, const MeasuredBackend& b) {
    return measured ? rate(a) > rate(b) : a.backend > b.backend;
  });
  std::vector<std::string_view> names;
  for (const MeasuredBackend& c : all) {
    names.push_back(kernels::to_string(c.backend));
    if (c.backend == AttentionBackend::mma) break;  // it supports everything
  }
  return fmt::format("{}", fmt::join(names, ","));
}

bool is_here(AttentionBackend backend) {
  return backend == AttentionBackend::wgmma   ? kernels::cuda_has_wgmma()
         : backend == AttentionBackend::cudnn ? kernels::cudnn_version().has_value()
                                              : true;
}
std::string names_of(const std::vector<AttentionBackend>& order) {
  std::vector<std::string_view> names;
  for (const AttentionBackend backend : order)
    if (is_here(backend)) names.push_back(kernels::to_string(backend));
  return names.empty() ? std::string("mma") : fmt::format("{}", fmt::join(names, ","));
}

// A run that was begun on another machine may prefer backends that this one lacks.
void keep_what_is_here(TrainConfig& c) {
  const kernels::AttentionOrder order = must(kernels::parse_attention_order(c.train.attention_backend));
  if (order.forward.size() == 1 && order.backward == order.forward) return;  // refused if it is not here
  const std::string forward = names_of(order.forward), backward = names_of(order.backward);
  c.train.attention_backend = forward == backward ? forward : str(forward, "/", backward);
}

}  // namespace

void decide_attention(LoadedConfig& loaded, const MachineProfile* profile, bool other_machine) {
  if (loaded.config.train.attention_backend != "auto") {
    if (loaded.config.memory.backend == "cuda" && !other_machine) keep_what_is_here(loaded.config);
    return;
  }
  const auto decided = [&](std::string order, std::string why) {
    decide(loaded, "train.attention_backend", std::move(order), std::move(why));
  };
  if (loaded.config.memory.backend != "cuda")
    return decided("mma", "attention on the CPU does not depend on it");
  const MachineProfile none, &p = profile != nullptr ? *profile : none;
  std::vector<MeasuredBackend> all = {
      {AttentionBackend::mma, p.attention_flops_per_s, p.attention_backward_flops_per_s}};
  if (other_machine ? p.wgmma_attention_flops_per_s > 0 : is_here(AttentionBackend::wgmma))
    all.push_back(
        {AttentionBackend::wgmma, p.wgmma_attention_flops_per_s, p.wgmma_attention_backward_flops_per_s});
  if (other_machine ? p.cudnn_attention_flops_per_s > 0 : is_here(AttentionBackend::cudnn))
    all.push_back(
        {AttentionBackend::cudnn, p.cudnn_attention_flops_per_s, p.cudnn_attention_backward_flops_per_s});
  const std::string forward = order_of(all, false), backward = order_of(all, true);
  decided(forward == backward ? forward : str(forward, "/", backward),
          profile != nullptr ? str("the fastest first, by the profile of ", p.name)
                             : std::string("those that this machine has, the fastest first"));
}

}  // namespace strata
