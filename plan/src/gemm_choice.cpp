#include <strata/plan/gemm_choice.h>

#include <fmt/format.h>

#include <strata/config/load_config.h>
#include <strata/kernels/bf16_gemm.h>
#include <strata/runtime/str.h>

#include <strata/config/decide.h>
#include <strata/config/run_paths.h>

namespace strata {
namespace {

using kernels::Bf16Gemm;

constexpr const char* kKey = "cpu.bf16_matmul";
constexpr const char* kNative = "native";
constexpr const char* kWidened = "widened";

bool cpu_has_bf16() { return kernels::native_bf16_gemm() != Bf16Gemm::widened; }

void decide(LoadedConfig& loaded, const char* choice, std::string why) {
  decide(loaded, kKey, std::string(choice), std::move(why));
}

void decide_by_time(LoadedConfig& loaded) {
  // Measured once, so that all plans of this process compute the same bits.
  static const kernels::Bf16GemmTimes times = kernels::measure_bf16_gemm();
  const bool native = !times.widened_is_faster();
  decide(loaded, native ? kNative : kWidened,
         fmt::format("{} takes {:.2f} times as long as widening to f32, measured at the start",
                     kernels::to_string(kernels::native_bf16_gemm()), times.native_s / times.widened_s));
}

// Whether the value comes from a run, possibly from another machine, and was not requested for this machine.
bool is_from_run_config(const LoadedConfig& loaded) {
  return !run_of_origin(loaded.tree.entry(kKey).origin).empty();
}

}  // namespace

Status resolve_bf16_gemm(LoadedConfig& loaded) {
  TrainConfig& c = loaded.config;
  const bool may_compute_in_bf16 =
      c.memory.backend != "cuda" && (c.train.dtype == "bf16" || c.train.dtype == "auto");
  if (c.cpu.bf16_matmul == kNative && !cpu_has_bf16() && !is_from_run_config(loaded))
    return Status::error(Code::unsupported,
                         str(loaded.tree.entry(kKey).origin, ": ", kKey,
                             " = native, but this CPU has neither AVX512-BF16 nor AMX; set it to "
                             "auto or widened"));
  if (c.cpu.bf16_matmul == "auto" && may_compute_in_bf16 && !cpu_has_bf16())
    decide(loaded, kWidened, "this CPU has neither AVX512-BF16 nor AMX");
  else if (c.cpu.bf16_matmul == "auto" && may_compute_in_bf16)
    decide_by_time(loaded);
  kernels::force_widened_bf16_gemm(c.cpu.bf16_matmul == kWidened);
  return {};
}

Status resolve_bf16_gemm_as(const std::string& implementation, LoadedConfig& loaded) {
  const bool native = implementation == kernels::to_string(kernels::native_bf16_gemm()) && cpu_has_bf16();
  if (loaded.config.cpu.bf16_matmul == "auto" &&
      (native || implementation == kernels::to_string(Bf16Gemm::widened)))
    decide(loaded, native ? kNative : kWidened, "as in the run of the checkpoint");
  return resolve_bf16_gemm(loaded);
}

void carry_over_bf16_gemm(const LoadedConfig& before, LoadedConfig& loaded) {
  const ConfigEntry& was = before.tree.entry(kKey);
  if (loaded.config.cpu.bf16_matmul != "auto" || !was.resolved) return;
  decide(loaded, before.config.cpu.bf16_matmul == kNative ? kNative : kWidened, was.why);
}

std::string bf16_gemm_text(const LoadedConfig& loaded) {
  const TrainConfig& c = loaded.config;
  if (c.memory.backend == "cuda" || c.train.dtype != "bf16") return {};
  const ConfigEntry& entry = loaded.tree.entry(kKey);
  return str("bf16 ", kernels::bf16_gemm() == Bf16Gemm::widened ? "" : "by ", kernels::bf16_gemm_kind(), ": ",
             entry.automatic ? entry.why : str(kKey, " is set by ", entry.origin));
}

}  // namespace strata
