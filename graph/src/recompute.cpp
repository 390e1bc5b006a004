#include <algorithm>
#include <limits>

#include <strata/graph/ops.h>
#include <strata/graph/passes.h>

// Decides in program order, one instruction at a time, which values to recompute. A value is *saved* if it
// outlives forward whatever is decided here (an input; a value that backward of another region reads) or if
// recomputing it is not worth its bytes.
//
// Korthikanti et al. recompute attention and store the rest, because their T x T matrix of probabilities is
// stored and dominates everything else. Here attention runs in blocks and stores its output and one number
// per row, which are small compared to the work of computing them. So selective recomputation repeats the
// memory-bound ops around the GEMMs instead.

namespace strata {
namespace {

// Selective mode recomputes values that cost fewer operations than this per byte that is then not stored.
// Memory-bound ops count about 10 operations per element: 2.5 per byte in f32, 10 for a chain of two in bf16.
// A GEMM counts its inner dimension (bf16) or half of it (f32), and attention its row likewise: hundreds in
// any model of realistic size.
constexpr double kCheapFlopsPerByte = 16;
constexpr double kUnreachable = std::numeric_limits<double>::infinity();

double saved_bytes(Op op, const ValueInfo& value) {
  return static_cast<double>(value.bytes()) * op_def(op).saved_bytes_per_byte;
}

class Recomputation {
 public:
  Recomputation(Program program, Recompute mode) : program_(std::move(program)), mode_(mode) {
    const auto first_backward =
        std::find_if(program_.code.begin(), program_.code.end(), [](const Instr& i) { return i.backward; });
    forward_.assign(program_.code.begin(), first_backward);
    backward_.assign(first_backward, program_.code.end());
    recomputed_.assign(forward_.size(), false);
    producer_.assign(program_.values.size(), kNoProducer);
    for (std::size_t i = 0; i < forward_.size(); ++i)
      for (const ValueId id : forward_[i].out) producer_[at(id)] = i;
    saved_.assign(program_.values.size(), false);
    needed_ = saved_;
    recompute_flops_.assign(program_.values.size(), 0);
    clone_.assign(program_.values.size(), kNoValue);
  }

  Program run() && {
    find_readers();
    if (mode_ == Recompute::halves) save_middles();
    for (std::size_t i = 0; i < forward_.size(); ++i)
      if (marked(forward_[i].region)) decide(i);
    program_.code = forward_;
    for (Instr& instr : backward_) {
      if (marked(instr.region)) redirect_to_clones(instr);
      program_.code.push_back(std::move(instr));
    }
    return std::move(program_);
  }

 private:
  static constexpr std::size_t kNoProducer = ~std::size_t{0};
  static std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }
  bool marked(std::int32_t region) const { return program_.regions[at(region)].recompute; }
  bool is_produced_in(std::int32_t region, ValueId id) const {
    return id != kNoValue && producer_[at(id)] != kNoProducer && forward_[producer_[at(id)]].region == region;
  }

  // A value read by backward of its own region is needed; one read by backward of another region is saved.
  void find_readers() {
    for (const Instr& instr : backward_)
      for (const ValueId id : instr.in)
        if (id != kNoValue && producer_[at(id)] != kNoProducer)
          (marked(instr.region) && is_produced_in(instr.region, id) ? needed_ : saved_)[at(id)] = true;
    for (const ValueId id : program_.outputs) saved_[at(id)] = true;
  }

  double needed_bytes(ValueId id) const {
    return needed_[at(id)] && !saved_[at(id)] ? static_cast<double>(program_.value(id).bytes()) : 0.0;
  }

  // A value, and what else backward needs of the instruction that computes it, which is not repeated if all
  // are saved.
  std::vector<ValueId> outputs_with(ValueId value) const {
    std::vector<ValueId> ids;
    for (const ValueId id : forward_[producer_[at(value)]].out)
      if (id == value || needed_[at(id)]) ids.push_back(id);
    return ids;
  }

  // Saves one value in each marked region: forward can be repeated from there alone, so that what backward
  // needs before it and behind it is recomputed at different times.
  void save_middles() {
    std::vector<std::size_t> last_read(program_.values.size(),
                                       0);  // the last reader in the value's own region
    std::vector<std::vector<std::size_t>> of_region(program_.regions.size());
    for (std::size_t i = 0; i < forward_.size(); ++i) {
      of_region[at(forward_[i].region)].push_back(i);
      for (const ValueId id : forward_[i].in)
        if (is_produced_in(forward_[i].region, id)) last_read[at(id)] = i;
    }
    for (std::size_t region = 0; region < of_region.size(); ++region) {
      if (!program_.regions[region].recompute) continue;
      const auto save_with = [&](ValueId value) {
        for (const ValueId id : outputs_with(value)) saved_[at(id)] = true;
      };
      for (const std::size_t i : of_region[region])
        for (const ValueId id : forward_[i].out)
          if (needed_[at(id)] && saved_[at(id)]) save_with(id);  // for another region, too
      if (const ValueId middle = middle_of(of_region[region], last_read); middle != kNoValue)
        save_with(middle);
    }
  }
  // The value that alone leads from the instructions before it to those after it, is read by backward, is no
  // larger than what enters the region, and leaves the smaller maximum of the bytes that are recomputed on
  // its two sides. kNoValue: none saves bytes.
  ValueId middle_of(const std::vector<std::size_t>& region, const std::vector<std::size_t>& last_read) const {
    double border = 0, all = 0, before = 0;
    for (const std::size_t i : region) {
      for (const ValueId id : forward_[i].in)
        if (id != kNoValue && producer_[at(id)] != kNoProducer && !is_produced_in(forward_[i].region, id))
          border = std::max(border, static_cast<double>(program_.value(id).bytes()));
      for (const ValueId id : forward_[i].out) all += needed_bytes(id);
    }
    ValueId middle = kNoValue;
    double least = all;
    std::vector<ValueId> crossing;  // read both before and after an instruction
    for (const std::size_t i : region) {
      for (const ValueId id : forward_[i].out) {
        before += needed_bytes(id);
        if (!saved_[at(id)]) crossing.push_back(id);
      }
      std::erase_if(crossing, [&](ValueId id) { return last_read[at(id)] <= i; });
      if (crossing.size() != 1 || !needed_[at(crossing.front())]) continue;
      const ValueId one = crossing.front();
      double stored = 0, not_repeated = 0;
      for (const ValueId id : outputs_with(one)) {
        stored += static_cast<double>(program_.value(id).bytes());
        not_repeated += needed_bytes(id);
      }
      const double larger = stored + std::max(before - not_repeated, all - before);
      if (static_cast<double>(program_.value(one).bytes()) > border || larger > least ||
          (larger == least && middle != kNoValue))
        continue;
      middle = one;
      least = larger;
    }
    return middle;
  }

  void decide(std::size_t i) {
    const Instr& instr = forward_[i];
    double work = flops(program_, instr);
    for (const ValueId id : instr.in) work += flops_to_reach(instr.region, id);
    double bytes = 0;  // that are not stored if it is recomputed
    for (const ValueId id : instr.out)
      if (needed_[at(id)] && !saved_[at(id)]) bytes += saved_bytes(instr.op, program_.value(id));
    if (bytes > 0 && (mode_ != Recompute::selective || work < kCheapFlopsPerByte * bytes)) recompute(i);
    for (const ValueId id : instr.out) {
      if (needed_[at(id)] && !recomputed_[i]) saved_[at(id)] = true;
      recompute_flops_[at(id)] = recomputed_[i] || saved_[at(id)] ? 0 : work;
    }
  }
  // A value that would have to be saved only for the sake of a clone is unreachable, because it would cost
  // the bytes that the clone saves.
  double flops_to_reach(std::int32_t region, ValueId id) const {
    if (id == kNoValue || producer_[at(id)] == kNoProducer || saved_[at(id)]) return 0;
    return is_produced_in(region, id) ? recompute_flops_[at(id)] : kUnreachable;
  }
  void recompute(std::size_t i) {
    if (recomputed_[i]) return;
    recomputed_[i] = true;
    for (const ValueId id : forward_[i].in)
      if (is_produced_in(forward_[i].region, id) && !saved_[at(id)]) recompute(producer_[at(id)]);
  }

  // Emits clones right before their first reader, so that a clone with a single reader lives no longer than
  // needed.
  void redirect_to_clones(Instr& reader) {
    for (ValueId& id : reader.in) {
      if (!is_produced_in(reader.region, id) || !recomputed_[producer_[at(id)]]) continue;
      if (clone_[at(id)] == kNoValue) emit_clone(forward_[producer_[at(id)]]);
      id = clone_[at(id)];
    }
  }
  void emit_clone(Instr instr) {
    instr.backward = true;
    redirect_to_clones(instr);
    for (ValueId& id : instr.out) {
      ValueInfo info = program_.value(id);
      info.name += "'";
      id = clone_[at(id)] = program_.add_value(std::move(info));
    }
    program_.code.push_back(std::move(instr));
  }

  Program program_;
  const Recompute mode_;
  std::vector<Instr> forward_, backward_;
  std::vector<bool> recomputed_;       // indexed like forward_
  std::vector<std::size_t> producer_;  // the index into forward_ of the producer of each value before cloning
  std::vector<bool> saved_, needed_;   // indexed by value before cloning
  // The operations that compute each value before cloning from values that are saved or recomputed anyway.
  std::vector<double> recompute_flops_;
  std::vector<ValueId> clone_;
};

}  // namespace

std::string_view to_string(Recompute mode) noexcept {
  switch (mode) {
    case Recompute::none:
      return "none";
    case Recompute::selective:
      return "selective";
    case Recompute::full:
      return "full";
    case Recompute::halves:
      return "halves";
  }
  return "?";
}

Program recompute_regions(Program program, Recompute mode) {
  if (mode == Recompute::none) return program;
  return Recomputation(std::move(program), mode).run();
}

}  // namespace strata
