// Runs a scenario once for each allocation (mapping, thread, call on a file) that it makes, which then fails.
// No call may crash, hang, leak or return a status that strata.h does not promise, and the result is that of
// a run without failures.
//   failing_calls KIND SCENARIO [--goes-on] [--cold] [--stride N] [--at N]
// KIND: allocation, mapping, thread, io, no_space, short_io. --goes-on: all later ones of the same call fail,
// too.
// --cold: each run in a process that has not used strata before. --stride: every Nth. --at: only the Nth, in
// this process, for a debugger.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "capi/failures/scenario.h"

namespace strata::test {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kHangSeconds = 60;
constexpr int kMaxProblems = 20;

struct Options {
  Failure kind = Failure::none;
  const Scenario* scenario = nullptr;  // null: calls without sessions
  bool goes_on = false, cold = false;
  std::uint64_t stride = 1, at = 0;
};

/// The child writes its progress to shared memory, since it may die at any time.
struct Progress {
  std::uint64_t next = 1, runs = 0, failures = 0, refused = 0, expected = 0, events = 0;
  int problems = 0;
  bool done = false;
};

std::size_t entries_of(const char* folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

std::vector<std::string> files_below(const fs::path& folder) {
  std::vector<std::string> names;
  if (!fs::exists(folder)) return names;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    names.push_back(entry.path().lexically_relative(folder).string());
  std::sort(names.begin(), names.end());
  return names;
}

/// The resources that a process holds and a session must have given back.
struct Resources {
  Held memory;
  std::size_t threads = 0, descriptors = 0;
  static Resources now() { return {held(), entries_of("/proc/self/task"), entries_of("/proc/self/fd")}; }
};

class Child {
 public:
  Child(const Options& options, const std::string& dir, Progress& progress)
      : options_(options), dir_(dir), progress_(progress) {}

  /// Without a failure, for what comes out.
  void run_reference() {
    mark_test_thread();
    run_once({});
    progress_.problems += problems_of_run_;
  }

  void run() {
    mark_test_thread();
    if (!options_.cold) {  // objects that are created once in a process are no leak
      run_once({});
      run_once({});  // the pools' threads have started
      files_ = files_below(dir_);
      before_ = Resources::now();
    }
    do {
      const FailureAt failure{options_.kind, progress_.next, options_.goes_on};
      ::alarm(kHangSeconds);
      run_once(failure);
      ++progress_.runs;
      progress_.events = std::max(progress_.events, events());
      progress_.problems += problems_of_run_;
      progress_.done = !has_failed();
      if (has_failed()) ++progress_.failures;
      if (was_refused_) ++progress_.refused;
      progress_.next += options_.stride;
    } while (!progress_.done && !options_.cold && progress_.problems < kMaxProblems);
  }

 private:
  // In a thread of its own, whose last error is given back with it.
  void run_once(const FailureAt& failure) {
    problems_of_run_ = 0;
    fs::remove_all(dir_ + "/checkpoints");
    std::thread([&] {
      mark_test_thread();
      start_failures(failure);
      std::uint64_t hash = 0;
      if (options_.scenario == nullptr) {
        problems_of_run_ += run_without_sessions(failure);
      } else {
        ScenarioRun one(*options_.scenario, failure, dir_);
        hash = one.run();
        problems_of_run_ += one.problems();
        was_refused_ = one.refused_with() != STRATA_OK;
      }
      stop_failures();
      if (failure.kind == Failure::none) progress_.expected = hash;
      if (hash != progress_.expected) complain("the result differs from that of a run without failures");
    }).join();
    check_resources();
    check_files();
    if (problems_of_run_ > 0)
      std::fprintf(stderr, "  ... with failure %lu of %lu\n", static_cast<unsigned long>(failure.nth),
                   static_cast<unsigned long>(events()));
  }

  void check_resources() {
    if (!before_) return;
    Resources now = Resources::now();
    // A thread that was joined is listed for a moment longer.
    for (int i = 0; i < 100 && now.threads > before_->threads; ++i, now = Resources::now()) ::usleep(1000);
    const auto same = [&](const char* what, std::int64_t then, std::int64_t is) {
      if (is > then)
        complain(
            (std::string(what) + ": " + std::to_string(then) + " before, " + std::to_string(is) + " after")
                .c_str());
    };
    same("allocations", before_->memory.allocations, now.memory.allocations);
    same("allocated bytes", before_->memory.bytes, now.memory.bytes);
    same("mapped bytes", before_->memory.mapped_bytes, now.memory.mapped_bytes);
    same("threads", static_cast<std::int64_t>(before_->threads), static_cast<std::int64_t>(now.threads));
    same("descriptors", static_cast<std::int64_t>(before_->descriptors),
         static_cast<std::int64_t>(now.descriptors));
    if (problems_of_run_ > 0) before_ = now;  // each is reported once
  }

  void check_files() {
    if (!before_) return;
    for (const std::string& name : files_below(dir_)) {
      const bool of_checkpoint = name.starts_with("checkpoints");
      // A draft that cannot be removed is removed by the next save.
      const bool may_be_left = of_checkpoint && name.find(".unfinished-") != std::string::npos;
      if (!std::binary_search(files_.begin(), files_.end(), name) &&
          !(may_be_left && (options_.kind == Failure::io || options_.kind == Failure::no_space)))
        complain(("a file was left: " + name).c_str());
    }
  }

  void complain(const char* what) {
    ++problems_of_run_;
    std::fprintf(stderr, "  %s\n", what);
  }

  const Options& options_;
  const std::string& dir_;
  Progress& progress_;
  int problems_of_run_ = 0;
  bool was_refused_ = false;
  std::vector<std::string> files_;
  std::optional<Resources> before_;
};

/// Whether a child process got to its end. This process itself never uses strata: its children could not.
bool run_child(const Progress& progress, const std::function<void()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    body();
    ::_exit(0);
  }
  int status = 0;
  if (pid < 0 || ::waitpid(pid, &status, 0) != pid) return false;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  std::fprintf(stderr, "  failure %lu ends the process: %s %d\n", static_cast<unsigned long>(progress.next),
               WIFSIGNALED(status) ? "signal" : "exit code",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  return false;
}

/// Children run until there is nothing left to fail; one that dies is replaced, from the next failure on.
int run_children(const Options& options, const std::string& dir, Progress& progress) {
  if (!run_child(progress, [&] { Child(options, dir, progress).run_reference(); })) return 1;
  while (!progress.done && progress.problems < kMaxProblems) {
    if (run_child(progress, [&] { Child(options, dir, progress).run(); })) continue;
    ++progress.problems;
    progress.next += options.stride;
  }
  return progress.problems == 0 && progress.failures > 0 ? 0 : 1;
}

int usage() {
  std::fprintf(
      stderr,
      "usage: failing_calls allocation|mapping|thread|io|no_space|short_io SCENARIO [--goes-on] [--cold] "
      "[--stride N] [--at N]\nscenarios: values");
  for (const Scenario& scenario : kScenarios) std::fprintf(stderr, " %s", scenario.name);
  std::fprintf(stderr, "\n");
  return 2;
}

std::optional<Options> parse(int argc, char** argv) {
  static constexpr std::array kKinds = {
      std::pair{"allocation", Failure::allocation}, std::pair{"mapping", Failure::mapping},
      std::pair{"thread", Failure::thread},         std::pair{"io", Failure::io},
      std::pair{"no_space", Failure::no_space},     std::pair{"short_io", Failure::short_io}};
  if (argc < 3) return std::nullopt;
  Options options;
  for (const auto& [name, kind] : kKinds)
    if (std::strcmp(argv[1], name) == 0) options.kind = kind;
  bool found = std::strcmp(argv[2], "values") == 0;
  for (const Scenario& scenario : kScenarios)
    if (std::strcmp(argv[2], scenario.name) == 0) options.scenario = &scenario, found = true;
  if (options.kind == Failure::none || !found) return std::nullopt;
  for (int i = 3; i < argc; ++i) {
    const std::string word = argv[i];
    const bool has_number = i + 1 < argc && std::atol(argv[i + 1]) > 0;
    if (word == "--goes-on")
      options.goes_on = true;
    else if (word == "--cold")
      options.cold = true;
    else if (word == "--stride" && has_number)
      options.stride = static_cast<std::uint64_t>(std::atol(argv[++i]));
    else if (word == "--at" && has_number)
      options.at = static_cast<std::uint64_t>(std::atol(argv[++i]));
    else
      return std::nullopt;
  }
  return options;
}

int run(const Options& options) {
  const char* const tmp = std::getenv("TMPDIR");
  std::string dir = std::string(tmp == nullptr ? "/tmp" : tmp) + "/strata-failing-XXXXXX";
  if (::mkdtemp(dir.data()) == nullptr) return 2;
  void* const shared =
      ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 2;
  Progress& progress = *new (shared) Progress;
  int code = 0;
  if (options.at > 0) {
    progress.next = options.at;
    progress.done = true;
    Options one = options;
    one.stride = std::uint64_t{1} << 60;
    Child(one, dir, progress).run();
    code = progress.problems == 0 ? 0 : 1;
  } else {
    code = run_children(options, dir, progress);
  }
  std::printf("%lu runs, %lu with a failure, of which %lu were refused; %lu events; %d problems\n",
              static_cast<unsigned long>(progress.runs), static_cast<unsigned long>(progress.failures),
              static_cast<unsigned long>(progress.refused), static_cast<unsigned long>(progress.events),
              progress.problems);
  fs::remove_all(dir);
  return code;
}

}  // namespace
}  // namespace strata::test

int main(int argc, char** argv) {
  const auto options = strata::test::parse(argc, argv);
  return options ? strata::test::run(*options) : strata::test::usage();
}
