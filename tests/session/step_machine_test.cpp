// A driver without any program trains two tensors through the step machine: wherever their states live and in
// every step mode they get the bits that the optimizer gives them in plain arrays.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <strata/cpuopt/update.h>
#include <strata/offload/nvme_store.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/session/session.h>
#include <strata/session/state_planning.h>

#include "support/temp_dir.h"

namespace strata {
namespace {

constexpr std::array<std::int64_t, 2> kElems = {8192, 4096};
constexpr std::int32_t kMicroBatches = 2;

float gradient_of(std::int64_t step, std::int32_t k, std::size_t tensor, std::int64_t i) {
  return static_cast<float>((step * 7 + k * 3 + static_cast<std::int64_t>(tensor) * 5 + i) % 23 - 11) / 64;
}
float initial_value(std::size_t tensor, std::int64_t i) {
  return static_cast<float>((static_cast<std::int64_t>(tensor) * 31 + i) % 17) / 16;
}

/// Forward reads tensor 0 and then 1; backward goes the other way.
UseTrace palindrome(const ChunkLayout& layout) {
  UseTrace uses;
  const ChunkId first = layout.slice(0).chunk, second = layout.slice(1).chunk;
  uses.positions.push_back({{first}, {}, 1});
  uses.positions.push_back({{second}, {}, 1});
  uses.positions.push_back({{second}, {{second}}, 1});
  uses.positions.push_back({{first}, {{first}}, 1});
  uses.mark_first_and_last_writes();
  return uses;
}

struct Plan {
  StatePlan states;
  UseTrace uses;
};
Plan make_plan(const SessionOptions& options) {
  Plan plan;
  StatePlan& states = plan.states;
  states.options = options;
  for (std::int32_t t = 0; t < 2; ++t) {
    const std::int64_t n = kElems[static_cast<std::size_t>(t)];
    states.tensors.specs.push_back({t == 0 ? "first" : "second", n, {}});
    states.tensors.shapes.push_back(Shape{n});
    states.tensors.decays.push_back(true);
    states.tensors.tensor_of_param.push_back(t);
    states.tensors.param_of_tensor.push_back(t);
  }
  states.trace.training = true;
  must(check_options(options));
  must(lay_out_states(states, 0));
  plan.uses = palindrome(states.layout);
  states.trace = access_trace(plan.uses, states, kMicroBatches, true);
  add_fixed_bytes(states);
  const UseTrace* const last_pass = &plan.uses;
  states.placement = place_states(states, {&last_pass, 1}).value();
  plan_undo_log(states, {&last_pass, 1});
  return plan;
}

class Driver final : public Session {
 public:
  Driver(const Plan& plan, const SessionEnvironment& environment)
      : Session(
            must(StateContext::create(plan.states, environment)),
            {make_schedule(PassRepeat{&plan.uses, kMicroBatches}, plan.states, commit_timing(plan.states))},
            1),
        plan_(plan) {}

  void step() {
    const PassSchedule& schedule = step_schedules().front();
    machine().activate(schedule);
    must(machine().begin(kLr));
    for (std::int32_t k = 0; k < kMicroBatches; ++k) {
      const StepMachine::Pass pass{plan_.uses, schedule, true, 0, k};
      for (std::int32_t i = 0; i < static_cast<std::int32_t>(plan_.uses.positions.size()); ++i) {
        must(machine().enter(pass, i));
        for (const GradWrite& write : plan_.uses.positions[static_cast<std::size_t>(i)].grads)
          queue_gradient(k, write.chunk);
        must(machine().leave(pass, i));
      }
    }
    StepReport report;
    must(machine().finish_gradient(report));
    must(machine().commit(kLr, report));
    grad_norm = report.grad_norm;
  }
  double grad_norm = 0;  // the norm of the last step
  static constexpr double kLr = 1e-2;

 private:
  struct Write {
    float* into;
    std::int64_t step, n;
    std::int32_t k;
    std::size_t tensor;
  };
  void queue_gradient(std::int32_t k, ChunkId chunk) {
    const Slice& slice = plan_.states.layout.chunk(chunk).slices.front();
    const std::int32_t tensor = slice.tensor;
    const Write write{reinterpret_cast<float*>(machine().gradient(chunk)) + slice.offset, steps() + 1,
                      slice.n_elems, k, static_cast<std::size_t>(tensor)};
    HostCall call(
        "gradient",
        +[](const Write& w, ThreadPool&) {
          for (std::int64_t i = 0; i < w.n; ++i) w.into[i] = gradient_of(w.step, w.k, w.tensor, i);
        },
        write);
    call.writes(write.into, static_cast<std::size_t>(write.n) * sizeof(float));
    must(context().backend().host_call_async(call, context().streams().compute));
  }
  const Plan& plan_;
};

std::vector<float> reference(std::size_t tensor, int steps, cpuopt::OptimizerParams params) {
  const auto n = static_cast<std::size_t>(kElems[tensor]);
  std::vector<float> p(n), m(n), v(n), g(n);
  for (std::size_t i = 0; i < n; ++i) p[i] = initial_value(tensor, static_cast<std::int64_t>(i));
  for (int step = 1; step <= steps; ++step) {
    for (std::size_t i = 0; i < n; ++i)
      g[i] = gradient_of(step, 0, tensor, static_cast<std::int64_t>(i)) +
             gradient_of(step, 1, tensor, static_cast<std::int64_t>(i));
    params.lr = Driver::kLr;
    params.step = step;
    params.grad_factor = 1.0 / kMicroBatches;
    cpuopt::UpdateBlock block;
    block.param = p.data();
    block.m = cpuopt::moment_at(StateFormat::fp32, reinterpret_cast<std::byte*>(m.data()), kElems[tensor]);
    block.v = cpuopt::moment_at(StateFormat::fp32, reinterpret_cast<std::byte*>(v.data()), kElems[tensor]);
    block.g = g.data();
    cpuopt::update_block(cpuopt::make_update_step(params), block, kElems[tensor], {});
  }
  return p;
}

using StepCase = std::tuple<PlacementPolicy, StepMode>;
class StepMachineTest : public ::testing::TestWithParam<StepCase> {
 protected:
  SessionOptions options() const {
    SessionOptions options;
    options.chunk_elems = 8192;
    options.grad_accum = kMicroBatches;
    options.clip = 0;
    options.policy = std::get<0>(GetParam());
    options.step_mode = std::get<1>(GetParam());
    options.nvme.dirs = {dir_.path()};
    options.nvme.engine = IoEngine::threads;
    return options;
  }
  SessionEnvironment environment() {
    SessionEnvironment environment{*backend_, *pool_, clock_};
    environment.open_store = [](const NvmeOptions& nvme) -> Result<StorePtr<ObjectStore>> {
      if (nvme.classes.empty()) return StorePtr<ObjectStore>();
      return StorePtr<ObjectStore>(must(NvmeStore::create(posix_io(), nvme)));
    };
    return environment;
  }

  test::TempDir dir_;
  SteadyClock clock_;
  std::unique_ptr<ThreadPool> pool_ = must(ThreadPool::create(2));
  std::unique_ptr<Backend> backend_ =
      must(create_host_backend({.schedule = StreamSchedule::latest_legal, .check = true}, *pool_, clock_));
};

TEST_P(StepMachineTest, ADriverWithoutProgramsGetsTheOptimizersBits) {
  const Plan plan = make_plan(options());
  Driver driver(plan, environment());
  must(driver.reset([](const StatePiece& piece, std::span<float> values) {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] =
          initial_value(static_cast<std::size_t>(piece.tensor), piece.offset + static_cast<std::int64_t>(i));
    return Status::ok();
  }));
  constexpr int kSteps = 3;
  for (int step = 0; step < kSteps; ++step) driver.step();
  EXPECT_EQ(driver.steps(), kSteps);
  std::array<std::vector<float>, 2> got;
  must(driver.visit(Payload::param, [&](const StatePiece& piece, std::span<const float> values) {
    auto& tensor = got[static_cast<std::size_t>(piece.tensor)];
    tensor.insert(tensor.end(), values.begin(), values.end());
    return Status::ok();
  }));
  for (std::size_t t = 0; t < 2; ++t) EXPECT_EQ(got[t], reference(t, kSteps, plan.states.options.optimizer));
}

TEST_P(StepMachineTest, TheNormsOfTensorsAddUpToThatOfTheStep) {
  const Plan plan = make_plan(options());
  Driver driver(plan, environment());
  must(driver.reset([](const StatePiece&, std::span<float> values) {
    std::fill(values.begin(), values.end(), 0.0F);
    return Status::ok();
  }));
  for (int step = 1; step <= 2; ++step) {
    driver.step();
    std::array<double, 2> norms{};
    must(driver.gradient_norms(norms));
    for (std::size_t tensor = 0; tensor < 2; ++tensor) {
      double square_sum = 0;
      for (std::int64_t i = 0; i < kElems[tensor]; ++i)
        square_sum +=
            std::pow((gradient_of(step, 0, tensor, i) + gradient_of(step, 1, tensor, i)) / kMicroBatches, 2);
      EXPECT_NEAR(norms[tensor], std::sqrt(square_sum), 1e-6 * norms[tensor]);
    }
    EXPECT_NEAR(std::hypot(norms[0], norms[1]), driver.grad_norm, 1e-12 * driver.grad_norm);
  }
  std::array<double, 3> three{};
  EXPECT_EQ(driver.gradient_norms(three).code(), Code::invalid);
}

INSTANTIATE_TEST_SUITE_P(Placements, StepMachineTest,
                         ::testing::Combine(::testing::Values(PlacementPolicy::device,
                                                              PlacementPolicy::pinned, PlacementPolicy::nvme),
                                            ::testing::ValuesIn(kStepModes)));

/// A store in memory whose requests end when they are waited for.
class LazyStore final : public ObjectStore {
 public:
  struct Writes {
    std::set<std::uint64_t> pending;  ///< not waited for, by sequence number
    bool fail = false;
    int failed = 0;
  };
  explicit LazyStore(Writes& writes) : writes_(writes) {}
  Result<IoTicket> write_async(std::uint64_t id, std::uint32_t, ConstBufferView src, WriteMode) override {
    objects_[id].assign(src.data, src.data + src.bytes);
    writes_.pending.insert(++last_);
    return IoTicket{0, last_};
  }
  Result<IoTicket> read_async(std::uint64_t id, BufferView dst) override {
    std::copy(objects_[id].begin(), objects_[id].end(), dst.data);
    return IoTicket{0, ++last_};
  }
  Status wait(IoTicket ticket) override {
    if (writes_.pending.erase(ticket.sequence) == 0 || !writes_.fail) return {};
    ++writes_.failed;
    return Status::error(Code::io_error, "injected failure");
  }
  bool wait_for(IoTicket, std::int64_t) override { return true; }
  void discard(std::uint64_t) override {}
  void commit(std::uint64_t) override {}
  void rollback(std::uint64_t) override {}
  bool drain() noexcept override { return true; }
  NvmeCounters counters() const override { return {}; }
  std::vector<NvmePath> paths() const override { return {}; }
  std::string io_description() const override { return "memory"; }

 private:
  Writes& writes_;
  std::map<std::uint64_t, std::vector<std::byte>> objects_;
  std::uint64_t last_ = 0;
};

TEST(StateContextTest, ItsEndWaitsForEveryWriteAlsoAfterOneHasFailed) {
  SessionOptions options;
  options.chunk_elems = 8192;
  options.grad_accum = kMicroBatches;
  options.policy = PlacementPolicy::nvme;
  const Plan plan = make_plan(options);
  SteadyClock clock;
  const auto pool = must(ThreadPool::create(1));
  const auto backend = must(create_host_backend({}, *pool, clock));
  LazyStore::Writes writes;
  SessionEnvironment environment{*backend, *pool, clock};
  environment.open_store = [&](const NvmeOptions&) -> Result<StorePtr<ObjectStore>> {
    return StorePtr<ObjectStore>(new LazyStore(writes));
  };
  {
    Driver driver(plan, environment);
    must(driver.reset([](const StatePiece&, std::span<float>) { return Status::ok(); }));
    writes.fail = true;
  }
  EXPECT_TRUE(writes.pending.empty());
  EXPECT_GT(writes.failed, 1);
}

// Two sessions that are given the same budgets stay within them together.
TEST(SharedBudgetsTest, TheSecondSessionIsRefusedWhatTheFirstOneHolds) {
  SessionOptions options;
  options.chunk_elems = 8192;
  options.grad_accum = kMicroBatches;
  options.policy = PlacementPolicy::device;
  const Plan plan = make_plan(options);
  SteadyClock clock;
  const auto pool = must(ThreadPool::create(1));
  const auto backend = must(create_host_backend({}, *pool, clock));
  TierBytes one_and_a_half{};
  {
    TierBudgets budgets({kUnlimited, kUnlimited, kUnlimited});
    SessionEnvironment environment{*backend, *pool, clock};
    environment.budgets = &budgets;
    const Driver alone(plan, environment);
    const TierBytes used = budgets.used();
    EXPECT_EQ(alone.used_bytes(), used);
    EXPECT_GT(used[0], 0u);
    const Driver second(plan, environment);
    for (std::size_t t = 0; t < kTiers; ++t) {
      EXPECT_EQ(budgets.used()[t], 2 * used[t]);
      one_and_a_half[t] = used[t] + used[t] / 2;
    }
  }
  TierBudgets budgets(one_and_a_half);
  SessionEnvironment environment{*backend, *pool, clock};
  environment.budgets = &budgets;
  const Driver first(plan, environment);
  const TierBytes before = budgets.used();
  EXPECT_EQ(StateContext::create(plan.states, environment).status().code(), Code::does_not_fit);
  EXPECT_EQ(budgets.used(), before);
}

}  // namespace
}  // namespace strata
