// Times the GEMMs of the linear layers of a model's training step, and nothing else.
//   step_products FOLDER f32|bf16 STEPS THREADS SEQ
// FOLDER has the model's config.json; a step has one sequence of SEQ tokens. Prints the seconds of each step,
// after an untimed one, and the rate, as JSON. The claim `hybrid_step` compares it with a step.
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/kernels/bf16_gemm.h>
#include <strata/model/decoder.h>
#include <strata/model/hf/folder.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/clock.h>

#include "step_gemms.h"

namespace {

using strata::must;

void run(const char* folder, strata::DType dtype, int steps, int threads, std::int64_t seq) {
  if (dtype == strata::DType::bf16)
    strata::kernels::force_widened_bf16_gemm(strata::kernels::measure_bf16_gemm().widened_is_faster());
  strata::DecoderConfig config = must(strata::HfFolder::config_of(strata::posix_io(), folder));
  config.seq = seq;
  const strata::Program program =
      must(strata::record_decoder(config, 1, strata::DecoderHead::logits, strata::DecoderRows::whole, dtype));
  strata::SteadyClock clock;
  const auto pool = must(strata::ThreadPool::create(threads));
  const auto backend = must(strata::create_host_backend({}, *pool, clock));
  const strata::bench::StepGemms products(program, *backend);
  std::vector<double> seconds;
  for (int step = 0; step <= steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    products.run(*pool);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  seconds.erase(seconds.begin());
  fmt::print("{{\"seconds\": [{:.6f}], \"gflop\": {:.1f}, \"gemm\": \"{}\"}}\n", fmt::join(seconds, ", "),
             products.flops() * 1e-9, strata::kernels::bf16_gemm_kind());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view dtype = argc == 6 ? argv[2] : "";
  if (dtype != "f32" && dtype != "bf16") {
    fmt::print(stderr, "usage: step_products FOLDER f32|bf16 STEPS THREADS SEQ\n");
    return 2;
  }
  try {
    run(argv[1], dtype == "f32" ? strata::DType::f32 : strata::DType::bf16, std::atoi(argv[3]),
        std::atoi(argv[4]), std::atoi(argv[5]));
  } catch (const std::exception& error) {
    fmt::print(stderr, "step_products: {}\n", error.what());
    return 1;
  }
  return 0;
}
