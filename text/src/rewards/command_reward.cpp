#include "rewards/command_reward.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>

#include <poll.h>
#include <sys/socket.h>

#include <strata/runtime/config/json.h>
#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

constexpr std::size_t kMaxLineBytes = 4096;

}  // namespace

Result<std::unique_ptr<CommandReward>> CommandReward::start(const std::string& command) {
  STRATA_TRY_ASSIGN(auto shell, ShellCommand::start("align.reward", command, ShellCommand::Answers::yes));
  return std::unique_ptr<CommandReward>(new CommandReward(std::move(shell)));
}

Status CommandReward::add(std::span<const AnswerText> answers, double weight, std::span<double> rewards,
                          const Stops& stops) {
  std::string lines;
  for (const AnswerText& answer : answers)
    lines += str("{\"prompt\": ", json_string(answer.prompt), ", \"answer\": ", json_string(answer.answer),
                 ", \"ended\": ", answer.ended ? "true" : "false",
                 ", \"record\": ", answer.record.empty() ? std::string_view("null") : answer.record, "}\n");
  std::string_view to_send = lines;
  std::size_t taken = answers.size();
  STRATA_TRY(receive());
  STRATA_TRY(take_lines(weight, taken, rewards));  // there must be none yet
  for (taken = 0; taken < answers.size();) {
    STRATA_TRY(exchange(to_send, stops));
    STRATA_TRY(take_lines(weight, taken, rewards));
  }
  return {};
}

// Sends and receives what is possible, both, since the command may answer before it has read everything.
Status CommandReward::exchange(std::string_view& to_send, const Stops& stops) {
  constexpr int kPatienceMs = 600'000, kStopCheckMs = 100;
  ::pollfd socket{command_->socket(), static_cast<short>(POLLIN | (to_send.empty() ? 0 : POLLOUT)), 0};
  int ready = 0;
  for (int waited = 0; ready == 0 && waited < kPatienceMs; waited += kStopCheckMs) {
    if (stops()) {
      command_->kill();
      return command_->failed("it was stopped before it had answered everything", Code::cancelled);
    }
    ready = ::poll(&socket, 1, kStopCheckMs);
  }
  if (ready < 0 && errno != EINTR) return command_->failed("waiting", errno);
  if (ready == 0) return command_->failed("no answer for 10 minutes");
  if ((socket.revents & POLLOUT) != 0) {
    const ::ssize_t n = ::send(socket.fd, to_send.data(), to_send.size(), MSG_NOSIGNAL);
    if (n > 0) to_send.remove_prefix(static_cast<std::size_t>(n));
    if (n < 0 && errno == EPIPE) to_send = {};  // its output may still be read
    if (n < 0 && errno != EPIPE && errno != EAGAIN && errno != EINTR)
      return command_->failed("writing", errno);
  }
  return (socket.revents & (POLLIN | POLLHUP | POLLERR)) != 0 ? receive() : Status::ok();
}

Status CommandReward::receive() {
  std::array<char, 1 << 16> block;
  const ::ssize_t n = ::recv(command_->socket(), block.data(), block.size(), 0);
  if (n > 0) received_.append(block.data(), static_cast<std::size_t>(n));
  if (n == 0 || (n < 0 && errno == ECONNRESET))
    return command_->failed("it ended before it had answered everything");
  return n < 0 && errno != EAGAIN && errno != EINTR ? command_->failed("reading", errno) : Status::ok();
}

Status CommandReward::take_lines(double weight, std::size_t& taken, std::span<double> rewards) {
  std::size_t at = 0;
  for (std::size_t end = 0; (end = received_.find('\n', at)) != std::string::npos; at = end + 1) {
    std::string_view line = std::string_view(received_).substr(at, end - at);
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    double value = 0;
    const auto parsed = std::from_chars(line.data(), line.data() + line.size(), value);
    if (parsed.ec != std::errc{} || parsed.ptr != line.data() + line.size() || !std::isfinite(value))
      return command_->failed(str("it wrote '", line.substr(0, 80), "', which is not a number"),
                              Code::invalid);
    if (taken == rewards.size())
      return command_->failed("it wrote more lines than there are answers", Code::invalid);
    rewards[taken++] += weight * value;
  }
  received_.erase(0, at);
  if (received_.size() > kMaxLineBytes)
    return command_->failed(str("it wrote ", received_.size(),
                                " bytes without a line feed; a line is a number of "
                                "at most ",
                                kMaxLineBytes, " bytes"),
                            Code::invalid);
  return {};
}

}  // namespace strata::detail
