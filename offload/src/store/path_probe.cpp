// Measures the rates of several paths before objects are striped over them.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include <strata/runtime/clock.h>
#include <strata/runtime/str.h>
#include <strata/runtime/thread_annotations.h>

#include "store/store_files.h"

namespace strata::detail {
namespace {

constexpr std::size_t kMaxBytes = 32 * kMiB;   // allocated only while measuring
constexpr std::size_t kFirstBytes = 4 * kMiB;  // first transfer, small enough for a slow disk
constexpr std::int64_t kProbeNs = 60'000'000;  // per direction and path

using Pages = std::unique_ptr<std::byte[], decltype(&std::free)>;

// Fills the pages, so that no transfer causes a page fault, with random bytes that no layer below can
// compress.
Pages random_pages(std::size_t bytes) {
  Pages pages(static_cast<std::byte*>(std::aligned_alloc(4096, bytes)), &std::free);
  std::uint64_t state = 1;
  for (std::size_t i = 0; pages != nullptr && i < bytes; i += sizeof(state)) {
    state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX generator
    std::memcpy(&pages[i], &state, sizeof(state));
  }
  return pages;
}

/// Runs one transfer at a time through an IoBackend of the same kind as the store's.
class PathProbe final : public TransferSink {
 public:
  PathProbe(std::size_t bytes, std::chrono::milliseconds deadline)
      : bytes_(bytes), deadline_(deadline), pages_(random_pages(bytes)) {}

  Status start(const NvmeOptions& options, StoreFiles& files, const RingFactory& make_ring) {
    if (pages_ == nullptr)
      return Status::error(Code::out_of_memory,
                           str("not enough memory for ", bytes_, " bytes to measure the paths with"));
    STRATA_TRY_ASSIGN(io_backend_, make_io_backend(options, files, make_ring, *this, 1));
    return Status::ok();
  }

  /// Bytes per second of one direction. Moves larger and larger transfers until kProbeNs have passed; only
  /// the last one counts, since the first ones run with cold tables.
  Result<double> rate(bool write, std::uint32_t file) {
    const std::int64_t begin = clock_.now_ns();
    for (std::size_t bytes = std::min(kFirstBytes, bytes_);; bytes = std::min(2 * bytes, bytes_)) {
      const std::int64_t at = clock_.now_ns();
      STRATA_TRY(move(write, {file, 0, bytes}));
      const std::int64_t now = clock_.now_ns();
      if (bytes == bytes_ || now - begin >= kProbeNs)
        return static_cast<double>(bytes) * 1e9 / static_cast<double>(std::max<std::int64_t>(now - at, 1));
    }
  }

  void on_submit(std::uint32_t, std::size_t, std::size_t) noexcept override {}
  void on_block_read(std::uint32_t, std::size_t, std::size_t) noexcept override {}
  void on_progress() noexcept override { progress_count_.fetch_add(1, std::memory_order_relaxed); }
  void on_complete(std::uint32_t, Status outcome) noexcept override {
    const MutexLock lock(mutex_);
    outcome_ = std::move(outcome);
    is_done_ = true;
    done_.notify_all();
  }

 private:
  Status move(bool write, Extent extent) {
    {
      const MutexLock lock(mutex_);
      is_done_ = false;
    }
    extent_ = extent;
    io_backend_->start(0, {write, pages_.get(), {&extent_, 1}});
    const MutexLock lock(mutex_);
    while (!is_done_) {
      const std::uint64_t moved = progress_count_.load(std::memory_order_relaxed);
      if (done_.wait_for(mutex_, deadline_) == std::cv_status::timeout && !is_done_ &&
          progress_count_.load(std::memory_order_relaxed) == moved)
        return Status::error(Code::timeout, str("no data was transferred within ", deadline_.count(), " ms"));
    }
    return outcome_;
  }

  const std::size_t bytes_;
  const std::chrono::milliseconds deadline_;
  const Pages pages_;
  const SteadyClock clock_;
  std::atomic<std::uint64_t> progress_count_{0};  // blocks moved; relaxed
  Extent extent_;
  Mutex mutex_;
  Condition done_;
  Status outcome_ STRATA_GUARDED_BY(mutex_);
  bool is_done_ STRATA_GUARDED_BY(mutex_) = false;
  std::unique_ptr<IoBackend> io_backend_;  // last: its threads stop before other members are destroyed
};

// Objects are written about as often as they are read, so the rate is that of a byte written and read.
Result<double> rate_of(PathProbe& probe, std::uint32_t file) {
  STRATA_TRY_ASSIGN(const double write, probe.rate(true, file));
  STRATA_TRY_ASSIGN(const double read, probe.rate(false, file));
  return 2 / (1 / write + 1 / read);
}

std::size_t probe_bytes(const NvmeOptions& options) {
  std::size_t bytes = 0;
  for (const SlotClass& c : options.classes)
    for (std::uint32_t i = 0; i < c.slots && bytes < kMaxBytes; ++i) bytes += c.slot_bytes;
  return std::min(bytes, kMaxBytes);
}

}  // namespace

Result<std::vector<double>> probe_rates(Io& io, const NvmeOptions& options, const RingFactory& make_ring) {
  const std::size_t bytes = probe_bytes(options);
  STRATA_TRY_ASSIGN(StoreFiles files, open_store_files(io, options));
  for (const std::unique_ptr<File>& file : files.opened) STRATA_TRY(file->allocate(bytes));
  auto probe = std::make_unique<PathProbe>(bytes, options.deadline);
  STRATA_TRY(probe->start(options, files, make_ring));
  std::vector<double> rates;
  for (std::uint32_t file = 0; file < files.opened.size(); ++file) {
    const Result<double> rate = rate_of(*probe, file);
    if (!rate.has_value()) {
      if (rate.status().code() == Code::timeout) {  // leaked: the kernel and a worker still refer to it
        static_cast<void>(probe.release());
        for (std::unique_ptr<File>& held : files.opened) static_cast<void>(held.release());
      }
      return rate.status().annotate(str("measuring ", options.dirs[file]));
    }
    rates.push_back(*rate);
  }
  return rates;
}

}  // namespace strata::detail
