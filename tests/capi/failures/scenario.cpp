#include "capi/failures/scenario.h"

#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

namespace strata::test {
namespace {

constexpr std::uint64_t kPinnedBytes = std::uint64_t{32} << 20;

std::uint64_t mixed(std::uint64_t hash, const void* data, std::size_t bytes) {  // FNV-1a
  for (std::size_t i = 0; i < bytes; ++i)
    hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3u;
  return hash;
}

std::int32_t visit_piece(void* context, const strata_piece* piece, const float* values) {
  auto& hash = *static_cast<std::uint64_t*>(context);
  hash = mixed(hash, values, static_cast<std::size_t>(piece->n) * sizeof(float));
  return 0;
}
std::int32_t fill_piece(void* context, const strata_piece* piece, float* values) {
  for (std::int64_t i = 0; i < piece->n; ++i)
    values[i] = *static_cast<const float*>(context) * static_cast<float>((piece->offset + i) % 13);
  return 0;
}

bool is_sensible(const FailureAt& failure, strata_status status) {
  if (status == STRATA_OK) return true;
  switch (failure.kind) {
    case Failure::allocation:
    case Failure::mapping:
    case Failure::thread:
      return status == STRATA_OUT_OF_MEMORY;
    case Failure::io:
      return status == STRATA_IO_ERROR || status == STRATA_NO_SPACE;
    case Failure::no_space:
      return status == STRATA_NO_SPACE;
    default:
      return false;  // short transfers are continued
  }
}

}  // namespace

ScenarioRun::ScenarioRun(const Scenario& scenario, const FailureAt& failure, std::string dir)
    : scenario_(scenario),
      failure_(failure),
      dir_(std::move(dir)),
      checkpoints_(dir_ + "/checkpoints"),
      settings_{sizeof(strata_settings), 0.01, 0.9, 0.999, 1e-8, 0.1, 0, 0, 0, 1} {
  static constexpr std::int64_t kElems[] = {5003, 1200, 3000};
  static constexpr strata_dtype kDtypes[] = {STRATA_F32, STRATA_BF16, STRATA_F16};
  for (std::size_t p = 0; p < params_.size(); ++p) {
    Param& param = params_[p];
    param.name = "a parameter whose name has more than a few characters: " + std::to_string(p);
    param.dtype = kDtypes[p];
    param.n = kElems[p];
    param.values.resize(static_cast<std::size_t>(param.n));
    param.gradient.resize(param.values.size());
    read_.emplace_back(param.values.size());
    for (std::size_t i = 0; i < param.values.size(); ++i) {  // small numbers in each of the dtypes
      param.values[i] = 0x3c003c00u + static_cast<std::uint32_t>(i % 97) * 0x00010001u;
      param.gradient[i] = 0x38003800u + static_cast<std::uint32_t>(i % 31) * 0x00010001u;
    }
  }
}

void ScenarioRun::problem(const char* what, strata_status status) {
  ++problems_;
  std::fprintf(stderr, "  %s: %s (%s: %s)\n", scenario_.name, what, strata_status_name(status),
               strata_last_error());
}

strata_status ScenarioRun::made(const char* name, const std::function<strata_status()>& make) {
  strata_status status = STRATA_OK;
  {
    const CallScope scope;
    status = make();
  }
  if (status == STRATA_OK) return status;
  if (refused_with_ == STRATA_OK) refused_with_ = status;
  if (!is_sensible(failure_, status)) problem(name, status);
  if (*strata_last_error() == 0) problem((std::string(name) + " fails without a reason").c_str(), status);
  return status;
}

// For calls whose errors change nothing.
bool ScenarioRun::repeat_once(const char* name, const std::function<strata_status()>& make) {
  if (made(name, make) == STRATA_OK) return true;
  const strata_status again = made(name, make);
  if (again != STRATA_OK) problem((std::string(name) + " fails again").c_str(), again);
  return again == STRATA_OK;
}

bool ScenarioRun::run_all(const std::vector<Call>& calls, const std::function<bool()>& recover) {
  strata_status first = STRATA_OK;
  int failures = 0;
  for (std::size_t i = 0; i < calls.size();) {
    const strata_status status = made(calls[i].name, calls[i].make);
    if (status == STRATA_OK) {
      ++i;
      continue;
    }
    switch (++failures) {
      case 1:
        first = status;
        i = calls[i].again_from;
        break;
      case 2:  // it sticks until the states are loaded
        if (status != first) problem((std::string(calls[i].name) + " has another error").c_str(), status);
        if (!recover()) return false;
        i = 0;
        break;
      default:
        problem((std::string(calls[i].name) + " fails after loading").c_str(), status);
        return false;
    }
  }
  return true;
}

std::vector<void*> ScenarioRun::addresses() {
  std::vector<void*> all;
  for (Param& param : params_) all.push_back(param.values.data());
  return all;
}

bool ScenarioRun::start() {
  const std::string nvme = dir_ + "/nvme";
  const char* const dirs[1] = {nvme.c_str()};
  strata_session_options options{};
  options.struct_size = sizeof options;
  options.placement = scenario_.placement;
  options.holds = scenario_.holds;
  options.threads = scenario_.threads;
  options.pinned_bytes = kPinnedBytes;
  options.chunk_elems = 8192;
  if (scenario_.placement != STRATA_PLACE_PINNED) {
    options.nvme_dirs = dirs;
    options.n_nvme_dirs = 1;
  }
  if (!repeat_once("create", [&] { return strata_session_create(&options, &session_); })) return false;
  for (const Param& param : params_)
    if (!repeat_once("add", [&] {
          const strata_param given{sizeof given, param.name.c_str(), param.dtype, 1, &param.n, 0, 0};
          return strata_session_add(session_, &given);
        }))
      return false;
  strata_plan plan{};
  plan.struct_size = sizeof plan;
  char text[2000];
  const std::vector<void*> at = addresses();
  return repeat_once("plan", [&] { return strata_session_plan(session_, &plan); }) &&
         repeat_once("notes", [&] { return strata_session_notes(session_, text, sizeof text, nullptr); }) &&
         repeat_once("seal", [&] { return strata_session_seal(session_, at.data(), at.size()); });
}

strata_status ScenarioRun::step() {
  std::array<strata_update, 3> updates{};
  for (std::size_t p = 0; p < params_.size(); ++p) {
    Param& param = params_[p];
    const bool held = scenario_.holds == STRATA_HOLDS_PARAMS;
    updates[p] = {sizeof(strata_update),
                  static_cast<std::int64_t>(p),
                  held ? nullptr : param.values.data(),
                  held ? nullptr : param.gradient.data(),
                  param.dtype,
                  0,
                  &settings_};
  }
  return strata_session_step(session_, updates.data(), updates.size());
}

strata_status ScenarioRun::visit(strata_state state) {
  visited_ = 0;
  const strata_status status = strata_session_visit(session_, state, visit_piece, &visited_);
  if (status == STRATA_OK) hash_ = mixed(hash_, &visited_, sizeof visited_);
  return status;
}

// Adds the calls of a trainer whose session holds the parameters: it reads, accumulates, steps.
void ScenarioRun::add_update_calls(std::vector<Call>& calls) {
  static constexpr std::int64_t kAll[] = {0, 1, 2};
  calls.push_back({"prefetch", [this] { return strata_session_prefetch(session_, kAll, 3); }, 0});
  calls.push_back({"read",
                   [this] {
                     void* const into[] = {read_[0].data(), read_[1].data(), read_[2].data()};
                     return strata_session_read(session_, kAll, into, 3);
                   },
                   1});
  const std::size_t first = calls.size();
  calls.push_back({"discard", [this] { return strata_session_discard(session_, nullptr, 0); }, first});
  for (int times = 0; times < 2; ++times)
    for (std::int64_t p = 0; p < 3; ++p)
      calls.push_back({"accumulate",
                       [this, p] {
                         const Param& param = params_[static_cast<std::size_t>(p)];
                         double sum = 0;
                         return strata_session_accumulate(session_, p, param.gradient.data(), param.dtype,
                                                          &sum);
                       },
                       first});
  calls.push_back({"norm",
                   [this] {
                     double norm = 0;
                     return strata_session_norm(session_, &norm);
                   },
                   calls.size()});
  calls.push_back({"gradient",
                   [this] {
                     const float* gradient = nullptr;
                     return strata_session_gradient(session_, 1, &gradient);
                   },
                   calls.size()});
}

std::vector<ScenarioRun::Call> ScenarioRun::calls_of_step(std::int64_t step_number) {
  std::vector<Call> calls;
  if (scenario_.holds == STRATA_HOLDS_PARAMS) add_update_calls(calls);
  calls.push_back({"step", [this] { return step(); }, calls.size()});
  calls.push_back({"steps",
                   [this, step_number] {
                     std::int64_t steps = 0, each[3];
                     const strata_status status = strata_session_steps(session_, &steps, each, 3);
                     if (status == STRATA_OK && steps != step_number)
                       problem("a step is counted twice", status);
                     return status;
                   },
                   calls.size()});
  calls.push_back(
      {"save", [this] { return strata_session_save(session_, checkpoints_.c_str(), 3); }, calls.size()});
  return calls;
}

bool ScenarioRun::load(std::int64_t step_number) {
  const std::vector<void*> at = addresses();
  const std::string folder = checkpoints_ + "/step-0000000" + std::to_string(step_number);
  if (scenario_.holds == STRATA_HOLDS_STATES &&
      !repeat_once("bind", [&] { return strata_session_bind(session_, at.data(), at.size()); }))
    return false;
  return repeat_once("load", [&] { return strata_session_load(session_, folder.c_str()); });
}

bool ScenarioRun::set_states() {
  float scale = 0.5f;
  std::vector<Call> calls;
  for (const strata_state state : {STRATA_PARAM, STRATA_FIRST_MOMENT, STRATA_SECOND_MOMENT})
    calls.push_back(
        {"fill", [&, state] { return strata_session_fill(session_, state, fill_piece, &scale); }, 0});
  calls.push_back({"set_steps",
                   [this] {
                     const std::int64_t each[3] = {3, 2, 1};
                     return strata_session_set_steps(session_, 3, each, 3);
                   },
                   calls.size()});
  for (const strata_state state : {STRATA_PARAM, STRATA_FIRST_MOMENT, STRATA_SECOND_MOMENT})
    calls.push_back({"visit", [this, state] { return visit(state); }, calls.size()});
  return run_all(calls, [] { return false; });
}

bool ScenarioRun::train() {
  if (!repeat_once("save", [&] { return strata_session_save(session_, checkpoints_.c_str(), 3); }))
    return false;
  for (std::int64_t number = 1; number <= 3; ++number)
    if (!run_all(calls_of_step(number), [&] { return load(number - 1); })) return false;
  return true;
}

std::uint64_t ScenarioRun::run() {
  refuse_uring(!scenario_.uring);
  if (start() && train()) {
    for (const strata_state state : {STRATA_PARAM, STRATA_FIRST_MOMENT, STRATA_SECOND_MOMENT})
      repeat_once("visit", [&] { return visit(state); });
    if (set_states() && load(2)) run_all(calls_of_step(3), [&] { return load(2); });
    strata_stats stats{};
    stats.struct_size = sizeof stats;
    repeat_once("stats", [&] { return strata_session_stats(session_, &stats); });
    repeat_once("visit", [&] { return visit(STRATA_PARAM); });
  }
  if (session_ != 0) {
    const strata_status closed = made("close", [&] { return strata_session_close(session_); });
    if (closed != STRATA_OK) problem("close fails", closed);
  }
  for (const Param& param : params_) hash_ = mixed(hash_, param.values.data(), param.values.size() * 4);
  for (const auto& values : read_) hash_ = mixed(hash_, values.data(), values.size() * 4);
  return hash_;
}

}  // namespace strata::test
