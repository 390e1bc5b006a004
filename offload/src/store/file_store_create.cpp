// Creates a store: checks the options, opens the files and starts the IoBackend.
#include <algorithm>
#include <cmath>
#include <utility>

#include <strata/runtime/str.h>

#include "store/file_store.h"
#include "store/stripe.h"

namespace strata::detail {
namespace {

Status in_range(const char* name, std::uint64_t value, std::uint64_t low, std::uint64_t high) {
  if (value >= low && value <= high) return Status::ok();
  return Status::error(Code::invalid,
                       str("NVMe store: ", name, " is ", value, "; it must be ", low, " to ", high));
}

Status aligned(const char* name, std::size_t value) {
  if (value % kStoreAlign == 0 && value > 0) return Status::ok();
  return Status::error(Code::invalid, str("NVMe store: ", name, " is ", value,
                                          "; it must be a positive multiple of ", kStoreAlign));
}

Status check_rates(const NvmeOptions& options) {
  const std::vector<double>& rates = options.path_rates;
  if (!rates.empty() && rates.size() != options.dirs.size())
    return Status::error(Code::invalid, str("NVMe store: path_rates has ", rates.size(), " rates for ",
                                            options.dirs.size(), " dirs"));
  for (const double rate : rates)
    if (!(rate > 0 && std::isfinite(rate)))
      return Status::error(Code::invalid,
                           str("NVMe store: a path's rate is ", rate, "; it must be a positive number"));
  return Status::ok();
}

Status check(const NvmeOptions& options) {
  STRATA_TRY(in_range("number of dirs", options.dirs.size(), 1, 64));
  STRATA_TRY(check_rates(options));
  STRATA_TRY(in_range("number of slot classes", options.classes.size(), 1, 4096));
  STRATA_TRY(in_range("queue_depth", static_cast<std::uint64_t>(options.queue_depth), 1, 4096));
  STRATA_TRY(in_range("io_threads", static_cast<std::uint64_t>(options.io_threads), 1, 64));
  STRATA_TRY(in_range("max_requests", options.max_requests, 1, 65536));
  STRATA_TRY(in_range("block_bytes", options.block_bytes, kStoreAlign, 256 * kMiB));
  STRATA_TRY(aligned("block_bytes", options.block_bytes));
  std::uint64_t slots = 0;
  for (const SlotClass& c : options.classes) {
    STRATA_TRY(aligned("slot_bytes", c.slot_bytes));
    STRATA_TRY(in_range("slot_bytes", c.slot_bytes, kStoreAlign, std::uint64_t{1} << 40));
    slots += c.slots;
  }
  return in_range("number of slots", slots, 1, std::uint64_t{1} << 31);
}

}  // namespace

FileStore::FileStore(NvmeOptions options, StoreFiles files, std::span<const double> rates)
    : options_(std::move(options)),
      rates_(rates.begin(), rates.end()),
      files_(std::move(files)),
      checksums_(options_.max_requests),
      slots_(options_.classes, stripe_weights(rates)),
      objects_(slots_),
      requests_(options_.max_requests, rates.size()),
      meter_(options_.trace, files_.n_opened) {}

Result<StorePtr<NvmeStore>> FileStore::create(Io& io, NvmeOptions options, const RingFactory& make_ring) {
  STRATA_TRY(check(options));
  auto created = [&]() -> Result<StorePtr<NvmeStore>> {
    std::vector<double> rates = options.path_rates;
    if (rates.empty() && options.dirs.size() == 1) rates = {0};
    if (rates.empty()) {
      STRATA_TRY_ASSIGN(rates, probe_rates(io, options, make_ring));
    }
    STRATA_TRY_ASSIGN(StoreFiles files, open_store_files(io, options));
    const std::uint32_t table_size = options.max_requests;
    StorePtr<FileStore> store(new FileStore(std::move(options), std::move(files), rates));
    STRATA_TRY(store->allocate_files());
    STRATA_TRY_ASSIGN(store->io_backend_,
                      make_io_backend(store->options_, store->files_, make_ring, *store, table_size));
    return StorePtr<NvmeStore>(std::move(store));
  }();
  if (!created.has_value()) return created.status().annotate("creating the NVMe store");
  return created;
}

Status FileStore::allocate_files() {
  const MutexLock lock(mutex_);  // not shared yet; for the thread safety analysis
  for (std::uint32_t i = 0; i < files_.opened.size(); ++i)
    if (slots_.file_bytes(i) > 0) STRATA_TRY(files_.opened[i]->allocate(slots_.file_bytes(i)));
  return Status::ok();
}

std::string FileStore::io_description() const {
  const auto& files = files_.opened;
  const auto direct =
      std::count_if(files.begin(), files.end(), [](const auto& file) { return file->direct(); });
  const auto all = static_cast<std::ptrdiff_t>(files.size());
  const std::string memory = io_backend_->memory_note();
  return str(io_backend_->note(), ", ",
             direct == all ? "O_DIRECT"
             : direct == 0 ? "buffered"
                           : "partly buffered",
             !options_.direct ? " as requested"
             : direct < all   ? ", O_DIRECT refused"
                              : "",
             memory.empty() ? "" : ", ", memory, files_.note);
}

}  // namespace strata::detail

namespace strata {

Result<StorePtr<NvmeStore>> NvmeStore::create(Io& io, NvmeOptions options) {
  return detail::FileStore::create(io, std::move(options), detail::make_uring);
}

}  // namespace strata
