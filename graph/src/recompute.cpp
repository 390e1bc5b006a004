#include <algorithm>
#include <limits>

#include <strata/graph/ops.h>
#include <strata/graph/passes.h>

// Which values to make again is decided in program order, one instruction at a time. A value is *kept*
// when it outlives forward whatever is decided here (an input; read by backward of another region) or when
// making it again is not worth its bytes.
//
// Korthikanti et al. recompute attention and keep the rest: there its T x T matrix of probabilities is stored
// and dwarfs everything. Here attention runs in blocks and leaves its result and one number a row, which
// are small beside the work they took; so it is the passes over memory around the products that are made
// again.

namespace strata {
namespace {

// Selective mode makes again what takes less than this many operations a byte that need not be kept. Passes
// over memory count some 10 an element: 2.5 a byte in f32, 10 for a chain of two in bf16. A product counts
// its inner dimension (bf16) or half of it (f32), attention its row alike: hundreds in any model of real
// size.
constexpr double kCheapFlopsPerByte = 16;
constexpr double kOutOfReach = std::numeric_limits<double>::infinity();

// Codes of eight bits stand for a value of sixteen, which is not kept either.
double spared(Op op, const ValueInfo& value) {
  return static_cast<double>(value.bytes()) * (op == Op::fp8_cast ? 2 : 1);
}

class Recomputation {
 public:
  Recomputation(Program program, Recompute mode) : program_(std::move(program)), mode_(mode) {
    const auto first_backward =
        std::find_if(program_.code.begin(), program_.code.end(), [](const Instr& i) { return i.backward; });
    forward_.assign(program_.code.begin(), first_backward);
    backward_.assign(first_backward, program_.code.end());
    again_.assign(forward_.size(), false);
    maker_.assign(program_.values.size(), kNobody);
    for (std::size_t i = 0; i < forward_.size(); ++i)
      for (const ValueId id : forward_[i].out) maker_[at(id)] = i;
    kept_.assign(program_.values.size(), false);
    wanted_ = kept_;
    to_make_.assign(program_.values.size(), 0);
    copy_.assign(program_.values.size(), kNoValue);
  }

  Program run() && {
    find_readers();
    for (std::size_t i = 0; i < forward_.size(); ++i)
      if (marked(forward_[i].region)) decide(i);
    program_.code = forward_;
    for (Instr& instr : backward_) {
      if (marked(instr.region)) read_copies(instr);
      program_.code.push_back(std::move(instr));
    }
    return std::move(program_);
  }

 private:
  static constexpr std::size_t kNobody = ~std::size_t{0};
  static std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }
  bool marked(std::int32_t region) const { return program_.regions[at(region)].recompute; }
  bool made_in(std::int32_t region, ValueId id) const {
    return id != kNoValue && maker_[at(id)] != kNobody && forward_[maker_[at(id)]].region == region;
  }

  // What backward of the maker's own region reads is wanted; what that of another reads is kept.
  void find_readers() {
    for (const Instr& instr : backward_)
      for (const ValueId id : instr.in)
        if (id != kNoValue && maker_[at(id)] != kNobody)
          (marked(instr.region) && made_in(instr.region, id) ? wanted_ : kept_)[at(id)] = true;
    for (const ValueId id : program_.outputs) kept_[at(id)] = true;
  }

  void decide(std::size_t i) {
    const Instr& instr = forward_[i];
    double work = flops(program_, instr);
    for (const ValueId id : instr.in) work += work_to_reach(instr.region, id);
    double bytes = 0;  // that need not be kept
    for (const ValueId id : instr.out)
      if (wanted_[at(id)] && !kept_[at(id)]) bytes += spared(instr.op, program_.value(id));
    if (bytes > 0 && (mode_ == Recompute::block || work < kCheapFlopsPerByte * bytes)) make_again(i);
    for (const ValueId id : instr.out) {
      if (wanted_[at(id)] && !again_[i]) kept_[at(id)] = true;
      to_make_[at(id)] = again_[i] || kept_[at(id)] ? 0 : work;
    }
  }
  // What must be kept for the sake of a copy alone is out of reach: it would cost the bytes that the copy
  // saves.
  double work_to_reach(std::int32_t region, ValueId id) const {
    if (id == kNoValue || maker_[at(id)] == kNobody || kept_[at(id)]) return 0;
    return made_in(region, id) ? to_make_[at(id)] : kOutOfReach;
  }
  void make_again(std::size_t i) {
    if (again_[i]) return;
    again_[i] = true;
    for (const ValueId id : forward_[i].in)
      if (made_in(forward_[i].region, id) && !kept_[at(id)]) make_again(maker_[at(id)]);
  }

  // Copies are made right before their first reader: one that a single instruction reads lives no longer.
  void read_copies(Instr& reader) {
    for (ValueId& id : reader.in) {
      if (!made_in(reader.region, id) || !again_[maker_[at(id)]]) continue;
      if (copy_[at(id)] == kNoValue) make_copy(forward_[maker_[at(id)]]);
      id = copy_[at(id)];
    }
  }
  void make_copy(Instr instr) {
    instr.backward = true;
    read_copies(instr);
    for (ValueId& id : instr.out) {
      ValueInfo info = program_.value(id);
      info.name += "'";
      id = copy_[at(id)] = program_.add_value(std::move(info));
    }
    program_.code.push_back(std::move(instr));
  }

  Program program_;
  const Recompute mode_;
  std::vector<Instr> forward_, backward_;
  std::vector<bool> again_;          // by index into forward_
  std::vector<std::size_t> maker_;   // of every value before the copies: its index into forward_
  std::vector<bool> kept_, wanted_;  // likewise
  std::vector<double> to_make_;      // operations, from what is kept or made again anyway
  std::vector<ValueId> copy_;
};

}  // namespace

std::string_view to_string(Recompute mode) noexcept {
  switch (mode) {
    case Recompute::none:
      return "none";
    case Recompute::selective:
      return "selective";
    case Recompute::block:
      return "block";
  }
  return "?";
}

Program recompute_regions(Program program, Recompute mode) {
  if (mode == Recompute::none) return program;
  return Recomputation(std::move(program), mode).run();
}

}  // namespace strata
