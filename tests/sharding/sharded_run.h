#pragma once

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <strata/graph/launch.h>
#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/graph/partition.h>
#include <strata/parallel/process_group.h>
#include <strata/runtime/convert.h>
#include <strata/runtime/rng.h>

#include "parallel/ranks.h"

namespace strata::test {

using NamedValues = std::map<std::string, std::vector<float>, std::less<>>;

/// The groups of a rank along axes of a mesh, by the numbers by which collectives name them.
using AxisGroups = std::map<std::int32_t, ProcessGroup*>;

/// The memory of a program's values on one rank, and how its instructions run there: a plain interpreter.
class ShardedRun {
 public:
  ShardedRun(const Program& program, Rank& rank, AxisGroups axes)
      : program_(program), rank_(rank), axes_(std::move(axes)) {
    std::size_t end = 0;
    for (const ValueInfo& info : program.values) {
      offsets_.push_back(end);
      end += (info.bytes() + 64) / 64 * 64;
    }
    memory_ = rank.allocate(end);
  }
  TensorView view(ValueId id) {
    if (id == kNoValue) return {};
    const ValueInfo& info = program_.value(id);
    return {memory_.view().data + offsets_[static_cast<std::size_t>(id)], info.shape, info.dtype};
  }
  void set(ValueId id, const void* from) { std::memcpy(view(id).data, from, program_.value(id).bytes()); }
  void set_values(ValueId id, const std::vector<float>& from) {
    const TensorView to = view(id);
    must(narrow_from_f32(from, to.dtype, {to.data, to.bytes()}));
  }
  std::vector<float> values(ValueId id) {
    const TensorView from = view(id);
    std::vector<float> out(static_cast<std::size_t>(from.n_elems()));
    must(widen_to_f32(from.dtype, std::span<const std::byte>(from.data, from.bytes()), out));
    return out;
  }
  Status run() {
    for (const Instr& instr : program_.code) STRATA_TRY(launch(instr));
    return rank_.finish(Status::ok());
  }

 private:
  Status launch(const Instr& instr) {
    std::vector<TensorView> in, out;
    for (const ValueId id : instr.in) in.push_back(view(id));
    for (const ValueId id : instr.out) out.push_back(view(id));
    if (is_collective(instr.op)) return exchange(instr, in[0], out[0]);
    if (is_message(instr.op)) return message(instr);
    return strata::launch({instr.op, instr.attrs, instr.accumulate, in, out}, rank_.backend, rank_.stream);
  }
  Status exchange(const Instr& instr, const TensorView& in, const TensorView& out) {
    const BufferView from{in.data, in.bytes()}, to{out.data, out.bytes()};
    ProcessGroup& group = *axes_.at(instr.attrs.as<CollectiveAttrs>().axis);
    EXPECT_EQ(instr.accumulate, 0u) << op_name(instr.op);
    switch (instr.op) {
      case Op::all_reduce:
        STRATA_TRY(rank_.backend.copy_async(to, from, rank_.stream));
        return group.all_reduce(to, out.dtype, Reduction::sum, rank_.stream);
      case Op::all_reduce_rows:
        return all_reduce_rows(group, instr.attrs.as<CollectiveAttrs>(), from, to, out);
      case Op::all_gather:
        return group.all_gather(from, to, rank_.stream);
      case Op::reduce_scatter:
        return group.reduce_scatter(from, to, out.dtype, Reduction::sum, rank_.stream);
      case Op::all_to_all:
        return group.all_to_all(from, to, rank_.stream);
      case Op::shift_begin:
        return group.shift(from, to, step_of(instr.attrs.as<CollectiveAttrs>()), rank_.stream);
      case Op::shift_end:
        return rank_.backend.copy_async(to, from, rank_.stream);
      default:
        return Status::error(Code::internal, op_name(instr.op));
    }
  }

  // Messages travel beside what the rank computes.
  Status message(const Instr& instr) {
    const auto& a = instr.attrs.as<MessageAttrs>();
    ProcessGroup& group = *axes_.at(a.axis);
    if (!messages_) messages_ = must(rank_.backend.create_stream(StreamRole::collective));
    if (instr.op == Op::send_end || instr.op == Op::receive_end) {
      STRATA_TRY(rank_.backend.wait_on_async(passed_.at(a.number), rank_.stream));
      if (instr.op == Op::send_end) return {};
      const TensorView from = view(instr.in[0]), to = view(instr.out[0]);
      return rank_.backend.copy_async({to.data, to.bytes()}, {from.data, from.bytes()}, rank_.stream);
    }
    STRATA_TRY_ASSIGN(const Event ready, rank_.backend.record(rank_.stream));
    STRATA_TRY(rank_.backend.wait_on_async(ready, *messages_));
    const TensorView of = view(instr.op == Op::send_begin ? instr.in[0] : instr.out[0]);
    STRATA_TRY(instr.op == Op::send_begin ? group.send({of.data, of.bytes()}, a.peer, *messages_)
                                          : group.receive({of.data, of.bytes()}, a.peer, *messages_));
    STRATA_TRY_ASSIGN(passed_[a.number], rank_.backend.record(*messages_));
    return {};
  }

  static int step_of(const CollectiveAttrs& a) { return (a.step % a.ranks + a.ranks) % a.ranks; }

  Status all_reduce_rows(ProcessGroup& group, const CollectiveAttrs& a, BufferView from, BufferView to,
                         const TensorView& out) {
    STRATA_TRY(rank_.backend.copy_async(to, from, rank_.stream));
    std::unique_ptr<ProcessGroup>& neighbours = groups_[{a.axis, a.group}];
    if (neighbours == nullptr) {
      std::vector<int> members;
      for (int i = 0; i < a.group; ++i) members.push_back(a.rank / a.group * a.group + i);
      STRATA_TRY_ASSIGN(neighbours, group.split(members));
    }
    const std::size_t row = out.bytes() / static_cast<std::size_t>(out.shape.dim(0));
    return neighbours->all_reduce(
        to.part(static_cast<std::size_t>(a.first_row) * row, static_cast<std::size_t>(a.rows) * row),
        out.dtype, Reduction::sum, rank_.stream);
  }

  const Program& program_;
  Rank& rank_;
  AxisGroups axes_;
  // The groups of neighbours, keyed by the axis and their number.
  std::map<std::pair<std::int32_t, std::int32_t>, std::unique_ptr<ProcessGroup>> groups_;
  std::optional<Stream> messages_;
  std::map<std::int32_t, Event> passed_;  // keyed by the number of a message
  std::vector<std::size_t> offsets_;      // the offsets of values in the memory
  Buffer memory_;
};

/// The elements that a rank has of the values of a whole parameter or gradient.
inline std::vector<float> part_of(const std::vector<float>& whole, const TensorPart& part) {
  if (!part.is_shared()) return whole;
  std::vector<float> own(static_cast<std::size_t>(part.shape().n_elems()));
  part.for_each_run(0, part.shape().n_elems(), [&](std::int64_t at, std::int64_t first, std::int64_t n) {
    std::copy_n(whole.begin() + at, n, own.begin() + first);
  });
  return own;
}

}  // namespace strata::test
