#include "generating/generator.h"

#include <algorithm>

#include <strata/runtime/clock.h>
#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>

namespace strata::cli {
namespace {

constexpr std::uint64_t kStream = 0x73616d706c65;  // of the first prompt; the others' follow

}  // namespace

struct Generator::Sequence {
  std::size_t task = 0;     // also its slot
  std::int32_t length = 0;  // tokens in the cache
  std::int32_t next = -1;   // drawn, not yet there
  bool active = true;
  Continuation out;
};

std::string_view to_string(StopReason reason) noexcept {
  switch (reason) {
    case StopReason::end_of_text:
      return "end_of_text";
    case StopReason::max_tokens:
      return "max_tokens";
    case StopReason::context_full:
      return "context_full";
  }
  return "";
}

Generator::Generator(Engine& engine, Sampler sampler, const GenerateOptions& options)
    : engine_(engine),
      sampler_(std::move(sampler)),
      options_(options),
      prefill_rows_(static_cast<std::size_t>(engine.plan().prefill.find("tokens").shape.n_elems())) {}

Result<std::vector<Continuation>> Generator::run(std::span<const GenerationTask> tasks,
                                                 const OnToken& on_token) {
  SteadyClock clock;
  std::vector<Sequence> sequences(tasks.size());
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const std::size_t n = tasks[i].prompt.size();
    if (n == 0 || n > static_cast<std::size_t>(options_.context))
      return Status::error(Code::invalid, str("prompt ", tasks[i].index + 1, " has ", n,
                                              " tokens; a sequence has 1 to ", options_.context));
    sequences[i].task = i;
  }
  const std::int64_t begin = clock.now_ns();
  STRATA_TRY(take_in(tasks, sequences, on_token));
  const std::int64_t taken_in = clock.now_ns();
  while (std::any_of(sequences.begin(), sequences.end(), [](const Sequence& s) { return s.active; }))
    STRATA_TRY(step(tasks, sequences, on_token));
  prompt_seconds_ += static_cast<double>(taken_in - begin) * 1e-9;
  token_seconds_ += static_cast<double>(clock.now_ns() - taken_in) * 1e-9;
  std::vector<Continuation> out;
  for (Sequence& sequence : sequences) out.push_back(std::move(sequence.out));
  return out;
}

// All prompts one after the other, cut into runs wherever one is full; a first token is drawn where a prompt
// ends.
Status Generator::take_in(std::span<const GenerationTask> tasks, std::vector<Sequence>& sequences,
                          const OnToken& on_token) {
  std::vector<SequenceToken> run;
  std::vector<std::int32_t> wanted;
  std::vector<std::size_t> ended;
  const auto flush = [&]() -> Status {
    STRATA_TRY_ASSIGN(const std::span<const float> logits, engine_.extend(run, wanted));
    const std::size_t vocab = ended.empty() ? 0 : logits.size() / ended.size();
    for (std::size_t k = 0; k < ended.size(); ++k)
      STRATA_TRY(draw(tasks[ended[k]], sequences[ended[k]], logits.subspan(k * vocab, vocab), on_token));
    run.clear();
    wanted.clear();
    ended.clear();
    return Status::ok();
  };
  for (Sequence& sequence : sequences)
    for (const std::int32_t id : tasks[sequence.task].prompt) {
      if (run.size() == prefill_rows_) STRATA_TRY(flush());
      run.push_back({id, sequence.length, static_cast<std::int32_t>(sequence.task)});
      if (static_cast<std::size_t>(++sequence.length) < tasks[sequence.task].prompt.size()) continue;
      wanted.push_back(static_cast<std::int32_t>(run.size()) - 1);
      ended.push_back(sequence.task);
    }
  return run.empty() ? Status::ok() : flush();
}

Status Generator::step(std::span<const GenerationTask> tasks, std::vector<Sequence>& sequences,
                       const OnToken& on_token) {
  std::vector<SequenceToken> run;
  std::vector<std::int32_t> wanted;
  std::vector<std::size_t> rows;
  for (Sequence& sequence : sequences)
    if (sequence.active) {
      wanted.push_back(static_cast<std::int32_t>(run.size()));
      run.push_back({sequence.next, sequence.length++, static_cast<std::int32_t>(sequence.task)});
      rows.push_back(sequence.task);
    }
  STRATA_TRY_ASSIGN(const std::span<const float> logits, engine_.extend(run, wanted));
  const std::size_t vocab = logits.size() / rows.size();
  for (std::size_t k = 0; k < rows.size(); ++k)
    STRATA_TRY(draw(tasks[rows[k]], sequences[rows[k]], logits.subspan(k * vocab, vocab), on_token));
  return Status::ok();
}

Status Generator::draw(const GenerationTask& task, Sequence& sequence, std::span<const float> logits,
                       const OnToken& on_token) {
  const std::size_t n = sequence.out.ids.size();
  const auto drawn =
      sampler_.pick(logits.first(std::min(logits.size(), static_cast<std::size_t>(options_.vocab))),
                    static_cast<double>(Rng(options_.seed, kStream + task.index).uniform(n)));
  if (!drawn.has_value())
    return drawn.status().annotate(str("prompt ", task.index + 1, ", token ", n + 1, " of the answer"));
  sequence.active = false;
  if (std::find(task.ends.begin(), task.ends.end(), *drawn) != task.ends.end()) {
    sequence.out.stop = StopReason::end_of_text;
    return Status::ok();
  }
  sequence.out.ids.push_back(*drawn);
  sequence.next = *drawn;
  if (static_cast<std::int64_t>(n) + 1 >= options_.tokens)
    sequence.out.stop = StopReason::max_tokens;
  else if (sequence.length >= options_.context)
    sequence.out.stop = StopReason::context_full;
  else
    sequence.active = true;
  return on_token(sequence.task, *drawn);
}

}  // namespace strata::cli
