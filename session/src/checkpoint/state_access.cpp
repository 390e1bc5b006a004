#include "checkpoint/state_access.h"

#include <algorithm>
#include <cstring>

#include <strata/cpuopt/master.h>
#include <strata/cpuopt/moments.h>
#include <strata/runtime/convert.h>
#include <strata/runtime/str.h>

#include "step/queue_update.h"

namespace strata::detail {
namespace {

// The format of the values that `payload` stores: a moving average is not a moment, and always in f32.
StateFormat format_of(const GroupKey& group, Payload payload) {
  return payload == Payload::ema ? StateFormat::fp32 : group.format;
}

cpuopt::MomentKind kind_of(Payload payload) {
  return payload == Payload::m ? cpuopt::MomentKind::first : cpuopt::MomentKind::second;
}

}  // namespace

Stream& StateAccess::stream_of(const Opened& chunk, Intent intent) const noexcept {
  if (chunk.tier == Tier::pinned) return context_.streams().cpu;
  return intent == Intent::read ? context_.streams().d2h : context_.streams().h2d;
}

Result<StateAccess::Opened> StateAccess::open(ChunkId chunk, Payload payload, Intent intent) {
  ChunkManager& chunks = context_.chunks();
  Opened opened{chunk, payload, Tier::pinned, {}, {}};
  const bool of_trainer = payload == Payload::param && context_.plan().layout.group_of(chunk).of_trainer;
  if (!of_trainer && context_.plan().placement.home({chunk, payload}) == Tier::device)
    opened.tier = Tier::device;
  Stream& stream = stream_of(opened, intent);
  if (!of_trainer) {
    STRATA_TRY_ASSIGN(opened.values, chunks.pin({chunk, payload}, opened.tier, intent, stream));
  }
  if (payload == Payload::param && joins_masters(chunk)) {
    STRATA_TRY_ASSIGN(opened.rest, chunks.pin({chunk, Payload::master}, opened.tier, intent, stream));
  }
  STRATA_TRY(context_.backend().synchronize(stream));
  for (const ChunkPin* pin : {&opened.values, &opened.rest})
    if (*pin && opened.tier == Tier::pinned)
      STRATA_TRY(
          context_.backend().host_access({pin->view().data, pin->view().bytes, intent != Intent::read}));
  return opened;
}

std::vector<StateAccess::Piece> StateAccess::pieces_of(ChunkId chunk, const StateSelection& of) const {
  std::vector<Piece> pieces;
  list_pieces(chunk, of, pieces);
  return pieces;
}

void StateAccess::list_pieces(ChunkId chunk, const StateSelection& of, std::vector<Piece>& into) const {
  into.clear();
  const std::int64_t max_elems = std::min(kMaxStatePieceElems, context_.pinned_layout().state_run);
  const ElemRange held = context_.plan().layout.range(chunk, Payload::param);
  const ElemRange wanted = of.only_part ? context_.plan().layout.summed(chunk) : held;
  for (const Slice& slice : context_.plan().layout.chunk(chunk).slices) {
    if (!of.has(slice.tensor)) continue;
    const std::int64_t end = std::min(slice.n_elems, wanted.end - slice.offset);
    for (std::int64_t at = std::max<std::int64_t>(0, wanted.begin - slice.offset);
         at < end && context_.has_data(); at += max_elems)
      into.push_back(
          {slice.tensor, slice.first + at, slice.offset + at - held.begin, std::min(max_elems, end - at)});
  }
}

std::vector<StateAccess::Run> StateAccess::runs_of(const std::vector<Piece>& pieces) const {
  std::vector<Run> runs;
  list_runs(pieces, runs);
  return runs;
}

void StateAccess::list_runs(const std::vector<Piece>& pieces, std::vector<Run>& into) const {
  into.clear();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    if (into.empty() || into.back().at + into.back().n != piece.at ||
        into.back().n + piece.n > context_.pinned_layout().state_run)
      into.push_back({i, i, piece.at, 0});
    into.back().end = i + 1;
    into.back().n += piece.n;
  }
}

StatePiece StateAccess::piece_info(const Piece& piece) const {
  return {context_.plan().tensors.specs[static_cast<std::size_t>(piece.tensor)].name, piece.offset,
          context_.plan().tensors.specs[static_cast<std::size_t>(piece.tensor)].n_elems, piece.tensor};
}

StateAccess::Parts StateAccess::parts_of(const Opened& chunk, std::int64_t at, std::int64_t n) const {
  const GroupKey& group = context_.plan().layout.group_of(chunk.chunk);
  const auto part = [&](const ChunkPin& pin, std::size_t elem_bytes) {
    return Part{pin ? &pin : nullptr, static_cast<std::size_t>(at) * elem_bytes,
                static_cast<std::size_t>(n) * elem_bytes};
  };
  if (chunk.payload == Payload::param)
    return {part(chunk.values, size_of(group.compute)),
            part(chunk.rest, cpuopt::master_bytes(cpuopt::master_layout(group.compute)))};
  const StateFormat format = format_of(group, chunk.payload);
  Parts parts = {part(chunk.values, moment_value_bytes(format)), Part{}};
  if (format == StateFormat::int8) {
    const auto elems =
        static_cast<std::size_t>(context_.plan().layout.range(chunk.chunk, chunk.payload).size());
    const std::int64_t first = at / kMomentBlock, end = (at + n + kMomentBlock - 1) / kMomentBlock;
    parts[1] = {&chunk.values, elems + static_cast<std::size_t>(first) * sizeof(float),
                static_cast<std::size_t>(end - first) * sizeof(float)};
  }
  return parts;
}

StateAccess::Addresses StateAccess::in_place(const Opened& chunk, const Piece& piece) const {
  const Parts parts = parts_of(chunk, piece.at, piece.n);
  Addresses addresses{};
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (parts[i].pin != nullptr) addresses[i] = parts[i].pin->view().data + parts[i].offset;
  const GroupKey& group = context_.plan().layout.group_of(chunk.chunk);
  if (chunk.payload == Payload::param && group.of_trainer)
    addresses[0] = context_.trainer_params()[static_cast<std::size_t>(piece.tensor)] +
                   static_cast<std::size_t>(piece.offset) * size_of(group.compute);
  return addresses;
}

StateAccess::Addresses StateAccess::staged(const Opened& chunk, const Run& run, std::size_t slot,
                                           const Piece& piece) const {
  const Parts parts = parts_of(chunk, piece.at, piece.n), begin = parts_of(chunk, run.at, run.n);
  Addresses addresses{};
  for (std::size_t i = 0; i < parts.size(); ++i)
    addresses[i] = context_.state_staging(slot, i) + (parts[i].offset - begin[i].offset);
  return addresses;
}

Status StateAccess::copy_run(const Opened& chunk, const Run& run, std::size_t slot, Intent intent) {
  Stream& stream = stream_of(chunk, intent);
  const Parts parts = parts_of(chunk, run.at, run.n);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].pin == nullptr || parts[i].bytes == 0) continue;
    const BufferView there = {parts[i].pin->view().data + parts[i].offset, parts[i].bytes},
                     here = {context_.state_staging(slot, i), parts[i].bytes};
    STRATA_TRY(intent == Intent::read ? context_.backend().copy_async(here, there, stream)
                                      : context_.backend().copy_async(there, here, stream));
  }
  STRATA_TRY_ASSIGN(copied_[slot], context_.backend().record(stream));
  return {};
}

Status StateAccess::host_access(const Opened& chunk, const Run& run, std::size_t slot, bool writes) {
  for (std::size_t i = 0; const Part& part : parts_of(chunk, run.at, run.n)) {
    if (part.pin != nullptr && part.bytes > 0)
      STRATA_TRY(context_.backend().host_access({context_.state_staging(slot, i), part.bytes, writes}));
    ++i;
  }
  return {};
}

// Frozen chunks have no moments.
bool StateAccess::has(ChunkId chunk, Payload payload) const {
  const ChunkLayout& layout = context_.plan().layout;
  return layout.has(chunk, payload) || (payload == Payload::param && layout.group_of(chunk).of_trainer);
}

// Whether the run holds the bits of the masters that parameters in 16 bits lack.
bool StateAccess::joins_masters(ChunkId chunk) const {
  return context_.plan().trains() && context_.plan().layout.has(chunk, Payload::master);
}

bool StateAccess::rounds_params(ChunkId chunk) const {
  return context_.plan().layout.group_of(chunk).compute != DType::f32 && !joins_masters(chunk);
}

// Converts stored values to f32.
Status StateAccess::decode(const Opened& chunk, const Addresses& from, std::span<float> values) const {
  const GroupKey& group = context_.plan().layout.group_of(chunk.chunk);
  if (chunk.payload != Payload::param)
    cpuopt::decode_moment(format_of(group, chunk.payload), kind_of(chunk.payload),
                          {from[0], reinterpret_cast<float*>(from[1])}, values);
  else if (group.compute == DType::u8)
    std::transform(from[0], from[0] + values.size(), values.begin(),
                   [](std::byte byte) { return static_cast<float>(byte); });
  else if (chunk.rest || group.compute == DType::f32)
    cpuopt::join_masters(cpuopt::master_layout(group.compute), from[0], from[1], values);
  else
    return widen_to_f32(group.compute, {from[0], values.size() * size_of(group.compute)}, values);
  return Status::ok();
}

void StateAccess::encode(const Opened& chunk, const Addresses& into, std::span<const float> values) const {
  const GroupKey& group = context_.plan().layout.group_of(chunk.chunk);
  if (chunk.payload == Payload::param && group.compute == DType::u8)
    std::transform(values.begin(), values.end(), into[0],
                   [](float value) { return static_cast<std::byte>(value); });
  else if (chunk.payload == Payload::param)
    cpuopt::split_masters(values, cpuopt::master_layout(group.compute), into[0], into[1]);
  else
    cpuopt::encode_moment(format_of(group, chunk.payload), kind_of(chunk.payload), values,
                          {into[0], reinterpret_cast<float*>(into[1])});
}

template <class AddressesOf>
Status StateAccess::visit_pieces(const Opened& chunk, std::span<const Piece> pieces, const AddressesOf& at,
                                 const VisitState& visit, bool joins) {
  for (std::size_t first = 0, end = 0; first < pieces.size(); first = end) {
    Piece all = pieces[first];
    for (end = first + 1; end < pieces.size() && end - first < kVisitedPieces; ++end) {
      const Piece& next = pieces[end];
      if (next.tensor != all.tensor || next.offset != all.offset + all.n) break;
      all.n += next.n;
    }
    std::array<Status, kVisitedPieces> decoded;
    context_.pool().parallel_for(static_cast<std::int64_t>(end - first), [&](std::int64_t i) {
      const Piece& piece = pieces[first + static_cast<std::size_t>(i)];
      decoded[static_cast<std::size_t>(i)] =
          decode(chunk, at(piece),
                 std::span(values_).subspan(static_cast<std::size_t>(piece.offset - all.offset),
                                            static_cast<std::size_t>(piece.n)));
    });
    for (const Status& status : decoded) STRATA_TRY(status);
    if (joins) {
      STRATA_TRY(visit(piece_info(all), values_of(all)));
      continue;
    }
    for (const Piece& piece : pieces.subspan(first, end - first))
      STRATA_TRY(visit(piece_info(piece), std::span<const float>(values_).subspan(
                                              static_cast<std::size_t>(piece.offset - all.offset),
                                              static_cast<std::size_t>(piece.n))));
  }
  return {};
}

Status StateAccess::visit_in_ram(const Opened& chunk, const std::vector<Piece>& pieces,
                                 const VisitState& visit, bool joins) {
  return visit_pieces(
      chunk, pieces, [&](const Piece& piece) { return in_place(chunk, piece); }, visit, joins);
}

// The next run is copied while one is visited.
Status StateAccess::visit_on_device(const Opened& chunk, const std::vector<Piece>& pieces,
                                    const VisitState& visit, bool joins) {
  const std::vector<Run> runs = runs_of(pieces);
  const std::size_t slots = context_.pinned_layout().state_slots;
  STRATA_TRY(context_.backend().synchronize(context_.streams().h2d));  // in case a fill ended in an error
  for (std::size_t r = 0; r < std::min(slots, runs.size()); ++r)
    STRATA_TRY(copy_run(chunk, runs[r], r, Intent::read));
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const std::size_t slot = r % slots;
    STRATA_TRY(context_.backend().wait(copied_[slot]));
    STRATA_TRY(host_access(chunk, runs[r], slot, false));
    STRATA_TRY(visit_pieces(
        chunk, std::span(pieces).subspan(runs[r].first, runs[r].end - runs[r].first),
        [&](const Piece& piece) { return staged(chunk, runs[r], slot, piece); }, visit, joins));
    if (r + slots < runs.size()) STRATA_TRY(copy_run(chunk, runs[r + slots], slot, Intent::read));
  }
  return {};
}

bool StateAccess::has_any(ChunkId chunk, const StateSelection& of) const {
  const std::vector<Slice>& slices = context_.plan().layout.chunk(chunk).slices;
  return std::any_of(slices.begin(), slices.end(), [&](const Slice& slice) { return of.has(slice.tensor); });
}

Status StateAccess::visit_range(Payload payload, const VisitState& visit, const StateSelection& of) {
  const ChunkLayout& layout = context_.plan().layout;
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk) {
    if (!has(chunk, payload) || !covers(of.scope, layout.group_of(chunk).saved) || !has_any(chunk, of))
      continue;
    STRATA_TRY_ASSIGN(const Opened opened, open(chunk, payload, Intent::read));
    const std::vector<Piece> pieces = pieces_of(chunk, of);
    STRATA_TRY(opened.tier == Tier::device ? visit_on_device(opened, pieces, visit, of.joins_pieces)
                                           : visit_in_ram(opened, pieces, visit, of.joins_pieces));
  }
  return context_.chunks().status();
}

// States in RAM are written in place. The master part that this run does not hold goes to staging memory and
// is ignored.
template <class Fill>
Status StateAccess::fill_in_ram(const Opened& chunk, const Fill& fill, const VisitState& rounded) {
  for (const Piece& piece : pieces_of(chunk.chunk)) {
    STRATA_TRY(fill(piece, values_of(piece)));
    Addresses into = in_place(chunk, piece);
    for (std::size_t i = 0; i < into.size(); ++i)
      if (into[i] == nullptr) into[i] = context_.state_staging(0, i);
    encode(chunk, into, values_of(piece));
    STRATA_TRY(tell_rounded(chunk, into, piece, rounded));
  }
  return {};
}

Status StateAccess::tell_rounded(const Opened& chunk, const Addresses& from, const Piece& piece,
                                 const VisitState& rounded) {
  if (!rounded || chunk.payload != Payload::param || !rounds_params(chunk.chunk)) return {};
  STRATA_TRY(decode(chunk, from, values_of(piece)));
  return rounded(piece_info(piece), values_of(piece));
}

// One run is copied while the next is filled.
template <class Fill>
Status StateAccess::fill_on_device(const Opened& chunk, const Fill& fill, const VisitState& rounded) {
  const std::vector<Piece> pieces = pieces_of(chunk.chunk);
  const std::vector<Run> runs = runs_of(pieces);
  const std::size_t slots = context_.pinned_layout().state_slots;
  STRATA_TRY(context_.backend().synchronize(context_.streams().d2h));  // in case a visit ended in an error
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const std::size_t slot = r % slots;
    if (r >= slots) STRATA_TRY(context_.backend().wait(copied_[slot]));
    STRATA_TRY(host_access(chunk, runs[r], slot, true));
    for (std::size_t i = runs[r].first; i < runs[r].end; ++i) {
      STRATA_TRY(fill(pieces[i], values_of(pieces[i])));
      encode(chunk, staged(chunk, runs[r], slot, pieces[i]), values_of(pieces[i]));
      STRATA_TRY(tell_rounded(chunk, staged(chunk, runs[r], slot, pieces[i]), pieces[i], rounded));
    }
    STRATA_TRY(copy_run(chunk, runs[r], slot, Intent::overwrite));
  }
  return context_.backend().synchronize(context_.streams().h2d);  // the staging memory is reused
}

template <class Fill>
Status StateAccess::fill_pieces(Payload payload, const Fill& fill, const VisitState& rounded) {
  ChunkManager& chunks = context_.chunks();
  for (ChunkId chunk = 0; chunk < context_.plan().layout.n_chunks(); ++chunk) {
    if (!has(chunk, payload)) continue;
    bool has_values = false, has_rest = false;
    {
      STRATA_TRY_ASSIGN(const Opened opened, open(chunk, payload, Intent::overwrite));
      has_values = static_cast<bool>(opened.values);
      has_rest = static_cast<bool>(opened.rest);
      STRATA_TRY(opened.tier == Tier::device ? fill_on_device(opened, fill, rounded)
                                             : fill_in_ram(opened, fill, rounded));
    }
    if (has_values) STRATA_TRY(chunks.write_back({chunk, payload}));
    if (has_rest) STRATA_TRY(chunks.write_back({chunk, Payload::master}));
  }
  return chunks.status();
}

Status StateAccess::clear_moments() {
  for (const Payload payload : context_.plan().states().subspan(1)) {
    if (payload == Payload::ema) continue;
    STRATA_TRY(fill_pieces(payload, [](const Piece&, std::span<float> values) {
      std::fill(values.begin(), values.end(), 0.0f);
      return Status::ok();
    }));
  }
  return Status::ok();
}

Status StateAccess::start_ema() {
  const auto states = context_.plan().states();
  if (std::find(states.begin(), states.end(), Payload::ema) == states.end()) return {};
  ChunkManager& chunks = context_.chunks();
  for (ChunkId chunk = 0; chunk < context_.plan().layout.n_chunks(); ++chunk) {
    if (!has(chunk, Payload::ema)) continue;
    STRATA_TRY(queue_ema_start(context_, chunk));
    STRATA_TRY(chunks.write_back({chunk, Payload::ema}));
  }
  return chunks.status();
}

Status StateAccess::fill(Payload payload, const FillState& fill, const VisitState& rounded) {
  return fill_pieces(
      payload, [&](const Piece& piece, std::span<float> values) { return fill(piece_info(piece), values); },
      rounded);
}

}  // namespace strata::detail
