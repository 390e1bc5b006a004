#include "recurrent/delta_unit_simd.h"
#include "recurrent/scan_pairs.h"
#include "state_scan_table.h"

namespace strata::kernels::STRATA_ISA {
namespace {

template <class T>
void scan_forward(const detail::ScanForwardOperands<T>& a, std::int64_t at, std::int64_t slots) {
  detail::forward_slot(DeltaUnit(), a, at, slots);
}
template <class T>
void scan_backward(const detail::ScanBackwardOperands<T>& a, std::int64_t at, std::int64_t slots) {
  detail::backward_slot(DeltaUnit(), a, at, slots);
}
template <class T>
void scan_cached(const detail::ScanCachedOperands<T>& a, std::int64_t at, std::int64_t slots) {
  detail::cached_slot(DeltaUnit(), a, at, slots);
}

template <class T>
constexpr detail::StateScanTable<T> make_state_scan_table() {
  return {&scan_forward<T>, &scan_backward<T>, &scan_cached<T>};
}

}  // namespace

extern const detail::StateScanTable<float> state_scan_f32 = make_state_scan_table<float>();
extern const detail::StateScanTable<bf16> state_scan_bf16 = make_state_scan_table<bf16>();
extern const detail::StateScanTable<f16> state_scan_f16 = make_state_scan_table<f16>();

}  // namespace strata::kernels::STRATA_ISA
