#include "state_access.h"

#include <algorithm>
#include <cstring>

#include <strata/cpuopt/adamw.h>
#include <strata/runtime/convert.h>
#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

constexpr std::int64_t kDrawsAtOnce = 4096;  // elements of one task of initialize()

}  // namespace

Stream& StateAccess::stream_of(const Opened& chunk, Intent intent) const noexcept {
  if (chunk.tier == Tier::pinned) return machine_.cpu;
  return intent == Intent::read ? machine_.d2h : machine_.h2d;
}

Result<StateAccess::Opened> StateAccess::open(ChunkId chunk, Payload payload, Intent intent) {
  ChunkManager& chunks = *machine_.chunks;
  const GroupKey& group = machine_.plan.layout.group_of(chunk);
  Opened opened;
  if (chunks.placement().home({chunk, payload}) == Tier::device) opened.tier = Tier::device;
  if (payload == Payload::param) opened.dtype = group.compute;
  Stream& stream = stream_of(opened, intent);
  STRATA_TRY_ASSIGN(opened.values, chunks.pin({chunk, payload}, opened.tier, intent, stream));
  if (payload == Payload::param && machine_.plan.trains() &&
      machine_.plan.layout.has(chunk, Payload::master)) {
    opened.rest_elem_bytes = bytes_per_elem(group, Payload::master);
    STRATA_TRY_ASSIGN(opened.rest, chunks.pin({chunk, Payload::master}, opened.tier, intent, stream));
  }
  STRATA_TRY(machine_.backend.synchronize(stream));
  for (const ChunkPin* pin : {&opened.values, &opened.rest})
    if (*pin && opened.tier == Tier::pinned)
      STRATA_TRY(machine_.backend.host_access({pin->view().data, pin->view().bytes, intent != Intent::read}));
  return opened;
}

/// Calls one(opened chunk, piece, element of the chunk where the piece begins, values to use) for all
/// tensors.
template <class OnePiece>
Status StateAccess::each_piece(Payload payload, Intent intent, const OnePiece& one) {
  ChunkManager& chunks = *machine_.chunks;
  const RunPlan& plan = machine_.plan;
  for (ChunkId chunk = 0; chunk < plan.layout.n_chunks(); ++chunk) {
    bool has_rest = false;
    {
      STRATA_TRY_ASSIGN(const Opened opened, open(chunk, payload, intent));
      has_rest = static_cast<bool>(opened.rest);
      for (const std::int32_t tensor : plan.layout.chunk(chunk).tensors) {
        const Slice& slice = plan.layout.slice(tensor);
        for (std::int64_t at = 0; at < slice.n_elems && !machine_.dry(); at += kStatePiece) {
          const auto n = static_cast<std::size_t>(std::min(kStatePiece, slice.n_elems - at));
          const StatePiece piece{plan.tensors.specs[static_cast<std::size_t>(tensor)].name, at,
                                 slice.n_elems};
          STRATA_TRY(one(opened, piece, tensor, slice.offset + at, std::span(piece_).first(n)));
        }
      }
    }
    if (intent == Intent::read) continue;
    STRATA_TRY(chunks.send_home({chunk, payload}));
    if (has_rest) STRATA_TRY(chunks.send_home({chunk, Payload::master}));
  }
  return chunks.status();
}

// Values of a chunk from element `at` on, as f32.
Status StateAccess::load(const Opened& chunk, std::int64_t at, std::span<float> values) {
  const std::size_t elem_bytes[] = {size_of(chunk.dtype), chunk.rest_elem_bytes};
  const ChunkPin* const pins[] = {&chunk.values, &chunk.rest};
  const std::byte* parts[] = {nullptr, nullptr};
  for (const std::size_t i : {0u, 1u}) {
    if (!*pins[i]) continue;
    parts[i] = pins[i]->view().data + static_cast<std::size_t>(at) * elem_bytes[i];
    if (chunk.tier == Tier::pinned) continue;
    const std::size_t bytes = values.size() * elem_bytes[i];
    std::byte* const here = machine_.state_piece(i);
    STRATA_TRY(machine_.backend.copy_async({here, bytes}, {parts[i], bytes}, machine_.d2h));
    STRATA_TRY(machine_.backend.synchronize(machine_.d2h));
    STRATA_TRY(machine_.backend.host_access({here, bytes, false}));
    parts[i] = here;
  }
  if (chunk.rest) {
    cpuopt::join_masters(chunk.dtype, parts[0], parts[1], values);
    return Status::ok();
  }
  return widen_to_f32(chunk.dtype, {parts[0], values.size() * elem_bytes[0]}, values);
}

Status StateAccess::store(const Opened& chunk, std::int64_t at, std::span<const float> values) {
  const std::size_t elem_bytes[] = {size_of(chunk.dtype), chunk.rest_elem_bytes};
  const ChunkPin* const pins[] = {&chunk.values, &chunk.rest};
  // What is in RAM is written where it is; what is not, and a rest that this run does not hold, beside it.
  std::byte* parts[] = {machine_.state_piece(0), machine_.state_piece(1)};
  for (const std::size_t i : {0u, 1u})
    if (chunk.tier == Tier::pinned && *pins[i])
      parts[i] = pins[i]->view().data + static_cast<std::size_t>(at) * elem_bytes[i];
  cpuopt::split_masters(values, chunk.dtype, parts[0], parts[1]);
  if (chunk.tier == Tier::pinned) return Status::ok();
  for (const std::size_t i : {0u, 1u}) {
    if (!*pins[i]) continue;
    const std::size_t bytes = values.size() * elem_bytes[i];
    std::byte* const there = pins[i]->view().data + static_cast<std::size_t>(at) * elem_bytes[i];
    STRATA_TRY(machine_.backend.host_access({parts[i], bytes, true}));
    STRATA_TRY(machine_.backend.copy_async({there, bytes}, {parts[i], bytes}, machine_.h2d));
  }
  return machine_.backend.synchronize(machine_.h2d);  // the piece is written again
}

Status StateAccess::initialize(std::uint64_t seed) {
  const RunPlan& plan = machine_.plan;
  STRATA_TRY(each_piece(
      Payload::param, Intent::overwrite,
      [&](const Opened& chunk, const StatePiece& piece, std::int32_t tensor, std::int64_t at,
          std::span<float> values) {
        const Init& init = plan.init_of_tensor[static_cast<std::size_t>(tensor)];
        // The stream is the parameter's place in the program, so the layout cannot change
        // what it draws.
        const Rng rng(
            seed, static_cast<std::uint64_t>(plan.tensors.param_of_tensor[static_cast<std::size_t>(tensor)]));
        const auto n = static_cast<std::int64_t>(values.size());
        machine_.pool.parallel_for((n + kDrawsAtOnce - 1) / kDrawsAtOnce, [&](std::int64_t task) {
          const std::int64_t end = std::min(n, (task + 1) * kDrawsAtOnce);
          for (std::int64_t i = task * kDrawsAtOnce; i < end; ++i)
            values[static_cast<std::size_t>(i)] =
                init.std == 0
                    ? init.mean
                    : init.mean + init.std * rng.normal(static_cast<std::uint64_t>(piece.offset + i));
        });
        return store(chunk, at, values);
      }));
  for (const Payload payload : plan.states().subspan(1))
    STRATA_TRY(fill(payload, [](const StatePiece&, std::span<float> values) {
      std::fill(values.begin(), values.end(), 0.0f);
      return Status::ok();
    }));
  return Status::ok();
}

Status StateAccess::fill(Payload payload, const Engine::Fill& fill) {
  return each_piece(payload, Intent::overwrite,
                    [&](const Opened& chunk, const StatePiece& piece, std::int32_t, std::int64_t at,
                        std::span<float> values) {
                      STRATA_TRY(fill(piece, values));
                      return store(chunk, at, values);
                    });
}

Status StateAccess::visit(Payload payload, const Engine::Visit& visit) {
  return each_piece(payload, Intent::read,
                    [&](const Opened& chunk, const StatePiece& piece, std::int32_t, std::int64_t at,
                        std::span<float> values) {
                      STRATA_TRY(load(chunk, at, values));
                      return visit(piece, values);
                    });
}

}  // namespace strata
