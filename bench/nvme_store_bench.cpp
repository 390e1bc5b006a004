// The NVMe store on one or several directories: GB/s and CPU seconds per GB of whole-slot writes, reads, and
// both at once. All ids are written once before the first round, so that all blocks of the file are mapped.
// With --serve a caller can alternate rounds with those of another program: each line on stdin is the pattern
// of a round, or "fill" to rewrite all ids after the other program wrote to the store's file. Prints one JSON
// object per round. --cap limits the rate of a directory by holding its completions back.

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <strata/offload/nvme_store.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/io/crc32c.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/config/json.h>
#include <strata/runtime/str.h>
#include <strata/runtime/threads/thread_pool.h>

#include "capped_ring.h"
#include "store/file_store.h"

namespace strata::bench {
namespace {

constexpr int kMaxRequests = 32;  // per direction: half of the store's max_requests

struct BenchOptions {
  std::vector<std::string> dirs{"."};
  std::vector<std::string> patterns{"write", "read", "both"};
  std::string engine = "auto";
  std::size_t total_mib = 1024, slot_mib = 16, block_kib = NvmeOptions{}.block_bytes / kKiB;
  int depth = NvmeOptions{}.queue_depth;
  int io_threads = NvmeOptions{}.io_threads;
  int requests = 0;  // slots in flight per direction; 0: enough to fill the queue twice
  double seconds = 1;
  int rounds = 3;
  bool buffered = false, unregistered = false, serve = false;
  std::vector<double> rates, caps;  // one per directory, or empty; caps in MB/s
};

double cpu_seconds() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

struct IdRange {
  std::uint32_t first = 0, count = 0;
};

class Bench {
 public:
  static Result<std::unique_ptr<Bench>> create(const BenchOptions& options) {
    std::unique_ptr<Bench> bench(new Bench(options));
    STRATA_TRY(bench->open());
    return bench;
  }

  Status fill() {
    std::uint64_t bytes = 0;
    return run_requests(true, {0, objects_}, objects_, 0, bytes);
  }

  Result<std::string> round(const std::string& pattern) {
    if (pattern == "fill") {
      STRATA_TRY(fill());
      return std::string("{}");
    }
    const bool both = pattern == "both";
    if (!both && pattern != "read" && pattern != "write")
      return Status::error(Code::invalid, str("unknown pattern '", pattern, "'; use write, read or both"));
    const IdRange all{0, objects_}, front{0, objects_ / 2}, back{objects_ / 2, objects_ - objects_ / 2};
    std::uint64_t written = 0, read = 0;
    Status write_outcome, read_outcome;
    const double cpu = cpu_seconds();
    const std::int64_t begin = clock_.now_ns();
    const std::int64_t end = begin + static_cast<std::int64_t>(options_.seconds * 1e9);
    {
      std::jthread writer;  // the directions do not wait for each other
      if (pattern != "read")
        writer =
            std::jthread([&] { write_outcome = run_requests(true, both ? front : all, 1, end, written); });
      if (pattern != "write") read_outcome = run_requests(false, both ? back : all, 1, end, read);
    }
    const auto took = static_cast<double>(clock_.now_ns() - begin);
    STRATA_TRY(write_outcome);
    STRATA_TRY(read_outcome);
    const auto bytes = static_cast<double>(written + read);
    return fmt::format(
        "{{\"pattern\": \"{}\", \"gb_per_s\": {:.4f}, \"write_gb_per_s\": {:.4f}, \"read_gb_per_s\": {:.4f}, "
        "\"cpu_s_per_gb\": {:.5f}, \"crc_s_per_gb\": {:.5f}, \"seconds\": {:.3f}, \"queue_depth\": {}, "
        "\"block_bytes\": {}, \"slot_bytes\": {}, \"file_bytes\": {}, \"engine\": {}, \"paths\": [{}]}}",
        pattern, bytes / took, static_cast<double>(written) / took, static_cast<double>(read) / took,
        (cpu_seconds() - cpu) / (bytes * 1e-9), crc_s_per_gb_, took * 1e-9, options_.depth,
        options_.block_kib * kKiB, slot_bytes_, objects_ * slot_bytes_, json_string(store_->io_description()),
        paths());
  }

 private:
  explicit Bench(const BenchOptions& options)
      : options_(options),
        slot_bytes_(options.slot_mib * kMiB),
        objects_(static_cast<std::uint32_t>(options.total_mib / options.slot_mib)),
        requests_(static_cast<std::uint32_t>(options.requests > 0 ? options.requests
                                                                  : default_requests(options))) {}
  // A caller waits for its slots in order, and a block may be late; the other requests keep the device busy
  // meanwhile.
  static std::size_t default_requests(const BenchOptions& options) {
    const std::size_t queued = 2 * static_cast<std::size_t>(options.depth) * options.block_kib * kKiB;
    const std::size_t half = options.total_mib / options.slot_mib / 2;  // half of all objects
    return std::clamp<std::size_t>(queued / (options.slot_mib * kMiB), 1,
                                   std::clamp<std::size_t>(half, 1, kMaxRequests));
  }

  Status open() {
    if (objects_ < 2 * requests_)
      return Status::error(Code::invalid, str(options_.total_mib, " MiB are ", objects_, " slots of ",
                                              options_.slot_mib, " MiB; at least ", 2 * requests_, " for ",
                                              requests_, " in flight per direction are needed"));
    STRATA_TRY_ASSIGN(pool_, ThreadPool::create(1));
    STRATA_TRY_ASSIGN(host_, create_host_backend({}, *pool_, clock_));
    NvmeOptions options;
    options.dirs = options_.dirs;
    options.classes = {{slot_bytes_, objects_ + requests_}};
    options.engine = options_.engine == "uring"     ? IoEngine::uring
                     : options_.engine == "threads" ? IoEngine::threads
                                                    : IoEngine::automatic;
    options.queue_depth = options_.depth;
    options.block_bytes = options_.block_kib * kKiB;
    options.direct = !options_.buffered;
    options.io_threads = options_.io_threads;
    options.path_rates = options_.rates;
    STRATA_TRY_ASSIGN(store_, make_store(std::move(options)));
    for (Buffer* buffer : {&out_, &in_}) {
      STRATA_TRY_ASSIGN(*buffer, host_->allocate(MemoryKind::pinned, requests_ * slot_bytes_));
      if (!options_.unregistered) STRATA_TRY(store_->register_memory(buffer->view()));
    }
    std::uint64_t state = 1;  // random bytes, which no layer below can compress
    for (std::size_t i = 0; i + 8 <= out_.view().bytes; i += 8) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      std::memcpy(out_.view().data + i, &state, 8);
    }
    measure_crc();
    STRATA_TRY(fill());
    return fill();  // the second time also writes the spare slots
  }

  Result<StorePtr<NvmeStore>> make_store(NvmeOptions options) {
    if (options_.caps.empty()) return NvmeStore::create(posix_io(), std::move(options));
    if (options_.caps.size() != options.dirs.size())
      return Status::error(Code::invalid,
                           str(options_.caps.size(), " caps for ", options.dirs.size(), " folders"));
    std::vector<double> bytes_per_s;
    for (const double cap : options_.caps) bytes_per_s.push_back(cap * 1e6);
    const auto make_ring = [=](std::span<const int> descriptors,
                               std::uint32_t depth) -> Result<std::unique_ptr<detail::RingOps>> {
      STRATA_TRY_ASSIGN(auto ring, detail::make_uring(descriptors, depth));
      return std::unique_ptr<detail::RingOps>(std::make_unique<CappedRing>(std::move(ring), bytes_per_s));
    };
    return detail::FileStore::create(posix_io(), std::move(options), make_ring);
  }

  std::string paths() const {
    std::string text;
    for (const NvmePath& path : store_->paths())
      text += fmt::format("{}{{\"bytes\": {}, \"gb_per_s\": {:.4f}}}", text.empty() ? "" : ", ", path.bytes,
                          path.rate * 1e-9);
    return text;
  }

  // Measures only the checksums, on memory that is in no cache.
  void measure_crc() {
    const double cpu = cpu_seconds();
    constexpr int kPasses = 4;
    std::uint32_t sum = 0;
    for (int i = 0; i < kPasses; ++i) sum = crc32c(sum, {out_.view().data, out_.view().bytes});
    last_crc_ = sum;  // used, so that the compiler does not remove it
    crc_s_per_gb_ = (cpu_seconds() - cpu) / (static_cast<double>(out_.view().bytes) * kPasses * 1e-9);
  }

  // Transfers ids of the range cyclically, with `requests` of them in flight, until `end`, and at least
  // `min_requests` of them.
  Status run_requests(bool write, IdRange ids, std::uint32_t min_requests, std::int64_t end,
                      std::uint64_t& bytes) {
    std::vector<IoTicket> tickets(requests_);
    Status outcome;
    std::uint32_t started = 0;
    do {
      const std::uint32_t place = started % requests_;
      outcome = store_->wait(tickets[place]);
      if (!outcome.is_ok()) break;
      const auto ticket = start(write, ids.first + started % ids.count, place);
      if (!ticket.has_value()) {
        outcome = ticket.status();
        break;
      }
      tickets[place] = *ticket;
      ++started;
    } while (started < min_requests || clock_.now_ns() < end);
    for (const IoTicket ticket : tickets)
      if (const Status last = store_->wait(ticket); outcome.is_ok()) outcome = last;
    bytes = std::uint64_t{started} * slot_bytes_;
    return outcome;
  }

  Result<IoTicket> start(bool write, std::uint32_t id, std::uint32_t place) {
    const BufferView buffer = (write ? out_ : in_).view().part(place * slot_bytes_, slot_bytes_);
    if (write) return store_->write_async(id, 0, buffer);
    return store_->read_async(id, buffer);
  }

  const BenchOptions options_;
  const std::size_t slot_bytes_;
  const std::uint32_t objects_, requests_;
  SteadyClock clock_;
  double crc_s_per_gb_ = 0;
  std::uint32_t last_crc_ = 0;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Backend> host_;
  Buffer out_, in_;
  StorePtr<NvmeStore> store_;  // last: its destructor waits for requests that use the buffers
};

Status run(const BenchOptions& options) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<Bench> bench, Bench::create(options));
  const auto print = [&](const std::string& pattern) {
    STRATA_TRY_ASSIGN(const std::string line, bench->round(pattern));
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
    return Status::ok();
  };
  if (options.serve) {
    for (std::string pattern; std::getline(std::cin, pattern);) STRATA_TRY(print(pattern));
    return Status::ok();
  }
  for (int round = 0; round < options.rounds; ++round)
    for (const std::string& pattern : options.patterns) STRATA_TRY(print(pattern));
  return Status::ok();
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) {
  strata::bench::BenchOptions options;
  CLI::App app("GB/s and CPU seconds per GB of the NVMe store");
  app.add_option("--dir", options.dirs, "directories on the disks to measure");
  app.add_option("--rates", options.rates, "relative rates of the directories, instead of measuring them");
  app.add_option("--cap", options.caps, "maximum MB/s of each directory; needs io_uring");
  app.add_option("--pattern", options.patterns, "write read both");
  app.add_option("--engine", options.engine)->check(CLI::IsMember({"auto", "uring", "threads"}));
  app.add_option("--total-mib", options.total_mib, "total size of all ids")->check(CLI::Range(1, 1 << 24));
  app.add_option("--slot-mib", options.slot_mib, "size of one id")->check(CLI::Range(1, 1 << 16));
  app.add_option("--block-kib", options.block_kib)->check(CLI::Range(4, 1 << 18));
  app.add_option("--depth", options.depth, "blocks in flight")->check(CLI::Range(1, 4096));
  app.add_option("--io-threads", options.io_threads, "threads per directory of --engine threads")
      ->check(CLI::Range(1, 64));
  app.add_option("--requests", options.requests,
                 "slots in flight per direction; 0: enough to fill the queue twice")
      ->check(CLI::Range(0, strata::bench::kMaxRequests));
  app.add_option("--seconds", options.seconds, "seconds per round")->check(CLI::Range(0.01, 600.0));
  app.add_option("--rounds", options.rounds, "rounds per pattern")->check(CLI::Range(1, 10000));
  app.add_flag("--buffered", options.buffered, "use the page cache instead of O_DIRECT");
  app.add_flag("--unregistered", options.unregistered, "do not register the buffers");
  app.add_flag("--serve", options.serve, "run a round for each line on stdin, which is a pattern or fill");
  CLI11_PARSE(app, argc, argv);
  try {
    if (const strata::Status status = strata::bench::run(options); !status.is_ok()) {
      std::fprintf(stderr, "nvme_store_bench: %s\n", status.to_string().c_str());
      return 2;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nvme_store_bench: %s\n", error.what());
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
