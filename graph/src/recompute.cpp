#include <algorithm>
#include <unordered_map>

#include <strata/graph/passes.h>

namespace strata {
namespace {

// Clones, into `out`, the forward instructions of `region` that backward needs, and gives the names of the
// copies.
class RegionClone {
 public:
  RegionClone(Program& program, const std::vector<Instr>& forward, std::int32_t region)
      : program_(program), forward_(forward), region_(region) {
    for (std::size_t i = 0; i < forward_.size(); ++i)
      if (forward_[i].region == region_)
        for (const ValueId id : forward_[i].out) producer_[id] = i;
  }

  bool makes(ValueId id) const { return producer_.count(id) != 0; }

  void need(ValueId id) {
    if (!makes(id) || wanted_.count(producer_.at(id)) != 0) return;
    wanted_[producer_.at(id)] = true;
    for (const ValueId in : forward_[producer_.at(id)].in) need(in);
  }

  void emit(std::vector<Instr>& out) {
    for (std::size_t i = 0; i < forward_.size(); ++i) {
      if (wanted_.count(i) == 0) continue;
      Instr clone = forward_[i];
      clone.backward = true;
      for (ValueId& id : clone.in) id = renamed(id);
      for (ValueId& id : clone.out) {
        ValueInfo info = program_.value(id);
        info.name += "'";
        id = copy_[id] = program_.add_value(std::move(info));
      }
      out.push_back(std::move(clone));
    }
  }
  ValueId renamed(ValueId id) const {
    const auto found = copy_.find(id);
    return found == copy_.end() ? id : found->second;
  }

 private:
  Program& program_;
  const std::vector<Instr>& forward_;
  const std::int32_t region_;
  std::unordered_map<ValueId, std::size_t> producer_;
  std::unordered_map<std::size_t, bool> wanted_;
  std::unordered_map<ValueId, ValueId> copy_;
};

}  // namespace

Program recompute_regions(Program program) {
  const auto first_backward =
      std::find_if(program.code.begin(), program.code.end(), [](const Instr& i) { return i.backward; });
  const std::vector<Instr> forward(program.code.begin(), first_backward);
  const std::vector<Instr> backward(first_backward, program.code.end());

  std::vector<RegionClone> clones;
  for (std::size_t r = 0; r < program.regions.size(); ++r)
    clones.emplace_back(program, forward, static_cast<std::int32_t>(r));
  // What backward of another region reads (a border) keeps its first copy.
  for (const Instr& instr : backward)
    if (program.regions[static_cast<std::size_t>(instr.region)].recompute)
      for (const ValueId id : instr.in)
        if (id != kNoValue && clones[static_cast<std::size_t>(instr.region)].makes(id))
          clones[static_cast<std::size_t>(instr.region)].need(id);

  std::vector<Instr> code = forward;
  std::vector<bool> emitted(program.regions.size(), false);
  for (Instr instr : backward) {
    const auto region = static_cast<std::size_t>(instr.region);
    if (program.regions[region].recompute) {
      if (!emitted[region]) clones[region].emit(code);
      emitted[region] = true;
      for (ValueId& id : instr.in) id = clones[region].renamed(id);
    }
    code.push_back(std::move(instr));
  }
  program.code = std::move(code);
  return program;
}

}  // namespace strata
