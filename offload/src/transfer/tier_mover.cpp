#include <strata/offload/tier_mover.h>

#include <strata/offload/nvme_options.h>
#include <strata/offload/object_store.h>

namespace strata {
namespace {

std::uint64_t id_of(PayloadKey key) {
  return std::uint64_t{key.chunk} * kPayloads + static_cast<std::uint64_t>(key.payload);
}

}  // namespace

std::vector<SlotClass> nvme_slot_classes(const ChunkLayout& layout, const Placement& placement) {
  const std::vector<std::uint32_t> homes = placement.home_counts(layout, Tier::nvme);
  std::vector<SlotClass> classes;
  for (std::size_t c = 0; c < homes.size(); ++c)
    if (homes[c] > 0)
      classes.push_back({placement.classes[c].slot_bytes,
                         homes[c] + placement.classes[c].window[static_cast<std::size_t>(Tier::nvme)] +
                             placement.classes[c].snapshots});
  return classes;
}

TierMover::TierMover(Backend& backend, Stream& h2d, Stream& d2h, const ChunkLayout& layout,
                     const Placement& placement, ObjectStore* store)
    : backend_(backend), h2d_(h2d), d2h_(d2h), layout_(layout), placement_(placement), store_(store) {
  std::uint32_t next = 0;
  for (const std::uint32_t homes : placement.home_counts(layout, Tier::nvme))
    store_class_.push_back(homes > 0 ? next++ : 0);
}

Status TierMover::copy_async(BufferView dst, ConstBufferView src, Direction direction, const Fence& after,
                             Event& done) {
  Stream& stream = direction == Direction::h2d ? h2d_ : d2h_;
  for (const Event& event : after.events)
    if (event.stream >= 0 && event.stream != stream.id()) STRATA_TRY(backend_.wait_on_async(event, stream));
  STRATA_TRY(backend_.copy_async(dst, src, stream));
  STRATA_TRY_ASSIGN(done, backend_.record(stream));
  return Status::ok();
}

Result<IoTicket> TierMover::write_async(PayloadKey key, ConstBufferView src, bool snapshot) {
  if (store_ == nullptr) return IoTicket{};
  return store_->write_async(id_of(key), store_class_[placement_.class_of(layout_, key)], src,
                             snapshot ? WriteMode::snapshot : WriteMode::replace);
}

Result<IoTicket> TierMover::read_async(PayloadKey key, BufferView dst) {
  if (store_ == nullptr) return IoTicket{};
  return store_->read_async(id_of(key), dst);
}

Status TierMover::wait(IoTicket ticket) { return store_ == nullptr ? Status::ok() : store_->wait(ticket); }

bool TierMover::wait_for(IoTicket ticket, std::int64_t ns) {
  return store_ == nullptr || store_->wait_for(ticket, ns);
}

void TierMover::commit(PayloadKey key) {
  if (store_ != nullptr) store_->commit(id_of(key));
}

void TierMover::rollback(PayloadKey key) {
  if (store_ != nullptr) store_->rollback(id_of(key));
}

}  // namespace strata
