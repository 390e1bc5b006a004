#include "backend/cuda/cuda_devices.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <string>

#include <strata/runtime/backend/cuda_device.h>
#include <strata/runtime/str.h>
#include <strata/runtime/threads/topology.h>
#include <strata/runtime/units.h>

#include "backend/cuda/cuda_error.h"

namespace strata {
namespace detail {
namespace {

std::string version(int number) { return str(number / 1000, ".", number % 1000 / 10); }

}  // namespace

Status count_gpus(int& n) {
  STRATA_CUDA_TRY(cudaGetDeviceCount(&n));
  return n > 0 ? Status() : Status::error(Code::unsupported, "cudaGetDeviceCount found no GPU");
}

Status check_gpu(int device) {
  int n = 0;
  if (!count_gpus(n).is_ok()) return Status::error(Code::unsupported, cuda_status());
  if (device < 0 || device >= n)
    return Status::error(Code::unsupported,
                         str("GPU ", device, " was requested, but the number of GPUs is ", n));
  return {};
}

int numa_node_of_gpu(int device) {
  std::array<char, 32> slot{};  // "0000:3B:00.0"
  if (cudaDeviceGetPCIBusId(slot.data(), static_cast<int>(slot.size()) - 1, device) != cudaSuccess) {
    (void)cudaGetLastError();
    return kAllNumaNodes;
  }
  std::string name(slot.data());
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::ifstream file("/sys/bus/pci/devices/" + name + "/numa_node");
  int node = kAllNumaNodes;  // the kernel also reports -1 on machines with a single node
  return file >> node && node >= 0 ? node : kAllNumaNodes;
}

}  // namespace detail

Result<CudaDevice> cuda_device(int device) {
  STRATA_TRY(detail::check_gpu(device));
  cudaDeviceProp properties{};
  STRATA_CUDA_TRY(cudaGetDeviceProperties(&properties, device));
  STRATA_CUDA_TRY(cudaSetDevice(device));
  CudaDevice found{properties.name, 10 * properties.major + properties.minor, 0, 0};
  STRATA_CUDA_TRY(cudaMemGetInfo(&found.free_bytes, &found.total_bytes));
  return found;
}

int cuda_device_count() {
  int n = 0;
  return detail::count_gpus(n).is_ok() ? n : 0;
}

bool cuda_available() { return cuda_device_count() > 0; }

std::string cuda_status() {
  int n = 0, driver = 0, runtime = 0;
  if (const Status status = detail::count_gpus(n); !status.is_ok()) return str("no GPU: ", status.message());
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  std::string text = str(n, n == 1 ? " GPU" : " GPUs", ", driver for CUDA ", detail::version(driver),
                         ", runtime ", detail::version(runtime));
  for (int i = 0; i < n; ++i) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) continue;
    text += str("; ", i, ": ", properties.name, ", ", format_bytes(properties.totalGlobalMem), ", sm_",
                properties.major, properties.minor);
  }
  return text;
}

}  // namespace strata
