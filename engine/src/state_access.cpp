#include "state_access.h"

#include <algorithm>
#include <cstring>

#include <strata/cpuopt/master.h>
#include <strata/cpuopt/moments.h>
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
  Opened opened{chunk, payload, Tier::pinned, {}, {}};
  if (chunks.placement().home({chunk, payload}) == Tier::device) opened.tier = Tier::device;
  Stream& stream = stream_of(opened, intent);
  STRATA_TRY_ASSIGN(opened.values, chunks.pin({chunk, payload}, opened.tier, intent, stream));
  if (payload == Payload::param && machine_.plan.trains() &&
      machine_.plan.layout.has(chunk, Payload::master)) {
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
    if (!plan.layout.has(chunk, payload)) continue;  // frozen: no moments
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

StateAccess::Parts StateAccess::parts_of(const Opened& chunk, std::int64_t at, std::int64_t n) const {
  const GroupKey& group = machine_.plan.layout.group_of(chunk.chunk);
  const auto part = [&](const ChunkPin& pin, std::size_t elem_bytes) {
    return Part{pin ? &pin : nullptr, static_cast<std::size_t>(at) * elem_bytes,
                static_cast<std::size_t>(n) * elem_bytes};
  };
  if (chunk.payload == Payload::param)
    return {part(chunk.values, size_of(group.compute)),
            part(chunk.rest, cpuopt::master_bytes(cpuopt::master_layout(group.compute)))};
  Parts parts = {part(chunk.values, moment_value_bytes(group.format)), Part{}};
  if (group.format == StateFormat::int8) {
    const auto elems = static_cast<std::size_t>(machine_.plan.layout.chunk(chunk.chunk).n_elems);
    const std::int64_t first = at / kMomentBlock, end = (at + n + kMomentBlock - 1) / kMomentBlock;
    parts[1] = {&chunk.values, elems + static_cast<std::size_t>(first) * sizeof(float),
                static_cast<std::size_t>(end - first) * sizeof(float)};
  }
  return parts;
}

namespace {

cpuopt::MomentKind kind_of(Payload payload) {
  return payload == Payload::m ? cpuopt::MomentKind::first : cpuopt::MomentKind::second;
}

}  // namespace

// Values of a chunk from element `at` on, as f32.
Status StateAccess::load(const Opened& chunk, std::int64_t at, std::span<float> values) {
  const GroupKey& group = machine_.plan.layout.group_of(chunk.chunk);
  const Parts parts = parts_of(chunk, at, std::ssize(values));
  std::array<std::byte*, 2> from{};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].pin == nullptr) continue;
    from[i] = parts[i].pin->view().data + parts[i].offset;
    if (chunk.tier == Tier::pinned) continue;
    std::byte* const here = machine_.state_piece(i);
    STRATA_TRY(machine_.backend.copy_async({here, parts[i].bytes}, {from[i], parts[i].bytes}, machine_.d2h));
    STRATA_TRY(machine_.backend.synchronize(machine_.d2h));
    STRATA_TRY(machine_.backend.host_access({here, parts[i].bytes, false}));
    from[i] = here;
  }
  if (chunk.payload != Payload::param)
    cpuopt::decode_moment(group.format, kind_of(chunk.payload), {from[0], reinterpret_cast<float*>(from[1])},
                          values);
  else if (from[1] != nullptr || group.compute == DType::f32)
    cpuopt::join_masters(cpuopt::master_layout(group.compute), from[0], from[1], values);
  else
    return widen_to_f32(group.compute, {from[0], parts[0].bytes}, values);
  return Status::ok();
}

Status StateAccess::store(const Opened& chunk, std::int64_t at, std::span<const float> values) {
  const GroupKey& group = machine_.plan.layout.group_of(chunk.chunk);
  const Parts parts = parts_of(chunk, at, std::ssize(values));
  // What is in RAM is written where it is; what is not, and a rest that this run does not hold, beside it.
  std::array<std::byte*, 2> into = {machine_.state_piece(0), machine_.state_piece(1)};
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (chunk.tier == Tier::pinned && parts[i].pin != nullptr)
      into[i] = parts[i].pin->view().data + parts[i].offset;
  if (chunk.payload == Payload::param)
    cpuopt::split_masters(values, cpuopt::master_layout(group.compute), into[0], into[1]);
  else
    cpuopt::encode_moment(group.format, kind_of(chunk.payload), values,
                          {into[0], reinterpret_cast<float*>(into[1])});
  if (chunk.tier == Tier::pinned) return Status::ok();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].pin == nullptr) continue;
    std::byte* const there = parts[i].pin->view().data + parts[i].offset;
    STRATA_TRY(machine_.backend.host_access({into[i], parts[i].bytes, true}));
    STRATA_TRY(machine_.backend.copy_async({there, parts[i].bytes}, {into[i], parts[i].bytes}, machine_.h2d));
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
