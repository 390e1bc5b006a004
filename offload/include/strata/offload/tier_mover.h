#pragma once

#include <vector>

#include <strata/chunk/mover.h>
#include <strata/chunk/placement.h>
#include <strata/runtime/backend.h>

namespace strata {

class ObjectStore;
struct SlotClass;

/// The Mover of a run: copies on the h2d and d2h streams, reads and writes through the store. With no
/// store (planning over the null backend) slow-tier requests complete at once. Called by one thread.
class TierMover final : public Mover {
 public:
  /// All references outlive the lanes; `store` has the classes of nvme_slot_classes(), or is null.
  TierMover(Backend& backend, Stream& h2d, Stream& d2h, const ChunkLayout& layout, const Placement& placement,
            ObjectStore* store);

  Status copy_async(BufferView dst, ConstBufferView src, Direction direction, const Fence& after,
                    Event& done) override;
  Result<IoTicket> write_async(PayloadKey key, ConstBufferView src, bool snapshot) override;
  Result<IoTicket> read_async(PayloadKey key, BufferView dst) override;
  Status wait(IoTicket ticket) override;
  bool wait_for(IoTicket ticket, std::int64_t ns) override;
  void commit(PayloadKey key) override;
  void rollback(PayloadKey key) override;

 private:
  Backend& backend_;
  Stream& h2d_;
  Stream& d2h_;
  const ChunkLayout& layout_;
  const Placement& placement_;
  ObjectStore* store_;
  std::vector<std::uint32_t> store_class_;  // by class of the placement
};

/// The classes an NvmeStore needs for a placement: those with homes on nvme, in order.
std::vector<SlotClass> nvme_slot_classes(const ChunkLayout& layout, const Placement& placement);

}  // namespace strata
