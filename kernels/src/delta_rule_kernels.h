#include "delta_rule_table.h"
#include "recurrent/delta_pairs.h"
#include "recurrent/delta_unit_simd.h"

namespace strata::kernels::STRATA_ISA {
namespace {

template <class T>
void forward(const detail::DeltaForwardOperands<T>& a, std::int64_t at, std::int64_t slots) {
  detail::forward_slot(DeltaUnit(), a, at, slots);
}
template <class T>
void backward(const detail::DeltaBackwardOperands<T>& a, std::int64_t at, std::int64_t slots) {
  detail::backward_slot(DeltaUnit(), a, at, slots);
}
template <class T>
void cached(const detail::DeltaCachedOperands<T>& a, std::int64_t at, std::int64_t slots) {
  detail::cached_slot(DeltaUnit(), a, at, slots);
}

}  // namespace

extern const detail::DeltaRuleTable<float> delta_rule_f32 = {&forward<float>, &backward<float>,
                                                             &cached<float>};
extern const detail::DeltaRuleTable<bf16> delta_rule_bf16 = {&forward<bf16>, &backward<bf16>, &cached<bf16>};
extern const detail::DeltaRuleTable<f16> delta_rule_f16 = {&forward<f16>, &backward<f16>, &cached<f16>};

}  // namespace strata::kernels::STRATA_ISA
