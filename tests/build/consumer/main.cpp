#include <cstdio>
#include <vector>

#include <strata/cpuopt/adamw.h>
#include <strata/engine/engine.h>
#include <strata/graph/builder.h>
#include <strata/graph/passes.h>
#include <strata/model/decoder.h>
#include <strata/runtime/memory/alloc_counter.h>
#include <strata/runtime/memory/budget.h>

int main() {
  strata::Budget pinned("pinned", 4096);
  const strata::Reservation reservation = strata::must(pinned.reserve(100, "an example"));
  std::printf("%zu of %zu bytes reserved\n", pinned.reserved_bytes(), pinned.limit_bytes());

  strata::Builder builder;
  const strata::Value x = builder.input("x", {8, 4}, strata::DType::f32);
  const strata::Value weight = builder.param("weight", {2, 4}, {.init = {.std = 0.02f}});
  const strata::Program program = strata::must(builder.finish({{"y", builder.linear(x, weight)}}));
  std::printf("%s", strata::to_string(program).c_str());

  // The plan is computed by the real engine, so this links all modules and their dependencies.
  const strata::DecoderConfig config{.layers = 1, .hidden = 16, .heads = 2, .ffn = 32, .vocab = 32, .seq = 8};
  strata::ProgramSet programs;
  programs[strata::ProgramRole::eval] =
      strata::must(strata::record_decoder(config, 1, strata::DecoderHead::loss));
  programs[strata::ProgramRole::train] =
      strata::must(strata::derive_backward(programs[strata::ProgramRole::eval], "loss"));
  programs[strata::ProgramRole::infer] =
      strata::must(strata::record_decoder(config, 1, strata::DecoderHead::logits));
  const auto plan = strata::must(strata::Engine::plan(programs, {}));
  std::printf("a model of %lld parameters is planned\n",
              static_cast<long long>(strata::count_parameters(config)));

  // Only the CPU optimizer, for a trainer that has its own states.
  std::vector<float> p(8, 1.0f), m(8), v(8);
  const std::vector<float> g(8, 0.5f);
  strata::must(strata::cpuopt::adamw_update({.lr = 0.125}, p, g, m, v));
  std::printf("a step took a parameter from 1 to %.3f\n", static_cast<double>(p[0]));

  strata::AllocCounter::set_armed(true);
  const std::uint64_t before = strata::AllocCounter::count();
  ::operator delete(::operator new(1));  // the compiler may omit a new expression
  strata::AllocCounter::set_armed(false);
  std::printf("%d allocation counted\n", static_cast<int>(strata::AllocCounter::count() - before));
}
