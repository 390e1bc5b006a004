#include "machine_rates/harness.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <CLI/CLI.hpp>

#include <strata/runtime/backend/cuda_backend.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/convert.h>
#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

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

Result<std::string> queued_rate(Bench& bench, const char* unit, double work,
                                const std::function<Status()>& queue) {
  const int times = bench.gpu ? 10 : 1;
  const auto busy_ns = [&] {
    return bench.backend->counters().busy_ns[static_cast<std::size_t>(StreamRole::compute)];
  };
  std::vector<double> rates;
  for (int round = 0; round <= bench.options.rounds; ++round) {
    const std::int64_t before = busy_ns();
    for (int i = 0; i < times; ++i) STRATA_TRY(queue());
    STRATA_TRY(bench.backend->synchronize(bench.compute));
    const auto ns = static_cast<double>(std::max<std::int64_t>(1, busy_ns() - before));
    if (round > 0) rates.push_back(work * times / ns);  // round 0 is the warm-up
  }
  return summary(unit, std::move(rates));
}

Result<BufferView> device_memory(Bench& bench, std::size_t bytes) {
  STRATA_TRY_ASSIGN(Buffer buffer,
                    bench.backend->allocate(MemoryKind::device, std::max<std::size_t>(bytes, 1)));
  bench.buffers.push_back(std::move(buffer));
  return BufferView{bench.buffers.back().view().data, bytes};
}
void release(Bench& bench) { bench.buffers.clear(); }

Result<TensorView> random_tensor(Bench& bench, const Shape& shape, DType dtype) {
  constexpr std::int64_t kPiece = 4096;
  const std::int64_t n = shape.n_elems();
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  STRATA_TRY_ASSIGN(const BufferView device, device_memory(bench, static_cast<std::size_t>(n * size)));
  STRATA_TRY_ASSIGN(Buffer pinned,
                    bench.backend->allocate(MemoryKind::pinned, static_cast<std::size_t>(n * size)));
  const Rng rng(bench.buffers.size(), 0);
  bench.pool->parallel_for((n + kPiece - 1) / kPiece, [&](std::int64_t piece) {
    std::array<float, kPiece> values;
    const std::int64_t first = piece * kPiece, count = std::min(kPiece, n - first);
    for (std::int64_t i = 0; i < count; ++i)
      values[static_cast<std::size_t>(i)] = rng.normal(static_cast<std::uint64_t>(first + i));
    must(narrow_from_f32(std::span(values).first(static_cast<std::size_t>(count)), dtype,
                         {pinned.view().data + first * size, static_cast<std::size_t>(count * size)}));
  });
  STRATA_TRY(bench.backend->copy_async(device, pinned.view(), bench.compute));
  STRATA_TRY(bench.backend->synchronize(bench.compute));
  return TensorView{device.data, shape, dtype};
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
  STRATA_TRY_ASSIGN(bench.compute, bench.backend->create_stream(StreamRole::compute));
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

void print_line(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

int run(const Options& options, std::span<const Part> parts) {
  Bench bench = must(make_bench(options));
  print_line(str("{\"machine\": ", machine(bench), "}"));
  bool failed = false;
  for (const Part& part : parts) {
    if (!options.only.empty() && options.only != part.name) continue;
    std::fprintf(stderr, "%s\n", part.name);
    const auto line = [&](const char* key, const std::string& value) {
      print_line(str("{\"part\": \"", part.name, "\", \"", key, "\": ", value, "}"));
    };
    const Status measured = part.measure(bench, [&](const std::string& row) { line("row", row); });
    release(bench);
    if (measured.is_ok()) continue;
    failed = true;
    line("error", json_string(measured.to_string()));
  }
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

}  // namespace

int run_parts(int argc, char** argv, const char* about, std::span<const Part> parts) {
  Options options;
  CLI::App app(about);
  std::vector<std::string> names;
  for (const Part& part : parts) names.emplace_back(part.name);
  app.add_option("--only", options.only, "Run only this part")->check(CLI::IsMember(names));
  app.add_option("--gib", options.gib, "Size of each buffer (default: 1/16 of the usable RAM, at most 1)")
      ->check(CLI::Range(0.0, 64.0));
  app.add_option("--rounds", options.rounds, "Number of measurements; the median is reported")
      ->check(CLI::Range(1, 100));
  CLI11_PARSE(app, argc, argv);
  try {
    return run(options, parts);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return EXIT_FAILURE;
  }
}

}  // namespace strata::bench
