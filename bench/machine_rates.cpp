#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <strata/kernels/attention.h>
#include <strata/kernels/cuda_products.h>
#include <strata/kernels/elementwise.h>
#include <strata/kernels/linear.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/cuda_backend.h>
#include <strata/runtime/host_backend.h>
#include <strata/runtime/json.h>
#include <strata/runtime/str.h>
#include <strata/runtime/topology.h>
#include <strata/runtime/units.h>

// What strata bench does not measure: DRAM by threads, the link by the size of a copy, and the GPU's matrix
// rate and its kernels of attention, both ways. One JSON object on stdout; a part that cannot run says why in
// "skipped", one that failed in "error" (and the exit code is 1).
namespace strata::bench {
namespace {

struct Options {
  std::string only;
  double gib = 0;  ///< bytes of each measurement's buffers; 0: a sixteenth of the usable RAM, 1 GiB at most
  int rounds = 5;
};

struct Bench {
  Options options;
  HostFacts facts;
  Topology topology;
  SteadyClock clock;
  std::size_t bytes = 0;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Backend> backend;  ///< the GPU, or the host where there is none
  bool gpu = false;
};

/// Median, least and most of the rounds, as {"unit": [median, least, most]}.
Result<std::string> rate(Bench& bench, const char* unit, double work, const std::function<Status()>& round) {
  STRATA_TRY(round());  // faults pages in and wakes threads
  std::vector<double> rates;
  for (int i = 0; i < bench.options.rounds; ++i) {
    const std::int64_t start = bench.clock.now_ns();
    STRATA_TRY(round());
    rates.push_back(work / static_cast<double>(bench.clock.now_ns() - start));
  }
  std::sort(rates.begin(), rates.end());
  return fmt::format("{{\"{}\": {:.2f}, \"least\": {:.2f}, \"most\": {:.2f}}}", unit, rates[rates.size() / 2],
                     rates.front(), rates.back());
}

Result<std::string> gb_per_s(Bench& bench, std::size_t bytes, const std::function<Status()>& round) {
  return rate(bench, "gb_per_s", static_cast<double>(bytes), round);
}

std::string skipped(std::string_view why) { return str("{\"skipped\": ", json_string(why), "}"); }

// ---- DRAM

struct Stream3 {
  float* a;
  const float* b;
  const float* c;
  std::size_t n;
};

// Pieces outnumber the threads, so that one that was interrupted does not hold up the rest.
void in_pieces(ThreadPool& pool, std::size_t n,
               const std::function<void(std::size_t first, std::size_t count)>& body) {
  const std::size_t pieces = static_cast<std::size_t>(pool.threads()) * 8;
  const std::size_t length = round_up((n + pieces - 1) / pieces, std::size_t{1024});
  pool.parallel_for(static_cast<std::int64_t>(pieces), [&](std::int64_t i) {
    const std::size_t first = static_cast<std::size_t>(i) * length;
    if (first < n) body(first, std::min(length, n - first));
  });
}

Result<std::string> dram_with(Bench& bench, ThreadPool& pool, const Stream3& s) {
  // The store of the triad reads its line first, which STREAM's convention of 3 arrays does not count.
  const auto triad = [&] {
    in_pieces(pool, s.n, [&](std::size_t first, std::size_t count) {
      for (std::size_t i = first; i < first + count; ++i) s.a[i] = s.b[i] + 0.5f * s.c[i];
    });
    return Status::ok();
  };
  const auto copy = [&] {
    in_pieces(pool, s.n, [&](std::size_t first, std::size_t count) {
      std::memcpy(s.a + first, s.b + first, count * sizeof(float));
    });
    return Status::ok();
  };
  STRATA_TRY_ASSIGN(const std::string triad_rate, gb_per_s(bench, 3 * s.n * sizeof(float), triad));
  STRATA_TRY_ASSIGN(const std::string copy_rate, gb_per_s(bench, 2 * s.n * sizeof(float), copy));
  return fmt::format("{{\"threads\": {}, \"triad\": {}, \"copy\": {}}}", pool.threads(), triad_rate,
                     copy_rate);
}

Result<std::string> dram(Bench& bench) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<Backend> host, create_host_backend({}, *bench.pool, bench.clock));
  std::vector<Buffer> arrays;
  for (int i = 0; i < 3; ++i) {
    STRATA_TRY_ASSIGN(Buffer array, host->allocate(MemoryKind::pinned, bench.bytes));
    arrays.push_back(std::move(array));
  }
  const auto floats = [&](std::size_t i) { return reinterpret_cast<float*>(arrays[i].view().data); };
  std::string rows;
  std::vector<int> counts{1, 4, 8, 16};
  const int usable = bench.topology.usable_threads;
  if (std::find(counts.begin(), counts.end(), usable) == counts.end()) counts.push_back(usable);
  std::sort(counts.begin(), counts.end());
  for (const int threads : counts) {
    if (threads > usable) {
      rows += fmt::format("{}{{\"threads\": {}, \"skipped\": \"{} hardware threads\"}}",
                          rows.empty() ? "" : ", ", threads, usable);
      continue;
    }
    STRATA_TRY_ASSIGN(const std::unique_ptr<ThreadPool> pool, ThreadPool::create(threads));
    STRATA_TRY_ASSIGN(
        const std::string row,
        dram_with(bench, *pool, {floats(0), floats(1), floats(2), bench.bytes / sizeof(float)}));
    rows += (rows.empty() ? "" : ", ") + row;
  }
  return "[" + rows + "]";
}

// ---- the link

struct Lane {
  Stream stream;
  Buffer device, pinned;
  bool down = false;  ///< device to pinned

  Status queue(Backend& backend, std::size_t total, std::size_t size) {
    for (std::size_t at = 0; at < total; at += size) {
      const BufferView on_device = device.view().part(at, size), on_host = pinned.view().part(at, size);
      STRATA_TRY(down ? backend.copy_async(on_host, on_device, stream)
                      : backend.copy_async(on_device, on_host, stream));
    }
    return Status::ok();
  }
};

Result<Lane> make_lane(Backend& backend, StreamRole role, std::size_t bytes) {
  Lane lane;
  STRATA_TRY_ASSIGN(lane.stream, backend.create_stream(role));
  STRATA_TRY_ASSIGN(lane.device, backend.allocate(MemoryKind::device, bytes));
  STRATA_TRY_ASSIGN(lane.pinned, backend.allocate(MemoryKind::pinned, bytes));
  lane.down = role == StreamRole::d2h;
  return lane;
}

Result<std::string> link(Bench& bench) {
  Backend& backend = *bench.backend;
  const std::size_t total = bench.bytes / (64 * kMiB) * (64 * kMiB);
  STRATA_TRY_ASSIGN(Lane up, make_lane(backend, StreamRole::h2d, total));
  STRATA_TRY_ASSIGN(Lane down, make_lane(backend, StreamRole::d2h, total));
  const auto carry = [&](std::initializer_list<Lane*> lanes, std::size_t size) {
    for (Lane* lane : lanes) STRATA_TRY(lane->queue(backend, total, size));
    for (Lane* lane : lanes) STRATA_TRY(backend.synchronize(lane->stream));
    return Status::ok();
  };
  std::string rows;
  for (const std::size_t size : {kMiB, 4 * kMiB, 16 * kMiB, 64 * kMiB}) {
    STRATA_TRY_ASSIGN(const std::string h2d, gb_per_s(bench, total, [&] { return carry({&up}, size); }));
    STRATA_TRY_ASSIGN(const std::string d2h, gb_per_s(bench, total, [&] { return carry({&down}, size); }));
    STRATA_TRY_ASSIGN(const std::string both, gb_per_s(bench, 2 * total, [&] {
                        return carry({&up, &down}, size);
                      }));
    rows += fmt::format("{}{{\"copy_bytes\": {}, \"h2d\": {}, \"d2h\": {}, \"both\": {}}}",
                        rows.empty() ? "" : ", ", size, h2d, d2h, both);
  }
  return fmt::format("{{\"device\": {}, \"gpu\": {}, \"by_size\": [{}]}}",
                     json_string(bench.gpu ? backend.info().name : str("the host backend; ", cuda_status())),
                     bench.gpu, rows);
}

// ---- matrices

Result<std::string> matrix_on(Bench& bench, Backend& backend, std::int64_t n) {
  const std::size_t bytes = static_cast<std::size_t>(n * n) * sizeof(float);
  STRATA_TRY_ASSIGN(Stream stream, backend.create_stream(StreamRole::compute));
  STRATA_TRY_ASSIGN(Buffer pinned, backend.allocate(MemoryKind::pinned, bytes));
  std::fill_n(reinterpret_cast<float*>(pinned.view().data), n * n, 0.5f);  // stale bits may be slow numbers
  std::vector<Buffer> operands;
  for (int i = 0; i < 3; ++i) {
    STRATA_TRY_ASSIGN(Buffer operand, backend.allocate(MemoryKind::device, bytes));
    STRATA_TRY(backend.copy_async(operand.view(), pinned.view(), stream));
    operands.push_back(std::move(operand));
  }
  const auto tensor = [&](std::size_t i) { return TensorView{operands[i].view().data, {n, n}, DType::f32}; };
  STRATA_TRY_ASSIGN(Buffer scratch,
                    backend.allocate(MemoryKind::device, kernels::product_workspace_bytes(n, n)));
  const auto product = [&] {
    STRATA_TRY(kernels::linear_forward_async(
        backend, stream,
        {.x = tensor(0), .w = tensor(1), .b = {}, .y = tensor(2), .workspace = scratch.view()}));
    return backend.synchronize(stream);
  };
  const double n_real = static_cast<double>(n);
  STRATA_TRY_ASSIGN(const std::string flops,
                    rate(bench, "gflop_per_s", 2 * n_real * n_real * n_real, product));
  return fmt::format("{{\"n\": {}, \"dtype\": \"f32\", \"rate\": {}}}", n, flops);
}

// On the host strata bench has it by size and dtype.
Result<std::string> matrix(Bench& bench) {
  if (!bench.gpu) return skipped(cuda_status());
  auto measured = matrix_on(bench, *bench.backend, 8192);
  if (!measured.has_value() && measured.status().code() == Code::unsupported)
    return skipped(measured.status().message());
  return measured;
}

// ---- attention

Result<std::string> attention_by(Bench& bench, kernels::AttentionBy by) {
  constexpr std::int64_t kTokens = 8192, kHeads = 32, kHead = 128, kWidth = kHeads * kHead;
  const kernels::AttentionHeads shape{.heads = kHeads, .kv_heads = kHeads, .seq = 4096, .by = by};
  Backend& backend = *bench.backend;
  STRATA_TRY_ASSIGN(Stream stream, backend.create_stream(StreamRole::compute));
  std::vector<Buffer> buffers;
  const auto tensor = [&](const Shape& of, DType dtype) -> Result<TensorView> {
    const std::size_t bytes = static_cast<std::size_t>(of.n_elems()) * size_of(dtype);
    STRATA_TRY_ASSIGN(Buffer buffer, backend.allocate(MemoryKind::device, bytes));
    const TensorView view{buffer.view().data, of, dtype};
    buffers.push_back(std::move(buffer));
    STRATA_TRY(kernels::fill_async(backend, stream, {view, 0.01f}));
    return view;
  };
  STRATA_TRY_ASSIGN(const TensorView qkv, tensor({kTokens, 3 * kWidth}, DType::bf16));
  STRATA_TRY_ASSIGN(const TensorView dqkv, tensor({kTokens, 3 * kWidth}, DType::bf16));
  STRATA_TRY_ASSIGN(const TensorView out, tensor({kTokens, kWidth}, DType::bf16));
  STRATA_TRY_ASSIGN(const TensorView dout, tensor({kTokens, kWidth}, DType::bf16));
  STRATA_TRY_ASSIGN(const TensorView lse, tensor({kTokens * kHeads}, DType::f32));
  STRATA_TRY_ASSIGN(
      Buffer workspace,
      backend.allocate(
          MemoryKind::device,
          std::max(kernels::attention_forward_workspace_bytes(kTokens, shape, DType::bf16, kHead),
                   kernels::attention_backward_workspace_bytes(kTokens, shape, DType::bf16, kHead))));
  // Causal: half of all products, of which forward has two and backward five.
  const double product = static_cast<double>(kTokens) * static_cast<double>(shape.seq * kWidth);
  STRATA_TRY_ASSIGN(const std::string forward, rate(bench, "gflop_per_s", 2 * product, [&] {
                      STRATA_TRY(kernels::attention_forward_async(
                          backend, stream, {qkv, out, lse, {}, shape, workspace.view()}));
                      return backend.synchronize(stream);
                    }));
  STRATA_TRY_ASSIGN(const std::string backward, rate(bench, "gflop_per_s", 5 * product, [&] {
                      STRATA_TRY(kernels::attention_backward_async(
                          backend, stream, {qkv, out, lse, dout, {}, dqkv, shape, workspace.view()}));
                      return backend.synchronize(stream);
                    }));
  return fmt::format("{{\"forward\": {}, \"backward\": {}}}", forward, backward);
}

Result<std::string> attention(Bench& bench) {
  if (!bench.gpu) return skipped(cuda_status());
  STRATA_TRY_ASSIGN(const std::string warps, attention_by(bench, kernels::AttentionBy::warps));
  std::string groups = skipped("no GPU of compute capability 9.0, or no kernels for 9.0a");
  if (kernels::cuda_attends_by_groups()) {
    STRATA_TRY_ASSIGN(groups, attention_by(bench, kernels::AttentionBy::groups));
  }
  std::string cudnn;
  if (const auto version = kernels::cuda_cudnn(); version.has_value()) {
    STRATA_TRY_ASSIGN(cudnn, attention_by(bench, kernels::AttentionBy::cudnn));
  } else {
    cudnn = skipped(version.status().message());
  }
  return fmt::format(
      "{{\"tokens\": 8192, \"seq\": 4096, \"heads\": 32, \"head\": 128, \"dtype\": \"bf16\", \"mma\": {}, "
      "\"wgmma\": {}, \"cudnn\": {}}}",
      warps, groups, cudnn);
}

// ---- the program

Result<Bench> make_bench(const Options& options) {
  Bench bench;
  bench.options = options;
  bench.facts = read_host_facts();
  STRATA_TRY_ASSIGN(bench.topology, read_topology());
  const auto least = std::size_t{128} * kMiB;
  const auto given = static_cast<std::size_t>(options.gib * static_cast<double>(kGiB)) / kMiB * kMiB;
  bench.bytes = given > 0
                    ? std::max(given, least)
                    : std::clamp<std::size_t>(bench.facts.usable_ram_bytes() / 16 / kMiB * kMiB, least, kGiB);
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
  Result<std::string> (*measure)(Bench& bench);
};
constexpr Part kParts[] = {{"dram", dram}, {"link", link}, {"matrix", matrix}, {"attention", attention}};

int run(const Options& options) {
  Bench bench = must(make_bench(options));
  std::string out = str("{\"machine\": ", machine(bench));
  bool failed = false;
  for (const Part& part : kParts) {
    if (!options.only.empty() && options.only != part.name) continue;
    std::fprintf(stderr, "machine_rates: %s\n", part.name);
    const auto measured = part.measure(bench);
    failed = failed || !measured.has_value();
    out += str(",\n \"", part.name, "\": ",
               measured.has_value() ? *measured
                                    : str("{\"error\": ", json_string(measured.status().to_string()), "}"));
  }
  std::printf("%s}\n", out.c_str());
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) {
  strata::bench::Options options;
  CLI::App app("Measures DRAM, link and matrix rates; one JSON object on stdout");
  app.add_option("--only", options.only, "One part alone")
      ->check(CLI::IsMember({"dram", "link", "matrix", "attention"}));
  app.add_option("--gib", options.gib, "Size of each buffer (default: 1/16 of the usable RAM, at most 1)")
      ->check(CLI::Range(0.0, 64.0));
  app.add_option("--rounds", options.rounds, "Measurements of which the median is reported")
      ->check(CLI::Range(1, 100));
  CLI11_PARSE(app, argc, argv);
  try {
    return strata::bench::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "machine_rates: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
