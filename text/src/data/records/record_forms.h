#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/text/documents.h>

#include "data/records/messages.h"
#include "data/records/record_problem.h"

namespace strata::detail {

/// The contents of a record: texts or conversations, one, or two of a pair, the preferred one first.
struct RecordParts {
  std::vector<std::vector<Segment>> texts;
  std::vector<Messages> chats;  ///< if there are no texts
  std::string tools;            ///< the tools of the conversations, as a JSON array
};

/// How a file's records are recognized and read.
struct RecordForm {
  std::string_view name;  ///< the name of one record, for messages
  bool is_pair = false;
  std::string_view keys;  ///< separated by blanks; those that a record may lack end in '?'
  Outcome (*read)(const RecordJson& record, bool as_text, RecordParts& into) = nullptr;
  /// Whether a template without turns of its own ("plain") means text: `as_text` of `read`.
  bool may_be_text = false;
};
std::span<const RecordForm> record_forms() noexcept;

/// The form of a record for this use, or why it has none: a problem of the file.
Outcome find_form(const RecordJson& record, RecordUse use, const RecordForm*& found);
/// The first key that the form needs and the record lacks; empty if there is none.
std::string missing_key(const RecordJson& record, const RecordForm& form);
/// The keys that the form reads, in its order.
std::vector<std::string> keys_read(const RecordForm& form);

}  // namespace strata::detail
