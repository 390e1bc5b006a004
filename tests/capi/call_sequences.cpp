// Random sequences of calls with arguments that are right, wrong, stale or absurd. Nothing must crash, and
// what succeeds must have a reason: a session that was never sealed has no steps.
//   call_sequences CALLS [SEED [THREADS]]
#include <strata.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "call_world.h"

namespace {

using strata::test::fill;
using strata::test::Handle;
using strata::test::kElems;
using strata::test::kParams;
using strata::test::row;
using strata::test::visit;
using strata::test::World;

// The lock of a sanitizer's allocator may be held by another thread when a process forks: the child would
// wait for it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kThreadsMayFork = false;
#else
constexpr bool kThreadsMayFork = true;
#endif

// One class, since each call checks what the calls before it have made possible.
class Caller {
 public:
  Caller(World& world, unsigned seed, bool may_fork) : world_(world), random_(seed), may_fork_(may_fork) {}

  void call() {
    using Call = void (Caller::*)();
    static constexpr Call kCalls[] = {
        &Caller::create,    &Caller::add,         &Caller::add,         &Caller::seal,        &Caller::step,
        &Caller::step,      &Caller::step,        &Caller::plan,        &Caller::stats,       &Caller::access,
        &Caller::bind,      &Caller::steps,       &Caller::notes,       &Caller::save,        &Caller::load,
        &Caller::close,     &Caller::arrays,      &Caller::hold,        &Caller::hold,        &Caller::hold,
        &Caller::ds_config, &Caller::activations, &Caller::activations, &Caller::activations, &Caller::rename,
        &Caller::texts,     &Caller::reenter,     &Caller::fork};
    (this->*kCalls[below(std::size(kCalls))])();
  }
  std::int64_t succeeded() const { return succeeded_; }
  std::int64_t steps() const { return steps_; }

 private:
  std::size_t below(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_); }
  bool rarely() { return below(24) == 0; }
  int odd_enum(int n) {
    return rarely() ? static_cast<int>(below(1000)) - 500
                    : static_cast<int>(below(static_cast<std::size_t>(n)));
  }
  double odd_number(double usual) {
    static constexpr double kOdd[] = {0, -1, 1e300, std::numeric_limits<double>::quiet_NaN(),
                                      std::numeric_limits<double>::infinity()};
    return rarely() ? kOdd[below(std::size(kOdd))] : usual;
  }
  std::size_t odd_size(std::size_t usual) {
    const std::size_t odd[] = {0, 3, usual - 8, usual + 8, SIZE_MAX, std::size_t{1} << 40};
    return below(30) == 0 ? odd[below(std::size(odd))] : usual;
  }
  template <class T>
  T* maybe_null(T* pointer) {
    return below(40) == 0 ? nullptr : pointer;
  }
  /// A struct with room behind it, which a larger struct_size makes part of it.
  template <class T>
  struct Padded {
    T value{};
    unsigned char more[64] = {};
  };
  template <class T>
  Padded<T> make() {
    Padded<T> made;
    made.value.struct_size = odd_size(sizeof(T));
    if (rarely()) made.more[0] = 1;
    return made;
  }
  /// Any of the last handles.
  Handle& pick() {
    const std::scoped_lock lock(world_.mutex);
    const std::size_t n = world_.handles.size();
    return *world_.handles[below(8) == 0 ? below(n) : n - 1 - below(std::min<std::size_t>(n, 6))];
  }
  strata_session handle() { return pick().session; }
  bool count(strata_status status) {
    if (status == STRATA_OK) ++succeeded_;
    const auto code = static_cast<int>(status);
    if (code < 0 || code > static_cast<int>(STRATA_CLOSED) ||
        (status != STRATA_OK && *strata_last_error() == 0) || status == STRATA_INTERNAL)
      complain(("status " + std::to_string(code)).c_str());
    return status == STRATA_OK;
  }

  [[noreturn]] static void complain(const char* what) {
    std::fprintf(stderr, "%s: '%s'\n", what, strata_last_error());
    std::abort();
  }

  void create() {
    auto options = make<strata_session_options>();
    options.value.optimizer = static_cast<strata_optimizer>(odd_enum(6));
    options.value.states = static_cast<strata_state_format>(odd_enum(3));
    options.value.placement = static_cast<strata_placement>(odd_enum(3));
    options.value.has_momentum = static_cast<std::int32_t>(below(2));
    options.value.pinned_bytes = below(4) == 0 ? 1 << 16 : 4 << 20;
    const char* dirs[2] = {world_.dir.c_str(), nullptr};
    options.value.nvme_dirs = below(2) == 0 ? dirs : nullptr;
    options.value.n_nvme_dirs = odd_size(options.value.nvme_dirs == nullptr ? 0 : 1) % 3;
    static constexpr std::int64_t kChunks[] = {-1, 1, 4096, std::numeric_limits<std::int64_t>::max()};
    options.value.chunk_elems = rarely() ? kChunks[below(4)] : 0;
    options.value.threads = 1;
    options.value.holds = odd_enum(2);
    strata_session session = 0;
    const strata_status status = strata_session_create(maybe_null(&options.value), maybe_null(&session));
    count(status);
    if (status != STRATA_OK) return;
    world_.add(session, options.value.holds == STRATA_HOLDS_PARAMS);
  }
  void add() {
    static const char* const kNames[] = {"a", "b", "c", "", "a"};
    Handle& of = pick();
    if (of.added >= kParams && !rarely()) return;  // else hardly any session could be sealed
    auto param = make<strata_param>();
    std::int64_t dims[2] = {kElems, 1};
    if (below(20) == 0) dims[0] = std::numeric_limits<std::int64_t>::max();
    param.value.name =
        maybe_null(rarely() ? kNames[below(std::size(kNames))] : kNames[of.added.fetch_add(1) % 3]);
    param.value.dtype = static_cast<strata_dtype>(odd_enum(3));
    param.value.n_dims = below(20) == 0 ? odd_enum(2) : 2;
    param.value.dims = maybe_null(dims);
    param.value.is_frozen = rarely() ? 1 : 0;
    count(strata_session_add(of.session, maybe_null(&param.value)));
  }
  /// The addresses of at least `n` parameters; a session may have more than there are arrays.
  std::vector<void*> addresses(Handle& of, std::size_t n = kParams) {
    std::vector<void*> all;
    for (std::size_t i = 0; i < std::max(n, kParams); ++i)
      all.push_back(maybe_null(of.params[i % kParams].data()));
    return all;
  }
  std::size_t some_count() { return odd_size(1 + below(kParams)); }
  /// A number of elements of an array that has `n`: that, or more than any array has.
  std::size_t odd_length(std::size_t n) { return below(30) == 0 ? SIZE_MAX >> below(20) : n; }
  /// Gradients, in which a few elements may be no numbers.
  float* gradients_of(std::size_t p) {
    gradients_[p][below(kElems)] = static_cast<float>(odd_number(0.01));
    return gradients_[p].data();
  }
  void seal() {
    Handle& of = pick();
    const std::size_t n = rarely() ? some_count() : of.added.load();
    const std::vector<void*> all = addresses(of, std::min(n, std::size_t{64}));
    count(strata_session_seal(of.session, maybe_null(all.data()), n));
  }
  void bind() {
    Handle& of = pick();
    const std::vector<void*> all = addresses(of);
    count(strata_session_bind(of.session, all.data(), odd_length(below(kParams + 1))));
  }
  Padded<strata_settings> make_settings() {
    auto settings = make<strata_settings>();
    settings.value.lr = odd_number(1e-3);
    settings.value.beta1 = odd_number(0.9);
    settings.value.beta2 = odd_number(0.99);
    settings.value.eps = odd_number(1e-8);
    settings.value.weight_decay = odd_number(0.1);
    settings.value.momentum = below(2) == 0 ? 0.0 : odd_number(0.9);
    settings.value.grad_factor = odd_number(1);
    return settings;
  }
  void step() {
    auto settings = make_settings();
    Handle& of = pick();
    std::vector<strata_update> updates(kParams);
    for (strata_update& update : updates) {
      update.struct_size =
          below(60) == 0 ? odd_size(sizeof update) % 4096 % (sizeof update + 1) : sizeof update;
      update.param = below(30) == 0 ? static_cast<std::int64_t>(random_())
                                    : static_cast<std::int64_t>(&update - updates.data());
      const auto p = static_cast<std::size_t>(&update - updates.data());
      const bool held = of.holds_params != rarely();
      update.values = held ? nullptr : maybe_null(static_cast<void*>(of.params[p].data()));
      update.gradient =
          held && below(2) == 0 ? nullptr : maybe_null(static_cast<const void*>(gradients_of(p)));
      update.gradient_dtype = static_cast<strata_dtype>(below(20) == 0 ? odd_enum(3) : 0);
      update.settings = maybe_null(&settings.value);
    }
    if (count(strata_session_step(of.session, maybe_null(updates.data()), odd_length(1 + below(kParams)))))
      ++steps_;
  }
  void hold() {
    Handle& of = pick();
    const auto p = below(kParams);
    const std::int64_t params[1] = {rarely() ? static_cast<std::int64_t>(random_())
                                             : static_cast<std::int64_t>(p)};
    void* const into[1] = {maybe_null(of.params[p].data())};
    double number = 0;
    const float* gradient = nullptr;
    const void* const from[1] = {into[0]};
    switch (below(8)) {
      case 7:
        count(strata_session_write(of.session, maybe_null(&params[0]), maybe_null(&from[0]),
                                   odd_length(below(2))));
        break;
      case 6:
        if (count(strata_session_gradient(of.session, params[0], maybe_null(&gradient))) &&
            std::isnan(gradient[0]))
          std::printf("a gradient is NaN\n");
        break;
      case 0:
        count(strata_session_read(of.session, maybe_null(&params[0]), maybe_null(&into[0]),
                                  odd_length(below(2))));
        break;
      case 1:
        count(strata_session_prefetch(of.session, maybe_null(&params[0]), odd_length(1)));
        break;
      case 2:
        count(strata_session_norm(of.session, maybe_null(&number)));
        break;
      case 3:
        count(strata_session_discard(of.session, below(2) == 0 ? nullptr : params, odd_length(below(2))));
        break;
      default:
        count(strata_session_accumulate(of.session, params[0], maybe_null(gradients_of(p)), odd_enum(1),
                                        maybe_null(&number)));
    }
  }
  void rename() {
    const std::string first = below(4) == 0 ? "" : std::to_string(below(3));
    const char* names[] = {below(9) == 0 ? nullptr : first.c_str(), "b", "c"};
    count(strata_session_rename(handle(), below(9) == 0 ? nullptr : names, below(4)));
  }
  void plan() {
    auto plan = make<strata_plan>();
    count(strata_session_plan(handle(), maybe_null(&plan.value)));
  }
  void stats() {
    auto stats = make<strata_stats>();
    count(strata_session_stats(handle(), maybe_null(&stats.value)));
  }
  void access() {
    const auto state = static_cast<strata_state>(odd_enum(3));
    double sum = 0;
    int calls = static_cast<int>(below(6));
    if (state != STRATA_PARAM && below(2) == 0)
      count(strata_session_fill(handle(), state, maybe_null(&fill), &calls));
    else
      count(strata_session_visit(handle(), state, maybe_null(&visit), &sum));
  }
  /// Calls the session from its own callback, which is refused.
  void reenter() {
    strata_session session = handle();
    const auto call_back = [](void* context, const strata_piece*, const float*) -> std::int32_t {
      if (strata_session_close(*static_cast<strata_session*>(context)) != STRATA_INVALID)
        complain("a session was closed by its own callback");
      return 0;
    };
    count(strata_session_visit(session, STRATA_FIRST_MOMENT, call_back, &session));
  }
  /// A child process is refused, whatever other threads are doing, and the parent goes on.
  void fork() {
    if (!may_fork_ || below(64) != 0) return;
    const strata_session session = handle();
    const pid_t child = ::fork();
    if (child == 0) {
      strata_session made = 0;
      strata_session_options options{};
      options.struct_size = sizeof options;
      const bool refused = strata_session_create(&options, &made) == STRATA_UNSUPPORTED &&
                           strata_session_step(session, nullptr, 0) == STRATA_UNSUPPORTED &&
                           strata_session_close(session) == STRATA_UNSUPPORTED && *strata_last_error() != 0;
      ::_exit(refused ? 0 : 1);
    }
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
      complain("a forked child was not refused");
  }
  void texts() {
    if (*strata_version() == 0 || strata_abi_version() != STRATA_ABI_VERSION ||
        *strata_status_name(static_cast<strata_status>(random_())) == 0)
      complain("a text is empty");
  }
  void steps() {
    std::int64_t done = 0, counts[kParams] = {1, 1, 1};
    if (below(2) == 0)
      count(strata_session_steps(handle(), maybe_null(&done), maybe_null(&counts[0]), below(kParams + 1)));
    else
      count(strata_session_set_steps(handle(), static_cast<std::int64_t>(below(3)) - 1,
                                     maybe_null(&counts[0]), below(kParams + 1)));
  }
  void notes() {
    char text[100];
    std::size_t needed = 0;
    count(strata_session_notes(handle(), maybe_null(&text[0]), below(sizeof text), maybe_null(&needed)));
  }
  void save() {
    if (below(20) == 0) count(strata_session_save(handle(), maybe_null(world_.dir.c_str()), odd_enum(2)));
  }
  void load() {
    if (below(4) == 0)
      count(strata_session_load(handle(), maybe_null((world_.dir + "/step-00000001").c_str())));
  }
  void close() {
    if (below(2) == 0) count(strata_session_close(handle()));
  }
  void arrays() {
    auto arrays = make<strata_arrays>();
    auto settings = make_settings();
    arrays.value.n = rarely() ? -5 : kElems;
    arrays.value.dtype = static_cast<strata_dtype>(odd_enum(3));
    arrays.value.gradient_dtype = static_cast<strata_dtype>(odd_enum(3));
    arrays.value.param = maybe_null(params_[0].data());
    arrays.value.master = below(2) == 0 ? nullptr : params_[1].data();
    arrays.value.m = maybe_null(params_[2].data());
    arrays.value.v = maybe_null(moments_.data());
    arrays.value.gradient = maybe_null(gradients_[0].data());
    const auto optimizer = static_cast<strata_optimizer>(odd_enum(6));
    count(below(2) == 0 ? strata_arrays_init(&arrays.value, optimizer)
                        : strata_arrays_update(&arrays.value, optimizer, &settings.value, odd_enum(5)));
  }

  void create_activations() {
    auto options = make<strata_activation_options>();
    options.value.pinned_bytes = rarely() ? below(9000) : 64 << 10;
    options.value.page_bytes = rarely() ? 100 : 4096;
    const char* dirs[2] = {world_.dir.c_str(), nullptr};
    options.value.nvme_dirs = below(2) == 0 ? dirs : nullptr;
    options.value.n_nvme_dirs = odd_size(options.value.nvme_dirs == nullptr ? 0 : 1) % 3;
    options.value.nvme_bytes = rarely() ? below(1 << 20) : 0;
    strata_activations made = 0;
    if (!count(strata_activations_create(maybe_null(&options.value), maybe_null(&made)))) return;
    const std::scoped_lock lock(world_.mutex);
    world_.activations.push_back(made);
  }
  void activations() {
    strata_activations of = 0;
    {
      const std::scoped_lock lock(world_.mutex);
      const std::size_t n = world_.activations.size();
      of = world_.activations[below(8) == 0 ? below(n) : n - 1 - below(std::min<std::size_t>(n, 3))];
    }
    // All bytes are the same, so that what comes back can be checked.
    unsigned char bytes[20000];
    const std::size_t n = 1 + below(sizeof bytes);
    std::uint64_t id =
        rarely() ? random_()
                 : world_.last_activation - std::min<std::uint64_t>(world_.last_activation, below(4));
    auto stats = make<strata_activation_stats>();
    switch (below(12)) {
      case 0:
        create_activations();
        break;
      case 1:
        count(strata_activations_stats(of, maybe_null(&stats.value)));
        break;
      case 2:
        count(strata_activations_prefetch(of, id));
        break;
      case 3:
        if (below(6) == 0) count(strata_activations_close(rarely() ? handle() : of));
        break;
      case 4:
      case 5:
        count(strata_activations_discard(of, id));
        break;
      case 6:
      case 7:
        std::memset(bytes, 0, sizeof bytes);
        if (count(strata_activations_get(of, id, maybe_null(&bytes[0]), sizeof bytes)) &&
            std::any_of(bytes, bytes + sizeof bytes, [&](unsigned char b) { return b != bytes[0]; }))
          std::abort();
        break;
      default:
        std::memset(bytes, static_cast<int>(1 + below(255)), sizeof bytes);
        if (count(strata_activations_put(of, maybe_null(&bytes[0]), below(4) == 0 ? n : sizeof bytes,
                                         maybe_null(&id))))
          world_.last_activation = id;
    }
  }

  /// A configuration of DeepSpeed of which some characters are wrong.
  void ds_config() {
    static constexpr const char* kTexts[] = {
        R"({"optimizer": {"type": "Adam", "params": {"lr": 1e-3, "betas": [0.9, 0.99]}}, "fp16": {"enabled": true}})",
        R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/a"}}})",
        R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "linear", "warmup_num_steps": 9}}})",
        R"({"train_batch_size": "auto", "pipeline": {"stages": [1, {"x": null}]}, "amp": {"enabled": false}})"};
    std::string text = kTexts[below(std::size(kTexts))];
    for (std::size_t n = below(4); n > 0; --n)
      text[below(text.size())] = below(3) == 0 ? static_cast<char>(below(256)) : "{}[],:\"01e-"[below(11)];
    int calls = rarely() ? 1 : 1000;
    count(strata_ds_config_convert(maybe_null(text.c_str()), rarely() ? nullptr : &row, &calls));
  }

  World& world_;
  std::mt19937 random_;
  bool may_fork_;
  std::int64_t succeeded_ = 0, steps_ = 0;
  std::vector<std::vector<float>> params_ =
      std::vector<std::vector<float>>(kParams, std::vector<float>(kElems));
  std::vector<std::vector<float>> gradients_ =
      std::vector<std::vector<float>>(kParams, std::vector<float>(kElems, 0.01f));
  std::vector<float> moments_ = std::vector<float>(kElems);
};

}  // namespace

int main(int argc, char** argv) {
  const long calls = argc > 1 ? std::atol(argv[1]) : 10000;
  const unsigned seed = argc > 2 ? static_cast<unsigned>(std::atol(argv[2])) : 1;
  const unsigned n_threads = argc > 3 ? static_cast<unsigned>(std::atol(argv[3])) : 1;
  World world;
  char name[] = "/tmp/strata-calls-XXXXXX";
  if (::mkdtemp(name) == nullptr) return 2;
  world.dir = name;
  std::vector<std::thread> threads;
  std::vector<Caller> callers;
  callers.reserve(n_threads);
  for (unsigned t = 0; t < n_threads; ++t)
    callers.emplace_back(world, seed + t, n_threads == 1 || kThreadsMayFork);
  for (Caller& caller : callers)
    threads.emplace_back([&caller, n = calls / n_threads] {
      for (long i = 0; i < n; ++i) caller.call();
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& handle : world.handles) (void)strata_session_close(handle->session);
  for (const strata_activations each : world.activations) (void)strata_activations_close(each);
  std::int64_t succeeded = 0, steps = 0;
  for (const Caller& caller : callers) {
    succeeded += caller.succeeded();
    steps += caller.steps();
  }
  std::printf("%ld calls from seed %u by %u threads: %ld succeeded, %ld of them steps\n", calls, seed,
              n_threads, static_cast<long>(succeeded), static_cast<long>(steps));
  (void)std::system(("rm -rf " + world.dir).c_str());
  return steps > calls / 2000 ? 0 : 1;  // a run in which next to nothing succeeds would test little
}
