#include <string_view>

#include <strata/runtime/str.h>

#include "cuda/launches.h"

// Replaces src/cuda/ in a build without CUDA.
namespace strata::state_kernels::cuda {
namespace {

Status absent(std::string_view op) {
  return Status::error(Code::unsupported, str(op, ": this build has no CUDA support"));
}

}  // namespace

Status update(Backend&, Stream&, const UpdateArgs&) { return absent("update"); }
Status lamb_partials(Backend&, Stream&, const LambPartialsArgs&) { return absent("lamb_partials"); }
Status lamb_apply(Backend&, Stream&, const LambApplyArgs&) { return absent("lamb_apply"); }
Status accumulate(Backend&, Stream&, const AccumulateArgs&) { return absent("accumulate"); }
Status square_sum_partials(Backend&, Stream&, const SquareSumPartialsArgs&) {
  return absent("square_sum_partials");
}

}  // namespace strata::state_kernels::cuda
