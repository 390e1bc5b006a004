#include "c_activations.h"
#include "c_call.h"
#include "c_struct.h"

using namespace strata;
using capi::CActivations;
using capi::read_struct;
using capi::write_struct;

namespace {

/// Runs `body(store)` with the store of a handle. Calls to one store run at the same time.
template <class Body>
strata_status call_store(strata_activations handle, const Body& body) noexcept {
  return capi::call_open(capi::activations_table, handle, "the activations were closed, or never created",
                         [&](CActivations& activations) -> Status { return body(activations.store()); });
}

}  // namespace

strata_status strata_activations_create(const strata_activation_options* options,
                                        strata_activations* activations) {
  return capi::call([&]() -> Status {
    if (activations == nullptr) return Status::error(Code::invalid, "activations is null");
    *activations = 0;
    STRATA_TRY_ASSIGN(const auto given, read_struct(options, "strata_activation_options"));
    STRATA_TRY_ASSIGN(auto* const table, capi::activations_table());
    STRATA_TRY_ASSIGN(auto created, CActivations::create(given));
    *activations = table->add(std::move(created));
    return {};
  });
}

strata_status strata_activations_put(strata_activations activations, const void* bytes, uint64_t n,
                                     uint64_t* id) {
  return call_store(activations, [&](SpillStore& store) -> Status {
    if (id == nullptr) return Status::error(Code::invalid, "id is null");
    *id = 0;
    if (bytes == nullptr) return Status::error(Code::invalid, "bytes is null");
    STRATA_TRY_ASSIGN(*id, store.put({static_cast<const std::byte*>(bytes), n}));
    return {};
  });
}

strata_status strata_activations_get(strata_activations activations, uint64_t id, void* into, uint64_t n) {
  return call_store(activations, [&](SpillStore& store) -> Status {
    if (into == nullptr) return Status::error(Code::invalid, "into is null");
    return store.get(id, {static_cast<std::byte*>(into), n});
  });
}

strata_status strata_activations_prefetch(strata_activations activations, uint64_t id) {
  return call_store(activations, [&](SpillStore& store) { return store.prefetch(id); });
}

strata_status strata_activations_discard(strata_activations activations, uint64_t id) {
  return call_store(activations, [&](SpillStore& store) { return store.discard(id); });
}

strata_status strata_activations_stats(strata_activations activations, strata_activation_stats* stats) {
  return call_store(activations, [&](SpillStore& store) -> Status {
    const SpillStats found = store.stats();
    strata_activation_stats told{};
    told.n_activations = found.n_objects;
    told.activation_bytes = found.object_bytes;
    told.pinned_bytes = found.pinned_bytes;
    told.nvme_bytes = found.nvme_bytes;
    told.peak_pinned_bytes = found.peak_pinned_bytes;
    told.peak_nvme_bytes = found.peak_nvme_bytes;
    told.n_gets = found.n_gets;
    told.n_late_gets = found.n_late_gets;
    told.nvme_read_bytes = found.nvme_read_bytes;
    told.nvme_written_bytes = found.nvme_written_bytes;
    told.nvme_read_seconds = static_cast<double>(found.nvme_read_busy_ns) * 1e-9;
    told.nvme_write_seconds = static_cast<double>(found.nvme_write_busy_ns) * 1e-9;
    return write_struct(told, stats, "strata_activation_stats");
  });
}

strata_status strata_activations_close(strata_activations activations) {
  return call_store(activations, [&](SpillStore&) -> Status {
    STRATA_TRY_ASSIGN(auto* const table, capi::activations_table());
    (void)table->remove(activations);
    return {};
  });
}
