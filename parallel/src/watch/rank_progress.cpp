#include <strata/parallel/rank_progress.h>

#include <algorithm>
#include <cstring>

#include <strata/runtime/str.h>

namespace strata {

std::string to_string(const RankPosition& position) {
  const std::string name(position.name, ::strnlen(position.name, sizeof position.name));
  if (position.activity == RankPosition::Activity::outside) return str("outside of a step (", name, ")");
  if (position.activity == RankPosition::Activity::user_code && position.step == 0)
    return str("outside of a step, ", name);
  std::string text = str("in step ", position.step);
  if (position.micro_batch > 0) text += str(", micro-batch ", position.micro_batch);
  if (position.activity == RankPosition::Activity::user_code) return text + str(", ", name);
  if (position.instruction == 0) return text;
  return text + str(", instruction ", position.instruction, " of ", position.n_instructions, " (", name, ")");
}

void RankProgress::set(RankPosition::Activity activity, const char* name) noexcept {
  activity_.store(activity, std::memory_order_relaxed);
  name_.store(name, std::memory_order_relaxed);
  changes_.fetch_add(1, std::memory_order_release);
}

// Code of the caller that is called from here is in no step, either.
void RankProgress::outside(const char* what) noexcept {
  step_.store(0, std::memory_order_relaxed);
  micro_batch_.store(0, std::memory_order_relaxed);
  instruction_.store(0, std::memory_order_relaxed);
  set(RankPosition::Activity::outside, what);
}

void RankProgress::begin_step(std::int64_t step) noexcept {
  step_.store(step, std::memory_order_relaxed);
  begin_micro_batch(0, 0);
}

void RankProgress::begin_micro_batch(std::int32_t micro_batch, std::int32_t n_instructions) noexcept {
  micro_batch_.store(micro_batch, std::memory_order_relaxed);
  n_instructions_.store(n_instructions, std::memory_order_relaxed);
  at(0, "");
}

void RankProgress::at(std::int32_t instruction, const char* name) noexcept {
  instruction_.store(instruction, std::memory_order_relaxed);
  set(RankPosition::Activity::step, name);
}

RankPosition RankProgress::position() const noexcept {
  RankPosition position{.changes = changes_.load(std::memory_order_acquire),
                        .step = step_.load(std::memory_order_relaxed),
                        .micro_batch = micro_batch_.load(std::memory_order_relaxed),
                        .instruction = instruction_.load(std::memory_order_relaxed),
                        .n_instructions = n_instructions_.load(std::memory_order_relaxed),
                        .activity = activity_.load(std::memory_order_relaxed)};
  const char* const name = name_.load(std::memory_order_relaxed);
  std::memcpy(position.name, name, std::min(std::strlen(name), sizeof position.name));
  return position;
}

RankProgress::UserCode::UserCode(RankProgress* progress, const char* what) noexcept : progress_(progress) {
  if (progress_ == nullptr) return;
  before_ = progress_->activity_.load(std::memory_order_relaxed);
  name_before_ = progress_->name_.load(std::memory_order_relaxed);
  progress_->set(RankPosition::Activity::user_code, what);
}

RankProgress::UserCode::~UserCode() {
  if (progress_ != nullptr) progress_->set(before_, name_before_);
}

}  // namespace strata
