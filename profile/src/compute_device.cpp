#include <strata/profile/compute_device.h>

#include <strata/kernels/bf16_gemm.h>
#include <strata/kernels/cublaslt_algorithms.h>
#include <strata/runtime/backend/cuda_backend.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

constexpr int kMinComputeCapability =
    80;  // compute capability 8.0: it has bf16 tensor cores and is the oldest that kernels are built for

}  // namespace

int gpu_of_local_rank(int local_rank) { return cuda_device_count() == 1 ? 0 : local_rank; }

Result<ComputeDevice> usable_gpu(int index) {
  STRATA_TRY_ASSIGN(const CudaDevice gpu, cuda_device(index));
  if (gpu.compute_capability < kMinComputeCapability)
    return Status::error(Code::unsupported,
                         str(gpu.name, " has compute capability ", gpu.compute_capability / 10, ".",
                             gpu.compute_capability % 10, "; kernels need ", kMinComputeCapability / 10, ".",
                             kMinComputeCapability % 10, " or later"));
  return ComputeDevice{DeviceKind::cuda, gpu.name, gpu.free_bytes, gpu.compute_capability};
}

Result<ComputeDevice> compute_device(const std::string& backend, int index) {
  if (backend != "cuda") return ComputeDevice{};
  auto gpu = usable_gpu(index);
  if (!gpu.has_value())
    return Status::error(gpu.status().code(), str("memory.backend = cuda: ", gpu.status().message(),
                                                  "; memory.backend=host computes on the CPU"));
  return gpu;
}

Result<std::unique_ptr<Backend>> create_backend(DeviceKind kind, const BackendOptions& options,
                                                ThreadPool& pool, Clock& clock) {
  if (kind == DeviceKind::cuda)
    return create_cuda_backend(
        {.device = options.gpu, .device_bytes = options.device_bytes, .trace = options.trace}, pool);
  HostBackendOptions host_options;
  host_options.queue_depth = options.queue_depth;
  host_options.trace = options.trace;
  return create_host_backend(host_options, pool, clock);
}

std::string gemm_implementation(const std::string& backend, const std::string& dtype,
                                const std::string& attention) {
  if (backend == "cuda") {
    const auto device = compute_device(backend);
    const bool by_cudnn = attention.find("cudnn") != std::string::npos;
    const auto cudnn = by_cudnn ? kernels::cudnn_version() : Result<std::string>("");
    return str(kernels::cublaslt_version(), by_cudnn ? ", " : "", cudnn.has_value() ? *cudnn : "no cuDNN",
               " on ", device.has_value() ? device->name : std::string("no GPU"));
  }
  return dtype == "bf16" ? kernels::bf16_gemm_kind() : "";
}

namespace {

// The first line names the implementation: another GPU or library version may not have an algorithm, or may
// use its identifier for a different one.
std::string algorithms_header(const std::string& implementation) { return str("# ", implementation, "\n"); }

}  // namespace

std::string gemm_algorithms_text(const std::string& implementation) {
  return algorithms_header(implementation) + kernels::cuda_gemm_algorithms() +
         kernels::cuda_attention_plans();
}

Result<bool> load_gemm_algorithms(const std::string& file, const std::string& implementation, Io& io) {
  constexpr std::uint64_t kMaxFileBytes = std::uint64_t{16} << 20;  // a line is about 200 bytes
  if (!io.exists(file)) return true;
  STRATA_TRY_ASSIGN(const std::string text, read_text(io, file, kMaxFileBytes));
  if (!text.starts_with(algorithms_header(implementation))) return false;
  STRATA_TRY(kernels::use_cuda_gemm_algorithms(text).annotate(file));
  STRATA_TRY(kernels::use_cuda_attention_plans(text).annotate(file));
  return true;
}

}  // namespace strata
