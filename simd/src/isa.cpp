#include <strata/simd/isa.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <atomic>

#include <strata/runtime/str.h>

namespace strata::simd {
namespace {

// A process-wide setting instead of an argument of every call: it changes speed, never results.
std::atomic<CpuIsa>& active() noexcept {
  static std::atomic<CpuIsa> isa{detect_isa()};
  return isa;
}

Status lacks(CpuIsa isa) {
  return Status::error(Code::unsupported, str("cpu.isa is ", to_string(isa),
                                              ", but the best instruction set that this CPU supports is ",
                                              to_string(detect_isa())));
}

}  // namespace

std::string_view to_string(CpuIsa isa) noexcept {
  switch (isa) {
    case CpuIsa::scalar:
      return "scalar";
    case CpuIsa::sse42:
      return "sse42";
    case CpuIsa::avx2:
      return "avx2";
    case CpuIsa::avx512:
      return "avx512";
    case CpuIsa::neon:
      return "neon";
  }
  return "unknown";
}

#if defined(__x86_64__)
namespace {

// clang 14's __builtin_cpu_supports does not know F16C.
bool has_f16c() noexcept {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

}  // namespace
#endif

bool is_supported(CpuIsa isa) noexcept {
#if defined(__x86_64__)
  switch (isa) {
    case CpuIsa::scalar:
      return true;
    case CpuIsa::sse42:
      return __builtin_cpu_supports("sse4.2") != 0;
    case CpuIsa::avx2:
      return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 && has_f16c();
    case CpuIsa::avx512:
      return is_supported(CpuIsa::avx2) && __builtin_cpu_supports("avx512f") != 0 &&
             __builtin_cpu_supports("avx512cd") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
             __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
    case CpuIsa::neon:
      return false;
  }
  return false;
#elif defined(__aarch64__)
  return isa == CpuIsa::scalar || isa == CpuIsa::neon;  // part of every AArch64 CPU that Linux runs on
#else
  return isa == CpuIsa::scalar;
#endif
}

CpuIsa detect_isa() noexcept {
  for (const CpuIsa isa : {CpuIsa::avx512, CpuIsa::avx2, CpuIsa::sse42, CpuIsa::neon})
    if (is_supported(isa)) return isa;
  return CpuIsa::scalar;
}

Result<CpuIsa> select_isa(std::string_view name) {
  if (name == "auto") return detect_isa();
  for (int i = 0; i < kCpuIsas; ++i) {
    const auto isa = static_cast<CpuIsa>(i);
    if (name != to_string(isa)) continue;
    if (!is_supported(isa)) return lacks(isa);
    return isa;
  }
  return Status::error(Code::invalid,
                       str("cpu.isa is '", name, "'; it must be auto, scalar, sse42, avx2, avx512 or neon"));
}

Status use_isa(CpuIsa isa) {
  if (!is_supported(isa)) return lacks(isa);
  active().store(isa, std::memory_order_relaxed);
  return Status::ok();
}

CpuIsa active_isa() noexcept { return active().load(std::memory_order_relaxed); }

}  // namespace strata::simd
