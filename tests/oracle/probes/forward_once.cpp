#include "forward_once.h"

#include <cstring>
#include <stdexcept>

#include <strata/graph/launch.h>
#include <strata/graph/passes.h>
#include <strata/runtime/convert.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

/// Device memory for every value of a program: the planned arena, and a buffer for each parameter.
class Values {
 public:
  Values(const Program& program, Backend& backend) : program_(program), plan_(plan_memory(program)) {
    arena_ = must(backend.allocate(MemoryKind::device, plan_.arena_bytes));
    for (const ParamInfo& param : program.params)
      params_.push_back(must(backend.allocate(MemoryKind::device, program.value(param.value).bytes())));
  }
  TensorView view(ValueId id) const {
    if (id == kNoValue) return {};
    const ValueInfo& info = program_.value(id);
    std::byte* data = info.kind == ValueKind::param
                          ? params_[static_cast<std::size_t>(info.param)].view().data
                          : arena_.view().data + plan_.offset[static_cast<std::size_t>(id)];
    return {data, info.shape, info.dtype};
  }
  std::vector<TensorView> views(const std::vector<ValueId>& ids) const {
    std::vector<TensorView> found;
    for (const ValueId id : ids) found.push_back(view(id));
    return found;
  }

 private:
  const Program& program_;
  const MemoryPlan plan_;
  Buffer arena_;
  std::vector<Buffer> params_;
};

}  // namespace

std::map<std::string, std::vector<float>, std::less<>> forward_once(
    const Program& program, const std::function<Status(std::string_view, std::span<float>)>& param,
    const std::function<std::vector<std::int32_t>(const std::string&)>& input) {
  SteadyClock clock;
  const auto pool = must(ThreadPool::create(2));
  const auto backend = must(create_host_backend({}, *pool, clock));
  const Values values(program, *backend);
  for (const ParamInfo& info : program.params) {
    const TensorView view = values.view(info.value);
    std::vector<float> master(static_cast<std::size_t>(view.n_elems()));
    must(param(info.name, master));
    must(narrow_from_f32(master, view.dtype, {view.data, view.bytes()}));
  }
  for (const ValueId id : program.inputs) {
    const TensorView view = values.view(id);
    const auto given = input(program.value(id).name);
    if (view.bytes() != given.size() * sizeof(std::int32_t))
      throw std::runtime_error(str(program.value(id).name, ": ", given.size(),
                                   " values were given, but the program needs ", view.n_elems()));
    std::memcpy(view.data, given.data(), view.bytes());
  }
  Stream stream = must(backend->create_stream(StreamRole::compute));
  for (const Instr& instr : program.code) {
    const auto in = values.views(instr.in), out = values.views(instr.out);
    must(launch({instr.op, instr.attrs, instr.accumulate, in, out}, *backend, stream));
  }
  must(backend->synchronize(stream));
  std::map<std::string, std::vector<float>, std::less<>> outputs;
  for (const ValueId id : program.outputs) {
    const TensorView view = values.view(id);
    std::vector<float>& output = outputs[program.value(id).name];
    output.resize(static_cast<std::size_t>(view.n_elems()));
    if (view.bytes() != output.size() * sizeof(float))
      throw std::runtime_error(str(program.value(id).name, ": ", view.bytes(), " bytes of ", output.size(),
                                   " values; outputs have 4 bytes each"));
    std::memcpy(output.data(), view.data, view.bytes());
  }
  return outputs;
}

}  // namespace strata
