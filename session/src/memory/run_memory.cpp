#include <strata/session/run_memory.h>

#include <algorithm>

#include <strata/offload/tier_mover.h>
#include <strata/runtime/units.h>

namespace strata {

TierBytes TierBudgets::used() const {
  TierBytes bytes{};
  for (std::size_t t = 0; t < kTiers; ++t) bytes[t] = budgets_[t].used_bytes() + budgets_[t].reserved_bytes();
  return bytes;
}
TierBytes TierBudgets::peak() const {
  TierBytes bytes{};
  for (std::size_t t = 0; t < kTiers; ++t) bytes[t] = budgets_[t].peak_bytes();
  return bytes;
}

namespace {

// Returns null if nothing lives on nvme, or if there are no data.
Result<StorePtr<ObjectStore>> open_planned_store(const StatePlan& plan, const OpenStore& open_store,
                                                 Trace* trace, bool has_data) {
  NvmeOptions options = plan.options.nvme;
  options.classes = nvme_slot_classes(plan.layout, plan.placement);
  options.classes.insert(options.classes.end(), plan.driver.nvme_slots.begin(), plan.driver.nvme_slots.end());
  options.trace = trace;
  StorePtr<ObjectStore> store;
  if (open_store) {
    STRATA_TRY_ASSIGN(store, open_store(options));
  }
  if (has_data && store == nullptr && !options.classes.empty())
    return Status::error(Code::invalid, "the plan places states on nvme, but there is no store for them");
  return store;
}

}  // namespace

Result<std::unique_ptr<RunMemory>> RunMemory::create(const StatePlan& plan, std::size_t session_pinned_bytes,
                                                     TierBudgets& budgets, Backend& backend,
                                                     const OpenStore& open_store, Trace* trace) {
  std::unique_ptr<RunMemory> memory(new RunMemory);
  const DriverMemory& driver = plan.driver;
  const bool has_data = backend.info().kind != DeviceKind::null;
  const std::size_t fixed_pinned = driver.pinned + session_pinned_bytes;
  auto& reserved = memory->reservations_;
  STRATA_TRY_ASSIGN(reserved[0], budgets.of(Tier::device).reserve(driver.arena, "activations"));
  STRATA_TRY_ASSIGN(
      reserved[1],
      budgets.of(Tier::pinned).reserve(fixed_pinned, "inputs, losses, norm partials and activations"));
  STRATA_TRY_ASSIGN(reserved[2], budgets.of(Tier::device).reserve(driver.device_states, "keys and values"));
  STRATA_TRY_ASSIGN(reserved[3], budgets.of(Tier::nvme).reserve(driver.nvme_bytes(), "activations"));
  // Before the slabs, because measuring the store's paths takes memory for a while.
  STRATA_TRY_ASSIGN(memory->store_, open_planned_store(plan, open_store, trace, has_data));
  const std::size_t fixed_device = driver.arena + driver.device_states;
  const std::size_t device_slots = plan.placement.bytes(plan.layout, Tier::device);
  const std::size_t pinned_slots = plan.placement.bytes(plan.layout, Tier::pinned);
  // At least a page, since no backend allocates 0 bytes.
  STRATA_TRY_ASSIGN(memory->device_,
                    backend.allocate(MemoryKind::device, std::max(fixed_device + device_slots, kPageBytes)));
  STRATA_TRY_ASSIGN(memory->pinned_, backend.allocate(MemoryKind::pinned, fixed_pinned + pinned_slots));
  const BufferView device = memory->device_.view(), pinned = memory->pinned_.view();
  memory->arena_ = device.part(0, driver.arena);
  memory->device_states_ = device.part(driver.arena, driver.device_states);
  memory->device_slots_ = device.part(fixed_device, device_slots);
  memory->driver_pinned_ = pinned.part(0, driver.pinned);
  memory->session_pinned_ = pinned.part(driver.pinned, session_pinned_bytes);
  memory->pinned_slots_ = pinned.part(fixed_pinned, pinned_slots);
  if (memory->store_ != nullptr) STRATA_TRY(memory->store_->register_memory(pinned));
  return memory;
}

RunMemory::~RunMemory() {
  if (store_ != nullptr && !store_->drain()) pinned_.abandon();
}

}  // namespace strata
