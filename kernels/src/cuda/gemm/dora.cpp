#include <strata/kernels/dora.h>

#include "backend/cuda/cuda_stream.h"
#include "cuda/gemm/device_gemm.h"
#include "cuda/gemm/dora_norm.h"
#include "cuda/quant/dequantize_panel.h"
#include "adapters/dora_panels.h"

namespace strata::kernels::cuda {
namespace {

struct DeviceSteps {
  const DoraNormArgs& args;
  cudaStream_t queue;

  Status multiply(const detail::Gemm& gemm) const { return detail::device_gemm(gemm, nullptr, {}, queue); }
  Status dequantize(const detail::Panel& panel, std::byte* out) const {
    return detail::launch_dequantize_panel(args.matrix, args.w.data, panel, args.a.dtype, out, queue);
  }
  Status write_norms(const detail::DoraRows& rows) const {
    return detail::launch_write_norms(rows, args.a.dtype, queue);
  }
};

}  // namespace

Status dora_norm(Backend&, Stream& stream, const DoraNormArgs& a) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return detail::for_each_dora_panel(a, DeviceSteps{a, queue});
}

}  // namespace strata::kernels::cuda
