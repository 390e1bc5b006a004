// The CPU's optimizer step beside its bound: nanoseconds a parameter and GB/s of necessary bytes, and the
// same bytes moved with no arithmetic, in interleaved rounds of one run.

#include <algorithm>
#include <chrono>
#include <cstdio>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <strata/runtime/str.h>

#include "tensor.h"

namespace strata::bench {
namespace {

struct Choice {
  std::vector<std::string> optimizers{"adamw"}, layouts{"bf16_split"}, grads{"16"}, states{"fp32"},
      isas{"auto"};
  std::vector<int> threads{1, 2};
  std::vector<double> sizes{1e7};
  int rounds = 5;
  double seconds = 0.1;  // of one measurement, at least
  bool json = false;
};

struct Job {
  cpuopt::OptimizerParams params;
  StreamShape shape;
  cpuopt::CpuIsa isa;
  std::string layout;
};

struct Figure {
  double median = 0, low = 0, high = 0;
};
Figure figure_of(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return {x[x.size() / 2], x.front(), x.back()};
}

template <class Pass>
double seconds_of(const Pass& pass, std::int64_t passes) {
  const auto begin = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < passes; ++i) pass();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() /
         static_cast<double>(passes);
}

// Passes that fill the time of one measurement.
template <class Pass>
std::int64_t passes_for(const Pass& pass, double seconds) {
  std::int64_t passes = 1;
  while (passes < (std::int64_t{1} << 30)) {
    const double took = seconds_of(pass, passes) * static_cast<double>(passes);
    if (took >= seconds) break;
    passes = std::max(
        passes * 2, static_cast<std::int64_t>(static_cast<double>(passes) * seconds / std::max(took, 1e-7)));
  }
  return passes;
}

void update_all(const Job& job, const BenchTensor& tensor, ThreadPool& pool, std::int64_t step) {
  cpuopt::OptimizerParams params = job.params;
  params.step = step;
  const cpuopt::UpdateStep constants = cpuopt::update_step(params);
  const cpuopt::Dither dither = cpuopt::dither_of(1, 0, step, 0);
  if (params.optimizer != cpuopt::Optimizer::lamb)
    return tensor.for_items(pool, [&](const cpuopt::UpdateBlock& b, std::int64_t n) {
      cpuopt::update_block(constants, b, n, dither);
    });
  tensor.for_items(pool, [&](const cpuopt::UpdateBlock& b, std::int64_t n) {
    double masters[BenchTensor::kBlockElems / 4096], directions[BenchTensor::kBlockElems / 4096];
    cpuopt::lamb_moments_block(constants, b, n, dither, masters, directions);
  });
  tensor.for_items(pool, [&](const cpuopt::UpdateBlock& b, std::int64_t n) {
    cpuopt::lamb_apply_block(constants, 1.0f, b, n);
  });
}

void measure(const Job& job, std::int64_t n, ThreadPool& pool, const Choice& choice) {
  must(cpuopt::use_isa(job.isa));
  const BenchTensor tensor(job.shape, cpuopt::moments_of(job.params), n, pool);
  std::int64_t step = 0;
  const auto update = [&] { update_all(job, tensor, pool, ++step); };
  const auto stream = [&](bool prefetch) {
    return [&tensor, &pool, body = stream_of(job.shape, job.isa, prefetch)] {
      tensor.for_items(pool, [&](const cpuopt::UpdateBlock& b, std::int64_t len) { body(b, len); });
    };
  };
  const auto plain = stream(false), ahead = stream(true);
  const std::int64_t passes = passes_for(update, choice.seconds);
  std::vector<double> took, bound, bound_ahead, ratio, ratio_ahead;
  for (int round = 0; round < choice.rounds; ++round) {
    bound.push_back(seconds_of(plain, passes));
    took.push_back(seconds_of(update, passes));
    bound_ahead.push_back(seconds_of(ahead, passes));
    ratio.push_back(bound.back() / took.back());
    ratio_ahead.push_back(bound_ahead.back() / took.back());
  }
  const double bytes = necessary_bytes(job.shape), elems = static_cast<double>(n);
  const auto rate = [&](const std::vector<double>& seconds) {
    return bytes * elems * 1e-9 / figure_of(seconds).median;
  };
  const Figure ns = figure_of(took), r = figure_of(ratio);
  const char* const line =
      choice.json
          ? "{{\"optimizer\": \"{}\", \"layout\": \"{}\", \"grad_bits\": {}, \"states\": \"{}\", \"isa\": "
            "\"{}\", "
            "\"threads\": {}, \"n\": {}, \"bytes_per_param\": {:.4f}, \"ns_per_param\": {:.5f}, \"ns_low\": "
            "{:.5f}, "
            "\"ns_high\": {:.5f}, \"gb_per_s\": {:.3f}, \"stream_gb_per_s\": {:.3f}, \"ratio\": {:.4f}, "
            "\"ratio_low\": {:.4f}, \"ratio_high\": {:.4f}, \"prefetched_stream_gb_per_s\": {:.3f}, "
            "\"prefetched_ratio\": {:.4f}}}\n"
          : "{:<8} {:<11} {:>4} {:<5} {:<7} {:>3} {:>10} {:>7.3f} {:>8.4f} {:>8.4f} {:>8.4f} {:>8.2f} "
            "{:>8.2f} "
            "{:>6.3f} {:>6.3f} {:>6.3f} {:>8.2f} {:>6.3f}\n";
  fmt::print(fmt::runtime(line), cpuopt::to_string(job.params.optimizer), job.layout,
             job.shape.narrow_gradient ? 16 : 32, to_string(job.shape.states), cpuopt::to_string(job.isa),
             pool.threads(), n, bytes, ns.median * 1e9 / elems, ns.low * 1e9 / elems, ns.high * 1e9 / elems,
             rate(took), rate(bound), r.median, r.low, r.high, rate(bound_ahead),
             figure_of(ratio_ahead).median);
  std::fflush(stdout);
}

Result<Job> job_of(const std::string& optimizer, const std::string& layout, const std::string& grad,
                   const std::string& states, const std::string& isa) {
  Job job;
  STRATA_TRY_ASSIGN(job.params.optimizer, cpuopt::optimizer_named(optimizer));
  job.params.weight_decay = 0.1;
  job.params.lr = 1e-6;
  job.params.grad_factor = 0.5;
  if (job.params.optimizer == cpuopt::Optimizer::sgd) job.params.momentum = 0.9;
  const std::array<std::string, 4> layouts = {"f32", "bf16_split", "bf16_shadow", "f16_shadow"};
  const auto at = std::find(layouts.begin(), layouts.end(), layout);
  if (at == layouts.end())
    return Status::error(Code::invalid, str("there is no layout '", layout,
                                            "'; there are f32, bf16_split, "
                                            "bf16_shadow, f16_shadow"));
  const cpuopt::MomentSet kept = cpuopt::moments_of(job.params);
  job.shape.layout = static_cast<cpuopt::MasterLayout>(at - layouts.begin());
  job.shape.moments = kept.first + kept.second;
  job.shape.narrow_gradient = grad == "16" && job.shape.layout != cpuopt::MasterLayout::f32;
  job.shape.states = states == "int8"   ? StateFormat::int8
                     : states == "bf16" ? StateFormat::bf16
                                        : StateFormat::fp32;
  STRATA_TRY_ASSIGN(job.isa, cpuopt::select_isa(isa));
  job.layout = layout;
  return job;
}

Status run(const Choice& choice) {
  if (!choice.json)
    fmt::print(
        "{:<8} {:<11} {:>4} {:<5} {:<7} {:>3} {:>10} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6} {:>6} {:>6} "
        "{:>8} {:>6}\n",
        "optim", "layout", "grad", "state", "isa", "thr", "params", "B/par", "ns/par", "low", "high", "GB/s",
        "stream", "ratio", "low", "high", "pf str", "ratio");
  for (const int threads : choice.threads) {
    STRATA_TRY_ASSIGN(const auto pool, ThreadPool::create(threads));
    for (const std::string& optimizer : choice.optimizers)
      for (const std::string& layout : choice.layouts)
        for (const std::string& grad : choice.grads)
          for (const std::string& states : choice.states)
            for (const std::string& isa : choice.isas) {
              STRATA_TRY_ASSIGN(const Job job, job_of(optimizer, layout, grad, states, isa));
              for (const double size : choice.sizes)
                measure(job, static_cast<std::int64_t>(size), *pool, choice);
            }
  }
  return Status::ok();
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) {
  strata::bench::Choice choice;
  CLI::App app("The CPU's optimizer step beside a stream of the same bytes");
  app.add_option("--optimizer", choice.optimizers, "adamw adam lion lamb adagrad sgd (with momentum)");
  app.add_option("--layout", choice.layouts, "f32 bf16_split bf16_shadow f16_shadow");
  app.add_option("--grad", choice.grads, "bits: 16 or 32")->check(CLI::IsMember({"16", "32"}));
  app.add_option("--states", choice.states, "fp32 bf16 int8")->check(CLI::IsMember({"fp32", "bf16", "int8"}));
  app.add_option("--isa", choice.isas, "auto scalar sse42 avx2 avx512");
  app.add_option("--threads", choice.threads, "counts of threads");
  app.add_option("--size", choice.sizes, "counts of parameters")->check(CLI::Range(1.0, 1e11));
  app.add_option("--rounds", choice.rounds, "interleaved rounds")->check(CLI::Range(1, 1000));
  app.add_option("--seconds", choice.seconds, "of one measurement, at least")->check(CLI::Range(0.0, 60.0));
  app.add_flag("--json", choice.json, "one object a line");
  CLI11_PARSE(app, argc, argv);
  if (const strata::Status status = strata::bench::run(choice); !status.is_ok()) {
    fmt::print(stderr, "cpuopt_bench: {}\n", status.message());
    return 2;
  }
  return 0;
}
