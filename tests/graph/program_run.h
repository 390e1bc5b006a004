#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <strata/graph/launch.h>
#include <strata/graph/passes.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/convert.h>
#include <strata/runtime/threads/thread_pool.h>

namespace strata::test {

/// Runs a program without moves, collectives and states on the host, in the memory that plan_memory()
/// assigns.
class ProgramRun {
 public:
  explicit ProgramRun(const Program& program)
      : program_(program), plan_(plan_memory(program)), arena_(words(plan_.arena_bytes)) {
    for (const ParamInfo& param : program_.params)
      for (const ValueId id : {param.value, param.grad})
        if (id != kNoValue) own_[id].resize(words(program_.value(id).bytes()));
  }

  /// Sets a parameter, or an input of f32.
  void set(std::string_view name, const std::vector<float>& values) {
    const TensorView to = view(find(name));
    ASSERT_EQ(std::ssize(values), to.n_elems()) << name;
    must(narrow_from_f32(values, to.dtype, {to.data, to.bytes()}));
  }
  void set(std::string_view name, const std::vector<std::int32_t>& values) {
    const TensorView to = view(find(name));
    ASSERT_EQ(std::ssize(values), to.n_elems()) << name;
    std::memcpy(to.data, values.data(), to.bytes());
  }
  void run() {
    SteadyClock clock;
    const auto pool = must(ThreadPool::create(1));
    const auto backend = must(create_host_backend({}, *pool, clock));
    Stream stream = must(backend->create_stream(StreamRole::compute));
    for (const Instr& instr : program_.code) {
      const std::vector<TensorView> in = views(instr.in), out = views(instr.out);
      must(launch({instr.op, instr.attrs, instr.accumulate, in, out}, *backend, stream));
    }
    must(backend->synchronize(stream));
  }
  /// The values of an output or a parameter.
  std::vector<float> values(std::string_view name) { return values_of(find(name)); }
  std::vector<float> gradient(std::string_view param) {
    for (const ParamInfo& info : program_.params)
      if (info.name == param) return values_of(info.grad);
    return {};
  }

 private:
  static std::size_t words(std::size_t bytes) { return (bytes + 255) / 256 * 32; }
  ValueId find(std::string_view name) const {
    for (const ParamInfo& param : program_.params)
      if (param.name == name) return param.value;
    return program_.find(name);
  }
  TensorView view(ValueId id) {
    if (id == kNoValue) return {};
    const ValueInfo& info = program_.value(id);
    if (info.kind == ValueKind::param || info.kind == ValueKind::grad) {
      const ParamInfo& param = program_.params[static_cast<std::size_t>(info.param)];
      std::vector<double>& whole = own_.at(info.kind == ValueKind::param ? param.value : param.grad);
      const std::size_t at = static_cast<std::size_t>(info.first) * size_of(info.dtype);
      return {reinterpret_cast<std::byte*>(whole.data()) + at, info.shape, info.dtype};
    }
    const std::size_t at = plan_.offset[static_cast<std::size_t>(id)];
    if (at == MemoryPlan::kUnplaced) return {nullptr, info.shape, info.dtype};
    return {reinterpret_cast<std::byte*>(arena_.data()) + at, info.shape, info.dtype};
  }
  std::vector<TensorView> views(const std::vector<ValueId>& ids) {
    std::vector<TensorView> all;
    for (const ValueId id : ids) all.push_back(view(id));
    return all;
  }
  std::vector<float> values_of(ValueId id) {
    const TensorView of = view(id);
    std::vector<float> values(static_cast<std::size_t>(of.n_elems()));
    must(widen_to_f32(of.dtype, {of.data, of.bytes()}, values));
    return values;
  }

  const Program program_;
  const MemoryPlan plan_;
  std::vector<double> arena_;
  std::map<ValueId, std::vector<double>> own_;
};

}  // namespace strata::test
