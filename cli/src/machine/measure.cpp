#include "machine/measure.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <strata/cpuopt/update.h>
#include <strata/kernels/attention.h>
#include <strata/kernels/elementwise.h>
#include <strata/kernels/layernorm.h>
#include <strata/kernels/linear.h>
#include <strata/offload/nvme_store.h>
#include <strata/runtime/str.h>
#include <strata/runtime/topology.h>

#include "machine/measure_rig.h"
#include "machine/profile_cache.h"
#include "training/host_memory.h"

namespace strata::cli {
namespace {

double core_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

Status products(MeasureRig& rig, bool quick, MachineProfile& p) {
  p.product_sizes = rig.sizes().products;
  if (quick) p.product_sizes.pop_back();
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const double size : p.product_sizes) {
      const auto m = static_cast<std::int64_t>(size), n = std::max(m, rig.sizes().other_sides);
      STRATA_TRY_ASSIGN(const TensorView x, rig.tensor({m, n}, dtype));
      STRATA_TRY_ASSIGN(const TensorView w, rig.tensor({n, n}, dtype));
      STRATA_TRY_ASSIGN(const TensorView y, rig.tensor({m, n}, dtype));
      STRATA_TRY_ASSIGN(const double s, rig.computing([&] {
        return kernels::linear_forward_async(rig.backend(), rig.compute(), {.x = x, .w = w, .b = {}, .y = y});
      }));
      const double flops = 2.0 * size * static_cast<double>(n) * static_cast<double>(n);
      (dtype == DType::f32 ? p.flops_f32 : p.flops_16bit).push_back(flops / s);
      rig.forget();
    }
  return {};
}

// Forward, causal: half of the products of a full one.
Status attention(MeasureRig& rig, MachineProfile& p) {
  const MeasureSizes& of = rig.sizes();
  const std::int64_t width = of.heads * of.head_dim;
  const kernels::AttentionHeads shape{.heads = of.heads, .kv_heads = of.heads, .seq = of.seq};
  STRATA_TRY_ASSIGN(const TensorView qkv, rig.tensor({of.tokens, 3 * width}, DType::bf16));
  STRATA_TRY_ASSIGN(const TensorView out, rig.tensor({of.tokens, width}, DType::bf16));
  STRATA_TRY_ASSIGN(const TensorView lse, rig.tensor({of.tokens * of.heads}, DType::f32));
  STRATA_TRY_ASSIGN(const BufferView workspace,
                    rig.memory(MemoryKind::device, kernels::attention_forward_workspace_bytes(
                                                       of.tokens, shape, DType::bf16, of.head_dim)));
  STRATA_TRY_ASSIGN(const double s, rig.computing([&] {
    return kernels::attention_forward_async(rig.backend(), rig.compute(),
                                            {qkv, out, lse, {}, shape, workspace});
  }));
  p.attention_flops_per_s = 2.0 * static_cast<double>(of.tokens * of.seq * width) / s;
  rig.forget();
  return {};
}

// What a block has beside its products: a norm, an activation, a sum.
Status streaming(MeasureRig& rig, MachineProfile& p) {
  const std::int64_t rows = rig.sizes().rows, columns = rig.sizes().columns;
  std::array<TensorView, 3> x{};
  for (TensorView& tensor : x) {
    STRATA_TRY_ASSIGN(tensor, rig.tensor({rows, columns}, DType::bf16));
  }
  std::array<TensorView, 2> gain{}, stats{};
  for (TensorView& tensor : gain) {
    STRATA_TRY_ASSIGN(tensor, rig.tensor({columns}, DType::bf16));
  }
  for (TensorView& tensor : stats) {
    STRATA_TRY_ASSIGN(tensor, rig.tensor({rows}, DType::f32));
  }
  STRATA_TRY_ASSIGN(const double s, rig.computing([&] {
    STRATA_TRY(kernels::layernorm_forward_async(rig.backend(), rig.compute(),
                                                {x[0], gain[0], gain[1], x[1], stats[0], stats[1], 1e-5f}));
    STRATA_TRY(kernels::gelu_forward_async(rig.backend(), rig.compute(), {x[1], x[2]}));
    return kernels::add_async(rig.backend(), rig.compute(), {x[1], x[2], x[0]});
  }));
  p.device_bytes_per_s = 7.0 * static_cast<double>(x[0].bytes()) / s;
  STRATA_TRY_ASSIGN(const TensorView one, rig.tensor({8}, DType::f32));
  constexpr int kCalls = 64;
  STRATA_TRY_ASSIGN(const double calls, rig.computing([&] {
    for (int i = 0; i < kCalls; ++i)
      STRATA_TRY(kernels::add_async(rig.backend(), rig.compute(), {one, one, one}));
    return Status::ok();
  }));
  p.launch_s = calls / kCalls;
  rig.forget();
  return {};
}

// Two queues that wait for each other in turn, each with a copy whose time is known.
Status handing_over(MeasureRig& rig, MachineProfile& p) {
  STRATA_TRY_ASSIGN(Stream other, rig.backend().create_stream(StreamRole::h2d));
  STRATA_TRY_ASSIGN(const BufferView here, rig.memory(MemoryKind::pinned, 4096));
  STRATA_TRY_ASSIGN(const BufferView there, rig.memory(MemoryKind::device, 4096));
  constexpr int kTurns = 200;
  STRATA_TRY_ASSIGN(const double s, rig.computing([&] {
    for (int turn = 0; turn < kTurns; ++turn)
      for (Stream* stream : {&other, &rig.compute()}) {
        STRATA_TRY(rig.backend().copy_async(there, here, *stream));
        STRATA_TRY_ASSIGN(const Event done, rig.backend().record(*stream));
        STRATA_TRY(rig.backend().wait_on_async(done, stream == &other ? rig.compute() : other));
      }
    return Status::ok();
  }));
  p.wake_s = std::max(
      0.0, s / (2 * kTurns) - p.link_latency_s - static_cast<double>(here.bytes) / p.h2d_bytes_per_s);
  rig.forget();
  return {};
}

// Both directions at once carry no more than each alone, and no less than the slower: else it was noise.
double together(double both, double one, double other) {
  return std::clamp(both, std::min(one, other), one + other);
}

Status link(MeasureRig& rig, bool quick, MachineProfile& p) {
  const std::size_t bytes = rig.sizes().link_bytes / (quick ? 4 : 1), piece = rig.sizes().link_piece;
  STRATA_TRY_ASSIGN(Stream up, rig.backend().create_stream(StreamRole::h2d));
  STRATA_TRY_ASSIGN(Stream down, rig.backend().create_stream(StreamRole::d2h));
  std::array<BufferView, 4> ends{};
  for (std::size_t i = 0; i < ends.size(); ++i) {
    STRATA_TRY_ASSIGN(ends[i], rig.memory(i % 2 == 0 ? MemoryKind::device : MemoryKind::pinned, bytes));
  }
  const auto carry = [&](bool rises, bool falls, std::size_t of) {
    for (std::size_t at = 0; at + of <= bytes; at += of) {
      if (rises) STRATA_TRY(rig.backend().copy_async(ends[0].part(at, of), ends[1].part(at, of), up));
      if (falls) STRATA_TRY(rig.backend().copy_async(ends[3].part(at, of), ends[2].part(at, of), down));
    }
    STRATA_TRY(rig.backend().synchronize(up));
    return rig.backend().synchronize(down);
  };
  const auto rate = [&](bool rises, bool falls) -> Result<double> {
    STRATA_TRY_ASSIGN(const double s, rig.seconds([&] { return carry(rises, falls, piece); }));
    return static_cast<double>(bytes) * (rises && falls ? 2 : 1) / s;
  };
  STRATA_TRY_ASSIGN(p.h2d_bytes_per_s, rate(true, false));
  STRATA_TRY_ASSIGN(p.d2h_bytes_per_s, rate(false, true));
  STRATA_TRY_ASSIGN(const double both, rate(true, true));
  p.link_bytes_per_s = together(both, p.h2d_bytes_per_s, p.d2h_bytes_per_s);
  constexpr std::size_t kSmall = 4096, kCopies = 256;
  STRATA_TRY_ASSIGN(const double small, rig.seconds([&] {
    for (std::size_t i = 0; i < kCopies; ++i)
      STRATA_TRY(rig.backend().copy_async(ends[0].part(0, kSmall), ends[1].part(0, kSmall), up));
    return rig.backend().synchronize(up);
  }));
  p.link_latency_s = std::max(0.0, small / kCopies - static_cast<double>(kSmall) / p.h2d_bytes_per_s);
  rig.forget();
  return {};
}

void in_pieces(ThreadPool& pool, std::int64_t n,
               const std::function<void(std::int64_t first, std::int64_t count)>& body) {
  constexpr std::int64_t kPiece = 65536;
  pool.parallel_for((n + kPiece - 1) / kPiece,
                    [&](std::int64_t i) { body(i * kPiece, std::min(kPiece, n - i * kPiece)); });
}

Status ram(MeasureRig& rig, bool quick, MachineProfile& p) {
  const std::int64_t n = (quick ? 8 : 32) * static_cast<std::int64_t>(kMiB);
  std::array<float*, 3> arrays{};
  for (float*& array : arrays) {
    STRATA_TRY_ASSIGN(const BufferView view,
                      rig.memory(MemoryKind::pinned, static_cast<std::size_t>(n) * sizeof(float)));
    array = reinterpret_cast<float*>(view.data);
  }
  STRATA_TRY_ASSIGN(const double s, rig.seconds([&] {
    in_pieces(rig.pool(), n, [&](std::int64_t first, std::int64_t count) {
      for (std::int64_t i = first; i < first + count; ++i) arrays[0][i] = arrays[1][i] + 0.5f * arrays[2][i];
    });
    return Status::ok();
  }));
  // The line that is written is read first.
  p.host_bytes_per_s = 4.0 * static_cast<double>(n) * sizeof(float) / s;
  rig.forget();
  return {};
}

Status optimizer(MeasureRig& rig, bool quick, MachineProfile& p) {
  const std::int64_t n = (quick ? 2 : 8) * static_cast<std::int64_t>(kMiB);
  for (const StateFormat format : {StateFormat::fp32, StateFormat::bf16, StateFormat::int8}) {
    std::array<BufferView, 5> memory{};  // parameter, rest of the master, both moments, gradient
    const std::size_t two = static_cast<std::size_t>(n) * 2, moment = moment_bytes(format, n);
    const std::array<std::size_t, 5> sizes = {two, two, moment, moment, two};
    for (std::size_t i = 0; i < memory.size(); ++i) {
      STRATA_TRY_ASSIGN(memory[i], rig.memory(MemoryKind::pinned, sizes[i]));
    }
    cpuopt::OptimizerParams params;
    params.lr = 1e-4;
    const cpuopt::UpdateStep step = cpuopt::update_step(params);
    const cpuopt::UpdateBlock all{.layout = cpuopt::MasterLayout::bf16_split,
                                  .states = format,
                                  .grad = DType::bf16,
                                  .param = memory[0].data,
                                  .master = memory[1].data,
                                  .m = cpuopt::moment_at(format, memory[2].data, n),
                                  .v = cpuopt::moment_at(format, memory[3].data, n),
                                  .g = memory[4].data};
    STRATA_TRY_ASSIGN(const double s, rig.seconds([&] {
      in_pieces(rig.pool(), n, [&](std::int64_t first, std::int64_t count) {
        cpuopt::UpdateBlock block = all.at(first);
        block.index = static_cast<std::uint32_t>(first);
        cpuopt::update_block(step, block, count, cpuopt::dither_of(1, 0, 1, first));
      });
      return Status::ok();
    }));
    p.update_s_per_param[static_cast<std::size_t>(format)] = s / static_cast<double>(n);
    rig.forget();
  }
  return {};
}

Status disk(MeasureRig& rig, const MeasureOptions& options, MachineProfile& p) {
  constexpr std::size_t kSlot = 16 * kMiB, kInFlight = 4;
  const std::uint32_t objects = options.quick ? 16 : 64;
  for (const std::string& dir : options.nvme_dirs) STRATA_TRY(posix_io().make_dirs(dir));
  STRATA_TRY_ASSIGN(const BufferView out, rig.memory(MemoryKind::pinned, kInFlight * kSlot));
  STRATA_TRY_ASSIGN(const BufferView in, rig.memory(MemoryKind::pinned, kInFlight * kSlot));
  NvmeOptions store_options;
  store_options.dirs = options.nvme_dirs;
  store_options.classes = {{kSlot, objects + static_cast<std::uint32_t>(kInFlight)}, {64 * kKiB, 32}};
  STRATA_TRY_ASSIGN(const std::unique_ptr<NvmeStore> store, NvmeStore::create(posix_io(), store_options));
  p.source += str("; slow tier by ", store->engine_note());
  STRATA_TRY(store->register_memory(out));
  STRATA_TRY(store->register_memory(in));
  // Reads run half a round behind writes, so that neither is served from what the other has just moved.
  const auto round = [&](bool writes, bool reads) {
    std::array<Ticket, kInFlight> written{}, read{};
    for (std::uint32_t id = 0; id < objects; ++id) {
      const std::size_t place = id % kInFlight;
      if (writes) {
        STRATA_TRY(store->wait(written[place]));
        STRATA_TRY_ASSIGN(written[place], store->write_async(id, 0, out.part(place * kSlot, kSlot)));
      }
      if (reads) {
        STRATA_TRY(store->wait(read[place]));
        STRATA_TRY_ASSIGN(read[place],
                          store->read_async((id + objects / 2) % objects, in.part(place * kSlot, kSlot)));
      }
    }
    for (const Ticket ticket : written) STRATA_TRY(store->wait(ticket));
    for (const Ticket ticket : read) STRATA_TRY(store->wait(ticket));
    return Status::ok();
  };
  const double bytes = static_cast<double>(objects) * kSlot;
  STRATA_TRY_ASSIGN(const double write_s, rig.seconds([&] { return round(true, false); }));
  STRATA_TRY_ASSIGN(const double read_s, rig.seconds([&] { return round(false, true); }));
  const double cores_before = core_seconds();
  const NvmeCounters before = store->counters();
  STRATA_TRY_ASSIGN(const double both_s, rig.seconds([&] { return round(true, true); }));
  const NvmeCounters after = store->counters();
  const double cores_used = core_seconds() - cores_before;
  // One small request after the other.
  constexpr std::size_t kSmall = 64 * kKiB, kRequests = 16;
  STRATA_TRY_ASSIGN(const double small_s, rig.seconds([&] {
    for (std::uint32_t i = 0; i < kRequests; ++i) {
      STRATA_TRY_ASSIGN(const Ticket ticket, store->write_async(objects + i, 1, out.part(0, kSmall)));
      STRATA_TRY(store->wait(ticket));
    }
    return Status::ok();
  }));
  p.disk_latency_s = std::max(0.0, small_s / kRequests - static_cast<double>(kSmall) * write_s / bytes);
  p.write_bytes_per_s = bytes / write_s;
  p.read_bytes_per_s = bytes / read_s;
  p.disk_bytes_per_s = together(2 * bytes / both_s, p.write_bytes_per_s, p.read_bytes_per_s);
  p.disk_core_s_per_byte = cores_used / static_cast<double>(after.bytes_read + after.bytes_written -
                                                            before.bytes_read - before.bytes_written);
  rig.forget();
  return {};
}

}  // namespace

Result<MachineProfile> measure_machine(const MeasureOptions& options) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<MeasureRig> rig, MeasureRig::create(options));
  MachineProfile p;
  const HostFacts facts = read_host_facts();
  p.name = machine_name(rig->device(), options.share.threads());
  p.source = str("measured by strata bench", options.quick ? " --quick" : "");
  p.cores = std::max(1, rig->pool().threads());
  p.computes_on_cores = !rig->is_gpu();
  const std::uint64_t share = std::max<std::uint64_t>(usual_budget(facts), 4096);
  p.memory[0] = rig->is_gpu() ? usual_gpu_budget(rig->device().free_bytes) : share;
  p.memory[1] = rig->is_gpu() ? 2 * share : share;
  const auto part = [&](const char* name, const auto& measure) -> Status {
    options.tell(name);
    return measure().annotate(str("measuring ", name));
  };
  STRATA_TRY(part("products", [&] { return products(*rig, options.quick, p); }));
  STRATA_TRY(part("attention", [&] { return attention(*rig, p); }));
  STRATA_TRY(part("norms and activations", [&] { return streaming(*rig, p); }));
  STRATA_TRY(part("the link", [&] { return link(*rig, options.quick, p); }));
  STRATA_TRY(part("queues that wait for each other", [&] { return handing_over(*rig, p); }));
  STRATA_TRY(part("RAM", [&] { return ram(*rig, options.quick, p); }));
  STRATA_TRY(part("the optimizer", [&] { return optimizer(*rig, options.quick, p); }));
  if (options.nvme_dirs.empty()) return p;
  STRATA_TRY(part("the slow tier", [&] { return disk(*rig, options, p); }));
  STRATA_TRY_ASSIGN(const std::uint64_t free, posix_io().free_bytes(options.nvme_dirs.front()));
  p.memory[2] = free / 2 / 4096 * 4096;
  return p;
}

}  // namespace strata::cli
