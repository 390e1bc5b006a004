#pragma once

#include <string>
#include <vector>

#include <strata/text/chat.h>

#include "data/records/record_problem.h"

namespace strata::detail {

using Messages = std::vector<ChatMessage>;

/// Appends the messages of an array: objects with "role" and "content", or ShareGPT's "from" and "value",
/// whose roles have other names. `key` is where it is, for messages.
Outcome read_messages(const RecordJson& messages, const char* key, Messages& said);
/// The same of the array at `key`.
Outcome messages_at(const RecordJson& record, const char* key, Messages& said);
/// Appends one message.
Outcome read_message(const RecordJson& message, Messages& said);
/// Sets `tools` to the tools of a record as a JSON array; empty if it has none. They may be JSON in a string.
Outcome tools_at(const RecordJson& record, std::string& tools);

}  // namespace strata::detail
