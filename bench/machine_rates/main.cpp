#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <CLI/CLI.hpp>

#include <strata/runtime/backend/cuda_backend.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "machine_rates/rates.h"

// Measures what strata bench does not: DRAM by number of threads, the link by size of copy, the device's peak
// of bf16 GEMMs on random data, and its attention kernels. Writes lines of JSON to stdout, each as soon as it
// is measured, so that an interrupted run keeps its results. The first line is {"machine": {...}}; the others
// are {"part": NAME, "row": {...}}, where a row that cannot be measured has the reason in "skipped". A part
// that failed ends with {"part": NAME, "error": "..."}, and the exit code is 1.
namespace strata::bench {

std::string summary(const char* unit, std::vector<double> rates) {
  std::sort(rates.begin(), rates.end());
  return fmt::format("{{\"{}\": {:.2f}, \"min\": {:.2f}, \"max\": {:.2f}}}", unit, rates[rates.size() / 2],
                     rates.front(), rates.back());
}

Result<std::string> rate(Bench& bench, const char* unit, double work, const std::function<Status()>& round) {
  STRATA_TRY(round());  // warm-up: faults pages in and wakes threads
  std::vector<double> rates;
  for (int i = 0; i < bench.options.rounds; ++i) {
    const std::int64_t start = bench.clock.now_ns();
    STRATA_TRY(round());
    rates.push_back(work / static_cast<double>(bench.clock.now_ns() - start));
  }
  return summary(unit, std::move(rates));
}

std::string skipped(std::string_view why) { return str("{\"skipped\": ", json_string(why), "}"); }

namespace {

Result<Bench> make_bench(const Options& options) {
  Bench bench;
  bench.options = options;
  bench.facts = read_host_facts();
  STRATA_TRY_ASSIGN(bench.topology, read_topology());
  const auto min_bytes = std::size_t{128} * kMiB;
  const auto given = static_cast<std::size_t>(options.gib * static_cast<double>(kGiB)) / kMiB * kMiB;
  bench.bytes =
      given > 0 ? std::max(given, min_bytes)
                : std::clamp<std::size_t>(bench.facts.usable_ram_bytes() / 16 / kMiB * kMiB, min_bytes, kGiB);
  STRATA_TRY_ASSIGN(bench.pool, ThreadPool::create(0));
  bench.gpu = cuda_available();
  STRATA_TRY_ASSIGN(bench.backend, bench.gpu ? create_cuda_backend({}, *bench.pool)
                                             : create_host_backend({}, *bench.pool, bench.clock));
  return bench;
}

std::string machine(const Bench& bench) {
  const CpuFeatures cpu = read_cpu_features();
  return fmt::format(
      "{{\"cpu\": {}, \"isa\": \"{}\", \"cores\": {}, \"threads\": {}, \"ram_bytes\": {}, \"device\": {}, "
      "\"kernel\": {}, \"buffer_bytes\": {}}}",
      json_string(cpu.name), cpu.isa(), bench.topology.cores, bench.topology.usable_threads,
      bench.facts.total_ram_bytes, json_string(bench.gpu ? bench.backend->info().name : "no GPU"),
      json_string(bench.facts.kernel), bench.bytes);
}

struct Part {
  const char* name;
  Status (*measure)(Bench& bench, const RowSink& row);
};
constexpr Part kParts[] = {{"dram", dram},
                           {"link", link},
                           {"peak", peak},
                           {"matrix", matrix},
                           {"attention_mma", attention_mma},
                           {"attention_wgmma", attention_wgmma},
                           {"attention_cudnn", attention_cudnn}};

void print_line(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

int run(const Options& options) {
  Bench bench = must(make_bench(options));
  print_line(str("{\"machine\": ", machine(bench), "}"));
  bool failed = false;
  for (const Part& part : kParts) {
    if (!options.only.empty() && options.only != part.name) continue;
    std::fprintf(stderr, "machine_rates: %s\n", part.name);
    const auto line = [&](const char* key, const std::string& value) {
      print_line(str("{\"part\": \"", part.name, "\", \"", key, "\": ", value, "}"));
    };
    const Status measured = part.measure(bench, [&](const std::string& row) { line("row", row); });
    if (measured.is_ok()) continue;
    failed = true;
    line("error", json_string(measured.to_string()));
  }
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

std::vector<std::string> part_names() {
  std::vector<std::string> names;
  for (const Part& part : kParts) names.emplace_back(part.name);
  return names;
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) {
  strata::bench::Options options;
  CLI::App app("Measures DRAM, link, GEMM and attention rates; lines of JSON on stdout");
  app.add_option("--only", options.only, "Run only this part")
      ->check(CLI::IsMember(strata::bench::part_names()));
  app.add_option("--gib", options.gib, "Size of each buffer (default: 1/16 of the usable RAM, at most 1)")
      ->check(CLI::Range(0.0, 64.0));
  app.add_option("--rounds", options.rounds, "Number of measurements; the median is reported")
      ->check(CLI::Range(1, 100));
  CLI11_PARSE(app, argc, argv);
  try {
    return strata::bench::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "machine_rates: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
