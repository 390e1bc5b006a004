#include <strata/offload/nvme_store.h>

#include <utility>

#include "store/store_core.h"

namespace strata {

Result<std::unique_ptr<NvmeStore>> NvmeStore::create(Io& io, NvmeOptions options) {
  STRATA_TRY_ASSIGN(std::unique_ptr<detail::StoreCore> core,
                    detail::StoreCore::create(io, std::move(options)));
  return std::make_unique<NvmeStore>(std::move(core));
}

NvmeStore::NvmeStore(std::unique_ptr<detail::StoreCore> core) : core_(std::move(core)) {}

// If a request never completed, the kernel and a worker still refer to the core, so it is leaked.
NvmeStore::~NvmeStore() {
  if (core_ != nullptr && !core_->drain()) static_cast<void>(core_.release());
}

Status NvmeStore::register_memory(BufferView slab) { return core_->register_memory(slab); }
Result<Ticket> NvmeStore::write_async(std::uint64_t id, std::uint32_t slot_class, ConstBufferView src,
                                      WriteMode mode) {
  return core_->write_async(id, slot_class, src, mode);
}
Result<Ticket> NvmeStore::read_async(std::uint64_t id, BufferView dst) { return core_->read_async(id, dst); }
Status NvmeStore::wait(Ticket ticket) { return core_->wait(ticket); }
bool NvmeStore::wait_for(Ticket ticket, std::int64_t ns) { return core_->wait_for(ticket, ns); }
bool NvmeStore::is_complete(Ticket ticket) const noexcept { return core_->is_complete(ticket); }
void NvmeStore::discard(std::uint64_t id) { core_->discard(id); }
void NvmeStore::commit(std::uint64_t id) { core_->commit(id); }
void NvmeStore::rollback(std::uint64_t id) { core_->rollback(id); }
std::optional<StoredInfo> NvmeStore::find(std::uint64_t id) const { return core_->find(id); }
std::uint64_t NvmeStore::used_bytes() const { return core_->used_bytes(); }
std::uint64_t NvmeStore::capacity_bytes() const { return core_->capacity_bytes(); }
std::vector<NvmePath> NvmeStore::paths() const { return core_->paths(); }
NvmeCounters NvmeStore::counters() const { return core_->counters(); }
std::string NvmeStore::io_description() const { return core_->io_description(); }

}  // namespace strata
