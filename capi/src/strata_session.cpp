#include <strata/session/checkpoint.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "c_call.h"
#include "c_struct.h"
#include "c_values.h"

using namespace strata;
using capi::call;
using capi::CSession;
using capi::read_struct;
using capi::write_struct;

namespace {

Status check_text(const char* text, std::string_view name) {
  return text != nullptr && *text != 0 ? Status() : Status::error(Code::invalid, str(name, " is empty"));
}

// An array of pointers, or nothing. A count without an array is refused.
template <class T>
Result<std::span<T>> array_of(T* begin, std::size_t n, std::string_view name) {
  constexpr std::size_t kMax = std::size_t{1} << 24;
  if (begin == nullptr && n > 0) return Status::error(Code::invalid, str(name, " is null, and n is ", n));
  if (n > kMax) return Status::error(Code::invalid, str("n is ", n, "; it must be at most ", kMax));
  return std::span<T>(begin, n);
}

Result<Payload> payload_of(strata_state state) {
  if (const auto payload = capi::payload_of(state)) return *payload;
  return Status::error(Code::invalid, str("the state is ", state, "; it must be 0 to 2"));
}

}  // namespace

strata_status strata_session_create(const strata_session_options* options, strata_session* session) {
  return call([&]() -> Status {
    if (session == nullptr) return Status::error(Code::invalid, "session is null");
    *session = 0;
    STRATA_TRY_ASSIGN(const auto given, read_struct(options, "strata_session_options"));
    STRATA_TRY_ASSIGN(auto* const table, capi::session_table());
    STRATA_TRY_ASSIGN(auto created, CSession::create(given));
    *session = table->add(std::make_shared<capi::SessionSlot>(std::move(created)));
    return {};
  });
}

strata_status strata_session_add(strata_session session, const strata_param* param) {
  return call(session, [&](CSession& self) -> Status {
    STRATA_TRY_ASSIGN(const strata_param given, read_struct(param, "strata_param"));
    return self.add(given);
  });
}

strata_status strata_session_rename(strata_session session, const char* const* names, size_t n) {
  return call(session, [&](CSession& self) -> Status {
    STRATA_TRY_ASSIGN(const auto given, array_of(names, n, "names"));
    return self.rename(given);
  });
}

strata_status strata_session_plan(strata_session session, strata_plan* plan) {
  return call(session, [&](CSession& self) -> Status {
    STRATA_TRY_ASSIGN(const StatePlan* const made, self.plan());
    strata_plan told{};
    told.pinned_bytes = made->planned_peak[index_of(Tier::pinned)];
    told.nvme_bytes = made->planned_peak[index_of(Tier::nvme)];
    told.n_params = made->n_params(true) + made->n_params(false);
    told.n_chunks = static_cast<std::int64_t>(made->layout.n_chunks());
    told.chunk_elems = made->layout.chunk_elems();
    return write_struct(told, plan, "strata_plan");
  });
}

strata_status strata_session_seal(strata_session session, void* const* params, size_t n) {
  return call(session, [&](CSession& self) -> Status {
    STRATA_TRY_ASSIGN(const auto addresses, array_of(params, n, "params"));
    return self.seal(addresses);
  });
}

namespace {

Result<std::int32_t> index_of_param(std::int64_t param) {
  if (param >= 0 && param <= INT32_MAX) return static_cast<std::int32_t>(param);
  return Status::error(Code::invalid, str("there is no parameter ", param));
}

}  // namespace

strata_status strata_session_read(strata_session session, const int64_t* params, void* const* into,
                                  size_t n) {
  return call(session, [&](CSession& self) -> Status {
    STRATA_TRY_ASSIGN(TrainerSession* const sealed, self.sealed());
    STRATA_TRY_ASSIGN(const auto wanted, array_of(params, n, "params"));
    STRATA_TRY(array_of(into, n, "into").status());
    std::vector<ParamCopy> copies(n);
    for (std::size_t i = 0; i < n; ++i) {
      STRATA_TRY_ASSIGN(copies[i].param, index_of_param(wanted[i]));
      copies[i].into = into[i];
    }
    return sealed->read(copies);
  });
}

strata_status strata_session_write(strata_session session, const int64_t* params, const void* const* from,
                                   size_t n) {
  return call(session, [&](CSession& self) -> Status {
    STRATA_TRY_ASSIGN(TrainerSession* const sealed, self.sealed());
    STRATA_TRY_ASSIGN(const auto wanted, array_of(params, n, "params"));
    STRATA_TRY(array_of(from, n, "from").status());
    std::vector<ParamSource> sources(n);
    for (std::size_t i = 0; i < n; ++i) {
      STRATA_TRY_ASSIGN(sources[i].param, index_of_param(wanted[i]));
      sources[i].from = from[i];
    }
    return sealed->write(sources);
  });
}

strata_status strata_session_prefetch(strata_session session, const int64_t* params, size_t n) {
  return call(session, [&](CSession& self) -> Status {
    STRATA_TRY_ASSIGN(TrainerSession* const sealed, self.sealed());
    STRATA_TRY_ASSIGN(const auto wanted, array_of(params, n, "params"));
    for (const std::int64_t param : wanted) {
      STRATA_TRY_ASSIGN(const std::int32_t index, index_of_param(param));
      STRATA_TRY(sealed->prefetch(index));
    }
    return {};
  });
}

strata_status strata_session_accumulate(strata_session session, int64_t param, const void* gradient,
                                        strata_dtype dtype, double* square_sum) {
  return call(session, [&](CSession& self) -> Status {
    STRATA_TRY_ASSIGN(TrainerSession* const sealed, self.sealed());
    STRATA_TRY_ASSIGN(const std::int32_t index, index_of_param(param));
    const std::optional<DType> known = capi::dtype_of(dtype);
    if (!known)
      return Status::error(Code::invalid, str("the gradient of parameter ", param, " has the dtype ", dtype,
                                              "; it must be 0 to 2"));
    STRATA_TRY(sealed->accumulate(index, gradient, *known));
    if (square_sum != nullptr) *square_sum = sealed->square_sum(index);
    return {};
  });
}

strata_status strata_session_gradient(strata_session session, int64_t param, const float** gradient) {
  return call(session, [&](CSession& self) -> Status {
    STRATA_TRY_ASSIGN(TrainerSession* const sealed, self.sealed());
    if (gradient == nullptr) return Status::error(Code::invalid, "gradient is null");
    STRATA_TRY_ASSIGN(const std::int32_t index, index_of_param(param));
    STRATA_TRY_ASSIGN(const std::span<const float> values, sealed->gradient(index));
    *gradient = values.data();
    return {};
  });
}

strata_status strata_session_norm(strata_session session, double* norm) {
  return call(session, [&](CSession& self) -> Status {
    STRATA_TRY_ASSIGN(const TrainerSession* const sealed, self.sealed());
    if (norm == nullptr) return Status::error(Code::invalid, "norm is null");
    *norm = sealed->norm();
    return {};
  });
}

strata_status strata_session_discard(strata_session session, const int64_t* params, size_t n) {
  return call(session, [&](CSession& self) -> Status {
    STRATA_TRY_ASSIGN(TrainerSession* const sealed, self.sealed());
    STRATA_TRY_ASSIGN(const auto some, array_of(params, n, "params"));
    if (params == nullptr) sealed->discard();
    for (const std::int64_t param : some)
      if (param < 0 || param >= std::ssize(sealed->param_steps()))
        return Status::error(Code::invalid, str("there is no parameter ", param, ": ",
                                                sealed->param_steps().size(), " are registered"));
    for (const std::int64_t param : some) STRATA_TRY(sealed->discard(static_cast<std::int32_t>(param)));
    return {};
  });
}

namespace {

// Updates of one group share their settings.
struct SettingsReader {
  const cpuopt::Optimizer optimizer;
  const strata_settings* last = nullptr;
  cpuopt::OptimizerParams params;
  Result<cpuopt::OptimizerParams> read(const strata_settings* settings) {
    if (settings != last || last == nullptr) {
      STRATA_TRY_ASSIGN(params, capi::settings_of(settings, optimizer));
      last = settings;
    }
    return params;
  }
};

Result<ParamUpdate> update_of(const strata_update* given, SettingsReader& settings) {
  STRATA_TRY_ASSIGN(const strata_update update, read_struct(given, "strata_update"));
  ParamUpdate own;
  STRATA_TRY_ASSIGN(own.param, index_of_param(update.param));
  if (update.reserved != 0)
    return Status::error(Code::invalid, str("strata_update.reserved is ", update.reserved, "; it must be 0"));
  own.values = update.values;
  own.gradient = update.gradient;
  const std::optional<DType> dtype = capi::dtype_of(update.gradient_dtype);
  if (!dtype)
    return Status::error(Code::invalid, str("the gradient of parameter ", update.param, " has the dtype ",
                                            update.gradient_dtype, "; it must be 0 to 2"));
  own.gradient_dtype = *dtype;
  auto read = settings.read(update.settings);
  if (!read.has_value()) return std::move(read).error().annotate(str("parameter ", update.param));
  own.settings = *read;
  return own;
}

}  // namespace

strata_status strata_session_step(strata_session session, const strata_update* updates, size_t n) {
  return call(session, [&](CSession& self) -> Status {
    STRATA_TRY_ASSIGN(TrainerSession* const sealed, self.sealed());
    STRATA_TRY(array_of(updates, n, "updates").status());
    std::vector<ParamUpdate> own;
    own.reserve(n);
    SettingsReader settings{self.optimizer(), nullptr, {}};
    const std::size_t stride = n == 0 ? 0 : updates->struct_size;  // the caller's, of whatever version
    for (std::size_t i = 0; i < n; ++i) {
      const auto* const at =
          reinterpret_cast<const strata_update*>(reinterpret_cast<const char*>(updates) + i * stride);
      if (at->struct_size != stride)
        return Status::error(Code::invalid,
                             str("updates[", i, "].struct_size differs from that of updates[0]"));
      STRATA_TRY_ASSIGN(own.emplace_back(), update_of(at, settings));
    }
    return sealed->step(own);
  });
}

strata_status strata_session_bind(strata_session session, void* const* params, size_t n) {
  return call(session, [&](CSession& self) -> Status {
    STRATA_TRY_ASSIGN(TrainerSession* const sealed, self.sealed());
    STRATA_TRY_ASSIGN(const auto addresses, array_of(params, n, "params"));
    return sealed->bind(addresses);
  });
}

namespace {

strata_piece piece_of(const StatePlan& plan, const StatePiece& piece, std::size_t n) {
  strata_piece told{};
  told.struct_size = sizeof told;
  told.name = plan.tensors.specs[static_cast<std::size_t>(piece.tensor)].name.c_str();
  told.param = piece.tensor;
  told.offset = piece.offset;
  told.n = static_cast<std::int64_t>(n);
  told.n_elems = piece.n_elems;
  return told;
}

Status stopped(std::int32_t value) {
  return value == 0 ? Status() : Status::error(Code::cancelled, str("the callback returned ", value));
}

}  // namespace

strata_status strata_session_visit(strata_session session, strata_state state, strata_visit_fn visit,
                                   void* context) {
  return call(session, [&](CSession& self) -> Status {
    STRATA_TRY_ASSIGN(TrainerSession* const sealed, self.sealed());
    STRATA_TRY_ASSIGN(const Payload payload, payload_of(state));
    if (visit == nullptr) return Status::error(Code::invalid, "visit is null");
    return sealed->visit(payload, [&](const StatePiece& piece, std::span<const float> values) {
      const strata_piece told = piece_of(sealed->state_plan(), piece, values.size());
      return stopped(visit(context, &told, values.data()));
    });
  });
}

strata_status strata_session_fill(strata_session session, strata_state state, strata_fill_fn fill,
                                  void* context) {
  return call(session, [&](CSession& self) -> Status {
    STRATA_TRY_ASSIGN(TrainerSession* const sealed, self.sealed());
    STRATA_TRY_ASSIGN(const Payload payload, payload_of(state));
    if (fill == nullptr) return Status::error(Code::invalid, "fill is null");
    return sealed->fill(payload, [&](const StatePiece& piece, std::span<float> values) {
      const strata_piece told = piece_of(sealed->state_plan(), piece, values.size());
      return stopped(fill(context, &told, values.data()));
    });
  });
}

strata_status strata_session_steps(strata_session session, int64_t* steps, int64_t* param_steps, size_t n) {
  return call(session, [&](CSession& self) -> Status {
    STRATA_TRY_ASSIGN(const TrainerSession* const sealed, self.sealed());
    if (steps == nullptr) return Status::error(Code::invalid, "steps is null");
    const std::span<const std::int64_t> counts = sealed->param_steps();
    if (param_steps != nullptr && n != counts.size())
      return Status::error(Code::invalid, str("n is ", n, ", but there are ", counts.size(), " parameters"));
    *steps = sealed->steps();
    if (param_steps != nullptr) std::copy(counts.begin(), counts.end(), param_steps);
    return {};
  });
}

strata_status strata_session_set_steps(strata_session session, int64_t steps, const int64_t* param_steps,
                                       size_t n) {
  return call(session, [&](CSession& self) -> Status {
    STRATA_TRY_ASSIGN(TrainerSession* const sealed, self.sealed());
    if (n != sealed->param_steps().size() || param_steps == nullptr)
      return Status::error(Code::invalid, str("there are ", param_steps == nullptr ? 0 : n, " counts for ",
                                              sealed->param_steps().size(), " parameters"));
    for (std::size_t i = 0; i < n; ++i)
      if (param_steps[i] < 0 || param_steps[i] > steps)
        return Status::error(
            Code::invalid, str("parameter '", sealed->state_plan().tensors.specs[i].name, "' was updated in ",
                               param_steps[i], " of ", steps, " steps"));
    if (steps < 0) return Status::error(Code::invalid, str("steps is ", steps, "; it must be at least 0"));
    sealed->set_steps(steps);
    sealed->set_param_steps({param_steps, param_steps + n});
    return {};
  });
}

strata_status strata_session_save(strata_session session, const char* dir, int32_t keep) {
  return call(session, [&](CSession& self) -> Status {
    STRATA_TRY_ASSIGN(TrainerSession* const sealed, self.sealed());
    STRATA_TRY(check_text(dir, "dir"));
    if (keep < 0) return Status::error(Code::invalid, str("keep is ", keep, "; it must be at least 0"));
    return save_checkpoint(*sealed, posix_io(), dir, {}, keep).status();
  });
}

strata_status strata_session_load(strata_session session, const char* folder) {
  return call(session, [&](CSession& self) -> Status {
    STRATA_TRY_ASSIGN(TrainerSession* const sealed, self.sealed());
    STRATA_TRY(check_text(folder, "folder"));
    // The parameters are those of a program that goes on if this fails.
    STRATA_TRY_ASSIGN(const Manifest manifest, read_manifest(posix_io(), folder));
    STRATA_TRY(check_digests(posix_io(), folder, manifest));
    return load_checkpoint(*sealed, posix_io(), folder).status();
  });
}

strata_status strata_session_stats(strata_session session, strata_stats* stats) {
  return call(session, [&](CSession& self) -> Status {
    STRATA_TRY_ASSIGN(const TrainerSession* const sealed, self.sealed());
    const TierBytes used = sealed->used_bytes(), peak = sealed->peak_bytes();
    const MovedBytes moved = sealed->moved();
    const LaneBusySeconds busy = sealed->lane_busy_seconds();
    strata_stats told{};
    told.pinned_bytes = used[index_of(Tier::pinned)];
    told.nvme_bytes = used[index_of(Tier::nvme)];
    told.peak_pinned_bytes = peak[index_of(Tier::pinned)];
    told.peak_nvme_bytes = peak[index_of(Tier::nvme)];
    told.nvme_read_bytes = moved.nvme_read;
    told.nvme_written_bytes = moved.nvme_write;
    told.nvme_read_seconds = busy.nvme_read;
    told.nvme_write_seconds = busy.nvme_write;
    return write_struct(told, stats, "strata_stats");
  });
}

strata_status strata_session_notes(strata_session session, char* text, size_t size, size_t* needed) {
  return call(session, [&](CSession& self) -> Status {
    STRATA_TRY_ASSIGN(const StatePlan* const plan, self.plan());
    if (text == nullptr && size > 0)
      return Status::error(Code::invalid, str("text is null, and size is ", size));
    std::string all;
    for (const std::string& note : plan->notes) all += note + "\n";
    if (needed != nullptr) *needed = all.size() + 1;
    if (size == 0) return {};
    const std::size_t n = std::min(all.size(), size - 1);
    std::memcpy(text, all.data(), n);
    text[n] = 0;
    return {};
  });
}

strata_status strata_session_close(strata_session session) {
  return capi::call_locked(session, [&](const capi::SessionSlot::Lock& lock) -> Status {
    lock.close();
    STRATA_TRY_ASSIGN(auto* const table, capi::session_table());
    (void)table->remove(session);
    return {};
  });
}
