// Benchmarks the CPU's optimizer step against its bound, a stream of the same bytes without arithmetic, in
// interleaved rounds of one run. Reports nanoseconds per parameter and GB/s of necessary bytes. With --serve
// a caller can alternate with other programs: each line on stdin runs one round.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <strata/runtime/str.h>

#include "tensor.h"

namespace strata::bench {
namespace {

struct Options {
  std::vector<std::string> optimizers{"adamw"}, layouts{"bf16_split"}, grads{"16"}, states{"fp32"},
      isas{"auto"};
  std::vector<int> threads{1, 2};
  std::vector<double> sizes{1e7};
  int rounds = 5;
  double seconds = 0.1;     // minimum duration of one measurement
  std::int64_t passes = 0;  // passes per measurement, each timed separately; 0: as many as take `seconds`
  bool json = false, serve = false;
};

struct Job {
  cpuopt::OptimizerParams params;
  StreamShape shape;
  simd::CpuIsa isa;
  std::string layout;
};

struct Summary {
  double median = 0, low = 0, high = 0;
};
Summary summarize(std::vector<double> x) {
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

// Number of passes that take at least `seconds`.
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
  const cpuopt::UpdateStep constants = cpuopt::make_update_step(params);
  const cpuopt::RoundingNoise noise = cpuopt::rounding_noise(1, 0, step, 0);
  if (params.optimizer != cpuopt::Optimizer::lamb)
    return tensor.for_items(pool, [&](const cpuopt::UpdateBlock& b, std::int64_t n) {
      cpuopt::update_block(constants, b, n, noise);
    });
  tensor.for_items(pool, [&](const cpuopt::UpdateBlock& b, std::int64_t n) {
    double masters[BenchTensor::kBlockElems / 4096], directions[BenchTensor::kBlockElems / 4096];
    cpuopt::lamb_moments_block(constants, b, n, noise, masters, directions);
  });
  tensor.for_items(pool, [&](const cpuopt::UpdateBlock& b, std::int64_t n) {
    cpuopt::lamb_apply_block(constants, 1.0f, b, n);
  });
}

// The measurement rounds of one combination of options.
class Rounds {
 public:
  Rounds(const Job& job, std::int64_t n, ThreadPool& pool, const Options& options)
      : job_(job),
        elems_(static_cast<double>(n)),
        pool_(pool),
        tensor_(job.shape, cpuopt::moments_of(job.params), n, pool),
        alone_(options.passes > 0),
        passes_(alone_ ? options.passes : passes_for([this] { update(); }, options.seconds)) {
    update();  // faults in the pages that are only written
  }

  void run_round() {
    bound_.push_back(stream(false));
    took_.push_back(alone_ ? passes_alone() : seconds_of([this] { update(); }, passes_));
    bound_ahead_.push_back(stream(true));
    ratio_.push_back(bound_.back() / took_.back());
    ratio_ahead_.push_back(bound_ahead_.back() / took_.back());
  }

  // Prints the last round as JSON.
  void print_round() const {
    std::string singles;
    for (const double seconds : singles_)
      singles += fmt::format("{}{:.2f}", singles.empty() ? "" : ", ", seconds * 1e6);
    fmt::print(
        "{{\"ns_per_param\": {:.5f}, \"stream_ns_per_param\": {:.5f}, \"prefetched_stream_ns_per_param\": "
        "{:.5f}, \"ratio\": {:.4f}, \"prefetched_ratio\": {:.4f}, \"passes_us\": [{}]}}\n",
        ns(took_.back()), ns(bound_.back()), ns(bound_ahead_.back()), ratio_.back(), ratio_ahead_.back(),
        singles);
    std::fflush(stdout);
  }

  void print(bool json) const {
    const double bytes = necessary_bytes(job_.shape);
    const auto rate = [&](const std::vector<double>& seconds) {
      return bytes * elems_ * 1e-9 / summarize(seconds).median;
    };
    const Summary took = summarize(took_), r = summarize(ratio_);
    const char* const line =
        json ? "{{\"optimizer\": \"{}\", \"layout\": \"{}\", \"grad_bits\": {}, \"states\": \"{}\", \"isa\": "
               "\"{}\", \"threads\": {}, \"n\": {}, \"bytes_per_param\": {:.4f}, \"ns_per_param\": {:.5f}, "
               "\"ns_low\": {:.5f}, \"ns_high\": {:.5f}, \"gb_per_s\": {:.3f}, \"stream_gb_per_s\": {:.3f}, "
               "\"ratio\": {:.4f}, \"ratio_low\": {:.4f}, \"ratio_high\": {:.4f}, "
               "\"prefetched_stream_gb_per_s\": {:.3f}, \"prefetched_ratio\": {:.4f}}}\n"
             : "{:<8} {:<11} {:>4} {:<5} {:<7} {:>3} {:>10} {:>7.3f} {:>8.4f} {:>8.4f} {:>8.4f} {:>8.2f} "
               "{:>8.2f} {:>6.3f} {:>6.3f} {:>6.3f} {:>8.2f} {:>6.3f}\n";
    fmt::print(fmt::runtime(line), cpuopt::to_string(job_.params.optimizer), job_.layout,
               job_.shape.narrow_gradient ? 16 : 32, to_string(job_.shape.states), simd::to_string(job_.isa),
               pool_.threads(), static_cast<std::int64_t>(elems_), bytes, ns(took.median), ns(took.low),
               ns(took.high), rate(took_), rate(bound_), r.median, r.low, r.high, rate(bound_ahead_),
               summarize(ratio_ahead_).median);
    std::fflush(stdout);
  }

 private:
  void update() { update_all(job_, tensor_, pool_, ++step_); }
  double stream(bool prefetch) const {
    const auto kernel = select_stream_kernel(job_.shape, job_.isa, prefetch);
    return seconds_of(
        [&] {
          tensor_.for_items(pool_, [&](const cpuopt::UpdateBlock& b, std::int64_t n) { kernel(b, n); });
        },
        passes_);
  }
  // Times each pass separately and returns the mean.
  double passes_alone() {
    singles_.clear();
    double sum = 0;
    for (std::int64_t i = 0; i < passes_; ++i) {
      singles_.push_back(seconds_of([this] { update(); }, 1));
      sum += singles_.back();
    }
    return sum / static_cast<double>(passes_);
  }
  double ns(double seconds) const { return seconds * 1e9 / elems_; }

  Job job_;
  double elems_;
  ThreadPool& pool_;
  BenchTensor tensor_;
  std::int64_t step_ = 0;
  bool alone_;
  std::int64_t passes_;
  std::vector<double> took_, bound_, bound_ahead_, ratio_, ratio_ahead_, singles_;
};

void measure(const Job& job, std::int64_t n, ThreadPool& pool, const Options& options) {
  must(simd::use_isa(job.isa));
  Rounds rounds(job, n, pool, options);
  if (options.serve) {
    int served = 0;
    for (std::string line; std::getline(std::cin, line); ++served) {
      rounds.run_round();
      rounds.print_round();
    }
    if (served > 0) rounds.print(true);
    return;
  }
  for (int round = 0; round < options.rounds; ++round) rounds.run_round();
  rounds.print(options.json);
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
    return Status::error(Code::invalid, str("unknown layout '", layout,
                                            "'; choose one of f32, bf16_split, "
                                            "bf16_shadow, f16_shadow"));
  const cpuopt::MomentSet moments = cpuopt::moments_of(job.params);
  job.shape.layout = static_cast<cpuopt::MasterLayout>(at - layouts.begin());
  job.shape.moments = moments.first + moments.second;
  job.shape.narrow_gradient = grad == "16" && job.shape.layout != cpuopt::MasterLayout::f32;
  job.shape.states = states == "int8"   ? StateFormat::int8
                     : states == "bf16" ? StateFormat::bf16
                                        : StateFormat::fp32;
  STRATA_TRY_ASSIGN(job.isa, simd::select_isa(isa));
  job.layout = layout;
  return job;
}

Status run(const Options& options) {
  const std::size_t combinations = options.optimizers.size() * options.layouts.size() * options.grads.size() *
                                   options.states.size() * options.isas.size() * options.threads.size() *
                                   options.sizes.size();
  if (options.serve && combinations != 1)
    return Status::error(Code::invalid, str("--serve needs exactly one combination of options, but ",
                                            combinations, " were given"));
  if (!options.json && !options.serve)
    fmt::print(
        "{:<8} {:<11} {:>4} {:<5} {:<7} {:>3} {:>10} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6} {:>6} {:>6} "
        "{:>8} {:>6}\n",
        "optim", "layout", "grad", "state", "isa", "thr", "params", "B/par", "ns/par", "low", "high", "GB/s",
        "stream", "ratio", "low", "high", "pf str", "ratio");
  for (const int threads : options.threads) {
    STRATA_TRY_ASSIGN(const auto pool, ThreadPool::create(threads));
    for (const std::string& optimizer : options.optimizers)
      for (const std::string& layout : options.layouts)
        for (const std::string& grad : options.grads)
          for (const std::string& states : options.states)
            for (const std::string& isa : options.isas) {
              STRATA_TRY_ASSIGN(const Job job, job_of(optimizer, layout, grad, states, isa));
              for (const double size : options.sizes)
                measure(job, static_cast<std::int64_t>(size), *pool, options);
            }
  }
  return Status::ok();
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) {
  strata::bench::Options options;
  CLI::App app("Benchmarks the CPU's optimizer step against a stream of the same bytes");
  app.add_option("--optimizer", options.optimizers,
                 "names; a wrong one is refused with all names; sgd has momentum");
  app.add_option("--layout", options.layouts, "f32 bf16_split bf16_shadow f16_shadow");
  app.add_option("--grad", options.grads, "bits: 16 or 32")->check(CLI::IsMember({"16", "32"}));
  app.add_option("--states", options.states, "fp32 bf16 int8")
      ->check(CLI::IsMember({"fp32", "bf16", "int8"}));
  app.add_option("--isa", options.isas, "auto scalar sse42 avx2 avx512");
  app.add_option("--threads", options.threads, "numbers of threads");
  app.add_option("--size", options.sizes, "numbers of parameters")->check(CLI::Range(1.0, 1e11));
  app.add_option("--rounds", options.rounds, "interleaved rounds")->check(CLI::Range(1, 1000));
  app.add_option("--seconds", options.seconds, "minimum duration of one measurement")
      ->check(CLI::Range(0.0, 60.0));
  app.add_option("--passes", options.passes,
                 "passes per measurement, each timed separately; replaces --seconds")
      ->check(CLI::Range(1, 1000000));
  app.add_flag("--json", options.json, "one JSON object per line");
  app.add_flag("--serve", options.serve,
               "run one round for each line on stdin and print it as JSON (one combination of options only)");
  CLI11_PARSE(app, argc, argv);
  if (const strata::Status status = strata::bench::run(options); !status.is_ok()) {
    fmt::print(stderr, "cpuopt_bench: {}\n", status.message());
    return 2;
  }
  return 0;
}
